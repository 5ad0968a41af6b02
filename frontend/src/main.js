import { render } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { Alerts } from "./alerts.js";
import { clock, count } from "./format.js";
import { html } from "./html.js";
import { Pill } from "./parts.js";
import { address, place, set, store, usePlace, useStore } from "./store.js";
import { Actions } from "./views/actions.js";
import { Dead } from "./views/dead.js";
import { Decisions } from "./views/decisions.js";
import { History } from "./views/history.js";
import { Migration } from "./views/migration.js";
import { Overview } from "./views/overview.js";
import { Plan } from "./views/plan.js";
import { Results } from "./views/results.js";
import { Slots } from "./views/slots.js";
import { Time } from "./views/time.js";
import { Trial } from "./views/trial.js";
import { Waits } from "./views/waits.js";

const VIEWS = {
  overview: ["Overview", Overview],
  results: ["Results", Results],
  plan: ["Plan", Plan],
  migration: ["Migration", Migration],
  time: ["Over time", Time],
  slots: ["Slots", Slots],
  waits: ["Who waits", Waits],
  dead: ["Dead letters", Dead],
  decisions: ["Decisions", Decisions],
  trial: ["Trial", Trial],
  history: ["History", History],
  actions: ["Actions", Actions],
};
const ABOUT_A_QUERY = new Set(["results", "plan", "migration", "waits", "decisions", "actions"]);

function App() {
  const { live: now, series, connection, trouble, phase } = useStore();
  const { view, about, settings } = usePlace();
  const wanted = settings.has("batch") ? Number(settings.get("batch")) : null;
  const batch = Number.isInteger(wanted) ? wanted : null;
  const job = store.at(batch);
  const last = useRef(null);
  if (job) last.current = job;
  const shown = job ?? last.current;
  const [title, View] = VIEWS[view] ?? VIEWS.overview;
  useEffect(() => {
    document.title = now ? `${title} · ${now.name} · Midstream` : "Midstream";
  }, [title, now?.name]);
  const live = batch === null || batch === now?.batch;
  const query = shown?.queries.find((each) => each.name === about) ?? firstOf(shown);
  const moving = now?.queries.filter((each) => each.migration).length ?? 0;
  return html`
    <a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), document.getElementById("main").focus())}>Skip to the content</a>
    <${Head} job=${now} connection=${connection} phase=${now?.phase ?? phase} moving=${moving} />
    <nav class="views" aria-label="Views">
      ${Object.entries(VIEWS).map(
        ([key, [name]]) => html`<a key=${key} href=${address(key, ABOUT_A_QUERY.has(key) ? query?.name : "")} aria-current=${key === view ? "page" : undefined}>
          ${name}${key === "migration" && moving ? html`<span class="badge" aria-label=${`${moving} under way`}>${moving}</span>` : ""}
        </a>`,
      )}
    </nav>
    <main id="main" tabindex="-1">
      <h1 class="hidden">${title}</h1>
      ${trouble && phase !== "starting" && html`<p class="blocked" role="status">${trouble}</p>`}
      <div role="status">${shown && live && html`<${Alerts} job=${shown} series=${series} />`}</div>
      ${!live && shown && html`<p class="past" role="status">
        Batch ${batch}, not now${shown.complete ? "" : ": its manifest is gone, so only what the metrics table keeps is shown"}.
        <button class="link" onClick=${() => set({ batch: null })}>Back to now</button>
      </p>`}
      ${ABOUT_A_QUERY.has(view) && (shown?.queries.length ?? 0) > 1 && html`<${Queries} job=${shown} view=${view} query=${query} />`}
      ${shown ? html`<${View} job=${shown} query=${query} series=${series} settings=${settings} live=${live} now=${live ? null : batch} inflow=${inflowOf(series, shown)} />` : html`<${Waiting} connection=${connection} trouble=${trouble} phase=${phase} />`}
    </main>
    <${Replay} series=${series} batch=${batch} now=${now} />
    <p class="hidden" role="status" aria-live="polite">${moving ? `${moving} migration under way` : ""}</p>
  `;
}

// The query that a view is about unless the address names one: one that is migrating, else the one with most to show.
function firstOf(job) {
  const queries = job?.queries ?? [];
  const size = (query) => (query.migration ? 1e6 : 0) + query.graph.nodes.length;
  return queries.reduce((best, each) => (best && size(best) >= size(each) ? best : each), undefined);
}

// The rows that each stream had in a batch.
function inflowOf(series, job) {
  const at = series.batch.indexOf(job.batch);
  if (at < 0) return {};
  return Object.fromEntries(Object.entries(series.rows ?? {}).map(([stream, rows]) => [stream, rows[at] ?? 0]));
}

const PHASES = { starting: "auto", running: "good", finished: "plain", failed: "bad", stopped: "old" };

