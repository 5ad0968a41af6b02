// What the page knows, where it comes from, and which part of it the address names.
import { useEffect, useState } from "preact/hooks";

const exportedData = () => {
  const element = document.getElementById("data");
  return element ? JSON.parse(element.textContent) : null;
};

const EMPTY_SERIES = { batch: [], at: [], marks: [] };
const GROUPED = ["rows", "late", "unusable", "results", "state_rows", "state_bytes", "registers", "latest", "released", "latency", "seconds"];
const MOST = 10_000;
const UNSEEN = 60_000; // milliseconds

class Store {
  constructor() {
    this.listeners = new Set();
    this.file = exportedData();
    this.live = this.file ? this.file.job : null;
    this.series = this.file ? this.file.series : EMPTY_SERIES;
    this.past = new Map(Object.entries(this.file?.replay ?? {}).map(([batch, job]) => [Number(batch), job]));
    this.connection = this.file ? "file" : "connecting";
    this.trouble = null;
    this.phase = null; // of a job that cannot be read yet
    this.session = { may_act: false, csrf: null };
    this.wanted = null;
  }

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  changed() {
    for (const listener of this.listeners) listener();
  }

  start() {
    if (this.file) return;
    this.connect();
    this.ask_session();
    document.addEventListener("visibilitychange", () => this.rest());
  }

  // A page that nobody sees lets go of its connection after a while, because browsers allow only a few to one server.
  rest() {
    clearTimeout(this.resting);
    if (document.hidden) {
      this.resting = setTimeout(() => this.events.close(), UNSEEN);
    } else if (this.events.readyState === EventSource.CLOSED && this.connection !== "refused") {
      this.connect();
    }
  }

  async ask_session() {
    try {
      const answer = await fetch("/api/session");
      if (answer.status === 401) this.connection = "refused";
      else this.session = await answer.json();
      this.changed();
    } catch {
      // The connection of events says that the server cannot be reached.
    }
  }

  connect() {
    const since = this.series.batch.at(-1) ?? -1;
    const events = (this.events = new EventSource(`/api/events?since=${since}`));
    events.addEventListener("open", () => this.be("live"));
    events.addEventListener("job", (event) => this.receive(JSON.parse(event.data)));
    events.addEventListener("trouble", (event) => {
      const { message, phase } = JSON.parse(event.data);
      [this.trouble, this.phase] = [message, phase];
      this.changed();
    });
    events.addEventListener("error", () => {
      if (this.connection === "refused") return events.close();
      this.be("lost");
      // A browser tries again by itself, but gives up for good when a server answers with an error meanwhile.
      if (events.readyState === EventSource.CLOSED && events === this.events) setTimeout(() => this.reconnect(), 1500);
    });
  }

  reconnect() {
    this.ask_session();
    if (this.connection !== "refused") this.connect();
  }

  be(connection) {
    if (connection === "live" && this.connection === "lost") this.ask_session();
    if (this.connection !== connection) {
      this.connection = connection;
      this.changed();
    }
  }

  receive({ job, series }) {
    if (this.live && job.checkpoint === this.live.checkpoint && job.batch < this.live.batch) this.series = EMPTY_SERIES;
    this.live = job;
    this.trouble = null;
    this.connection = "live";
    this.series = joined(this.series, series);
    this.changed();
  }

  // The job as of a batch, or as it is now; null until it has arrived.
  at(batch) {
    if (batch === null || !this.live || batch === this.live.batch) return this.live;
    if (this.past.has(batch)) return this.past.get(batch);
    if (!this.file && this.wanted !== batch) this.fetch_past(batch);
    return this.file ? this.live : null;
  }

  async fetch_past(batch) {
    this.wanted = batch;
    try {
      const answer = await fetch(`/api/job?batch=${batch}`);
      const job = await answer.json();
      this.past.set(batch, answer.ok ? job : this.live);
    } catch {
      this.past.set(batch, this.live);
    }
    if (this.past.size > 200) this.past.delete(this.past.keys().next().value);
    this.wanted = null;
    this.changed();
  }

