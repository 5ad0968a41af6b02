import { count, instant, span } from "../format.js";
import { html } from "../html.js";
import { Card, Empty, Pill, Table } from "../parts.js";
import { address } from "../store.js";

const QUIET = 5; // batches without a row after which a stream counts as idle

export function idle(stream, series) {
  const rows = series.rows?.[stream];
  if (!rows || rows.length < QUIET) return false;
  return rows.slice(-QUIET).every((value) => !value) && rows.some((value) => value);
}

// The stream that holds a query back, and by how much.
export function slowest(query, job) {
  const read = job.streams.filter((stream) => query.streams.includes(stream.name));
  const unheard = read.find((stream) => stream.register === null);
  if (unheard && read.length > 1 && !job.finished) return { stream: unheard.name, behind: null };
  const known = read.filter((stream) => stream.register !== null);
  if (known.length < 2) return { stream: null, behind: null };
  const least = known.reduce((a, b) => (b.register < a.register ? b : a));
  const next = Math.max(...known.map((stream) => stream.register));
  return next > least.register ? { stream: least.name, behind: next - least.register } : { stream: null, behind: null };
}

// How far the complete results of a query are behind the newest row of its streams, in event time.
export function behind(query, job) {
  const newest = job.streams.filter((stream) => query.streams.includes(stream.name) && stream.latest !== null && stream.latest !== undefined);
  if (!newest.length || query.released === null) return null;
  return Math.max(0, Math.max(...newest.map((stream) => stream.latest)) - query.released);
}

export function Waits({ job, series, query }) {
  if (!query) return html`<${Empty}>The job has no queries.<//>`;
  const read = job.streams.filter((stream) => query.streams.includes(stream.name));
  const moments = read
    .flatMap((stream) => [stream.register, stream.latest])
    .concat([query.released, query.advanced_to])
    .filter((moment) => moment !== null && moment !== undefined);
  const [from, to] = [Math.min(...moments), Math.max(...moments)];
  const wide = to - from || 1;
  const place = (moment) => `${((moment - from) / wide) * 100}%`;
  const held = slowest(query, job);
  return html`
    <${Card}
      title=${`What ${query.name} waits for`}
      note=${held.stream
        ? html`It waits for <strong>${held.stream}</strong>${held.behind ? ` which is ${span(held.behind, query.time)} behind the others.` : ", of which nothing has come yet."}`
        : "All its streams are equally far: it waits for nobody."}
    >
      ${moments.length
        ? html`<div class="lanes">
            ${read.map(
              (stream) => html`<div class=${`lane ${stream.name === held.stream ? "slow" : ""}`} key=${stream.name}>
                <span class="lane-name">
                  ${stream.name} ${idle(stream.name, series) ? html`<${Pill} kind="old">idle<//>` : ""}
                </span>
                <span class="track" aria-hidden="true">
                  ${stream.register !== null &&
                  html`<span class="until" style=${{ width: place(stream.register) }}></span
                    ><span class="dot" style=${{ left: place(stream.register) }}></span>`}
                  ${stream.latest !== null && stream.latest !== undefined &&
                  html`<span class="newest" style=${{ left: place(stream.latest) }}></span>`}
                </span>
                <span class="tabular lane-value">${instant(stream.register, query.time)}</span>
              </div>`,
            )}
            <div class="lane result">
              <span class="lane-name">results of ${query.name}</span>
              <span class="track" aria-hidden="true">
                ${query.released !== null &&
                html`<span class="until" style=${{ width: place(query.released) }}></span
                  ><span class="dot" style=${{ left: place(query.released) }}></span>`}
              </span>
              <span class="tabular lane-value">${instant(query.released, query.time)}</span>
            </div>
          </div>
          <p class="key">
            <span class="swatch register" aria-hidden="true"></span>nothing older will come
            <span class="swatch newest" aria-hidden="true"></span>newest row
            <span class="swatch result" aria-hidden="true"></span>results are complete before
          </p>`
        : html`<${Empty}>No stream has promised anything at this batch.<//>`}
    <//>
    <${Card} title="All queries">
      <${Table}
        label="All queries and what they wait for"
        rows=${job.queries.map((each) => ({ ...each, ...slowest(each, job) }))}
        columns=${[
          { title: "Query", show: (q) => html`<a href=${address("waits", q.name)}>${q.name}</a>` },
          { title: "Reads", show: (q) => q.streams.join(", ") },
          { title: "Waits for", show: (q) => q.stream ?? "nobody" },
          { title: "By", number: true, show: (q) => (q.behind ? span(q.behind, q.time) : "–") },
        ]}
      />
    <//>
    <${Card} title="Streams">
      <${Table}
        label="Streams"
        rows=${job.streams}
        columns=${[
          { title: "Stream", show: (s) => html`${s.name} ${idle(s.name, series) ? html`<${Pill} kind="old">idle<//>` : ""}` },
          { title: "Rows", number: true, show: (s) => count(s.rows) },
          { title: "Late", number: true, show: (s) => count(s.late) },
          { title: "Unusable", number: true, show: (s) => count(s.unusable) },
          { title: "In the source", number: true, show: (s) => (s.lag == null ? "–" : count(s.lag)) },
          { title: "Nothing before", show: (s) => instant(s.register, s.time) },
          { title: "Newest row", show: (s) => instant(s.latest, s.time) },
        ]}
      />
    <//>
  `;
}