function Head({ job, connection, phase, moving }) {
  const states = {
    live: phase ? [PHASES[phase], phase] : ["plain", "connecting…"],
    lost: ["bad", "reconnecting…"],
    connecting: ["plain", "connecting…"],
    refused: ["bad", "needs its link"],
    file: ["plain", "a saved page"],
  };
  const [kind, text] = states[connection];
  return html`<header class="top">
    <a class="brand" href=${address("overview")} aria-label="Midstream: overview">
      <svg viewBox="0 0 32 20" aria-hidden="true"><path d="M2 6c7-7 9 7 14 3s7-8 14-3M2 14c7-7 9 7 14 3s7-8 14-3" /></svg>
      <span>Midstream</span>
    </a>
    ${job && html`<span class="where" title=${job.checkpoint}>${job.name}</span>`}
    <${Pill} kind=${kind}>${text}<//>
    ${moving ? html`<a class="pill new" href=${address("migration", job.queries.find((each) => each.migration)?.name)}>migrating</a>` : ""}
    <span class="grow"></span>
    ${job && html`<span class="tabular batch">batch <b>${count(job.batch)}</b></span>`}
    ${connection !== "file" && html`<a class="button quiet" href="/api/export" download>Export</a>`}
    <${Theme} />
  </header>`;
}

function Theme() {
  const [theme, choose] = useState(() => remembered("theme"));
  useEffect(() => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    remember("theme", theme);
    window.dispatchEvent(new Event("themechange"));
  }, [theme]);
  const next = { "": "dark", dark: "light", light: "" };
  const names = { "": "as the system", dark: "dark", light: "light" };
  return html`<button class="quiet theme" aria-label=${`Colours: ${names[theme]}`} title=${`Colours: ${names[theme]}`} onClick=${() => choose(next[theme])}>
    <svg viewBox="0 0 20 20" aria-hidden="true"><circle cx="10" cy="10" r="6.5" /><path class="half" d="M10 3.5a6.5 6.5 0 0 1 0 13z" /></svg>
  </button>`;
}

function remembered(name) {
  try {
    return localStorage.getItem(`midstream-${name}`) ?? "";
  } catch {
    return "";
  }
}

function remember(name, value) {
  try {
    localStorage.setItem(`midstream-${name}`, value);
  } catch {
    // A browser that keeps nothing shows the system's colours.
  }
}

function Queries({ job, view, query }) {
  return html`<div class="chips queries" role="navigation" aria-label="Queries">
    ${job.queries.map(
      (each) => html`<a key=${each.name} class=${`chip ${each.name === query?.name ? "on" : ""}`} aria-current=${each.name === query?.name ? "true" : undefined} href=${address(view, each.name, view === "actions" ? { do: place().settings.get("do") } : {})}>
        ${each.name}${each.migration ? html`<i class="dot-new" title="migrating"></i>` : ""}
      </a>`,
    )}
  </div>`;
}

function Waiting({ connection, trouble, phase }) {
  if (connection === "live" && phase === "starting") return html`<p class="empty">The job starts. Its first batch will be shown here.</p>`;
  const text = {
    connecting: "Reading the checkpoint…",
    lost: "The dashboard's server cannot be reached. Trying again…",
    refused: "This dashboard needs the link that the command has printed: it carries the token.",
  };
  return html`<p class="empty">${text[connection] ?? (trouble ? "Waiting for the first batch…" : "Reading the checkpoint…")}</p>`;
}

// A slider over all batches that are known; at its end one follows the job.
function Replay({ series, batch, now }) {
  const known = series.batch;
  const places = useMemo(() => new Map(known.map((each, i) => [each, i])), [known]);
  if (!now || known.length < 2) return null;
  const at = batch === null ? known.length - 1 : (places.get(batch) ?? known.length - 1);
  const go = (i) => set({ batch: i >= known.length - 1 ? null : String(known[i]) });
  const retained = new Set(now.batches);
  return html`<footer class="replay" aria-label="Replay">
    <button class="quiet" aria-label="One batch back" disabled=${at <= 0} onClick=${() => go(at - 1)}>‹</button>
    <div class="slider">
      <input
        type="range"
        min="0"
        max=${known.length - 1}
        value=${at}
        aria-label="Batch"
        aria-valuetext=${`batch ${known[at]}, ${clock(series.at[at])}`}
        onInput=${(event) => go(Number(event.target.value))}
      />
      <div class="slider-marks" aria-hidden="true">
        ${series.marks
          .filter((mark) => places.has(mark.batch))
          .slice(-200)
          .map((mark, i) => html`<i key=${i} class=${mark.kind} style=${{ left: `${(places.get(mark.batch) / (known.length - 1)) * 100}%` }}></i>`)}
      </div>
    </div>
    <button class="quiet" aria-label="One batch on" disabled=${batch === null} onClick=${() => go(at + 1)}>›</button>
    <span class="tabular">batch ${known[at]}<small>${clock(series.at[at])}${retained.has(known[at]) ? "" : ", figures only"}</small></span>
    <button class=${batch === null ? "now on" : "now"} onClick=${() => set({ batch: null })} aria-pressed=${batch === null}>Now</button>
  </footer>`;
}

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const view = Object.keys(VIEWS)["1234567890".indexOf(event.key)];
  if (view && event.key !== "") location.hash = address(view, ABOUT_A_QUERY.has(view) ? place().about : "");
});

store.start();
render(html`<${App} />`, document.getElementById("app"));