  // The newest results of a query, as they are now.
  async results(query) {
    if (this.file) return this.file.results?.[query] ?? { columns: [], rows: [] };
    const answer = await fetch(`/api/results?query=${encodeURIComponent(query)}`).catch(() => {
      throw { message: "the server cannot be reached" };
    });
    const told = await answer.json();
    if (told.error) throw told.error;
    return told;
  }

  // What the last trial of a change has found; null if there was none.
  async trial() {
    if (this.file) return this.file.trial ?? null;
    const answer = await fetch("/api/trial").catch(() => {
      throw { message: "the server cannot be reached" };
    });
    const told = await answer.json();
    if (told?.error) throw told.error;
    return told;
  }

  // Asks the job; unless told otherwise only what it would do. Gives the answer, and the same in words.
  async ask(request, { dry_run = true } = {}) {
    const answer = await fetch("/api/ask", {
      method: "POST",
      headers: { "content-type": "application/json", "x-midstream-csrf": this.session.csrf ?? "" },
      body: JSON.stringify({ ...request, dry_run }),
    });
    const told = await answer.json().catch(() => ({ error: { message: "the server gave no answer that can be read" } }));
    if (told.error) throw told.error;
    return told;
  }
}

function joined(old, news) {
  if (!old.batch.length) return news;
  const fresh = news.batch.findIndex((batch) => batch > old.batch.at(-1));
  const from = fresh < 0 ? news.batch.length : fresh;
  const extra = news.batch.length - from;
  const drop = Math.max(0, old.batch.length + extra - MOST);
  const together = (a = [], b = []) => a.slice(drop).concat(b.slice(from));
  const empty = (length) => new Array(length).fill(null);
  const result = { batch: together(old.batch, news.batch), at: together(old.at, news.at) };
  for (const kind of GROUPED) {
    const names = new Set([...Object.keys(old[kind] ?? {}), ...Object.keys(news[kind] ?? {})]);
    result[kind] = {};
    for (const name of [...names].sort())
      result[kind][name] = together(
        old[kind]?.[name] ?? empty(old.batch.length),
        news[kind]?.[name] ?? empty(news.batch.length),
      );
  }
  const marks = new Map();
  for (const mark of [...old.marks, ...news.marks]) marks.set(`${mark.kind} ${mark.batch} ${mark.query}`, mark);
  result.marks = [...marks.values()].sort((a, b) => a.batch - b.batch);
  return result;
}

export const store = new Store();

export function useStore() {
  const [, again] = useState(0);
  useEffect(() => store.subscribe(() => again((n) => n + 1)), []);
  return store;
}

// The address: a view, what it is about, and settings.
export function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [view = "", about = ""] = path.split("/").map(decoded);
  return { view: view || "overview", about, settings: new URLSearchParams(query ?? "") };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function address(view, about = "", settings = {}) {
  const kept = new URLSearchParams(place().settings.has("batch") ? { batch: place().settings.get("batch") } : {});
  for (const [name, value] of Object.entries(settings))
    if (value === null || value === undefined || value === "") kept.delete(name);
    else kept.set(name, value);
  const query = kept.toString();
  return `#/${view}${about ? `/${encodeURIComponent(about)}` : ""}${query ? `?${query}` : ""}`;
}

// Changes settings of the place where one is.
export function set(changes, { replace = true } = {}) {
  const { view, about, settings } = place();
  const next = address(view, about, { ...Object.fromEntries(settings), ...changes });
  if (replace) history.replaceState(null, "", next);
  else history.pushState(null, "", next);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

export function usePlace() {
  const [now, move] = useState(place());
  useEffect(() => {
    const listen = () => move(place());
    window.addEventListener("hashchange", listen);
    listen(); // the address may have changed since the first rendering
    return () => window.removeEventListener("hashchange", listen);
  }, []);
  return now;
}
