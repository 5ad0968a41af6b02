import { Spark, perSecond, total } from "../charts.js";
import { bytes, count, instant, percent, plural, seconds, span } from "../format.js";
import { html } from "../html.js";
import { Bar, Card, Pill, Stat, Table } from "../parts.js";
import { address } from "../store.js";
import { progressOf } from "./migration.js";
import { behind, slowest } from "./waits.js";

const recent = (column, n = 20) => {
  const known = column.slice(-n).filter((value) => value !== null && value !== undefined);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
};

// The longest latency of any query, batch by batch.
function slowestOf(latency, batches) {
  const columns = Object.values(latency ?? {});
  return Array.from({ length: batches }, (_, i) =>
    columns.reduce((most, column) => (column[i] === null || column[i] === undefined ? most : Math.max(most ?? 0, column[i])), null),
  );
}

export function Overview({ job, series }) {
  const rows = perSecond(total(series.rows), series.at);
  const results = perSecond(total(series.results), series.at);
  const state = total(series.state_bytes);
  const took = series.seconds?.batch ?? series.seconds?.job ?? [];
  const late = job.streams.reduce((sum, stream) => sum + stream.late + stream.unusable, 0);
  const slow = slowestOf(series.latency, series.batch.length);
  const moving = job.queries.filter((query) => query.migration);
  return html`
    ${moving.map((query) => html`<${Moving} key=${query.name} query=${query} />`)}
    <dl class="stats glance" aria-label="The job at a glance">
      <${Stat} label="Rows in" value=${count(recent(rows))} note="a second"><${Spark} values=${rows} hue="--c1" /><//>
      <${Stat} label="Results" value=${count(recent(results))} note="a second">
        <${Spark} values=${results} hue="--good" />
      <//>
      <${Stat} label="Batch time" value=${seconds(recent(took))} note="on average">
        <${Spark} values=${took} hue="--c3" />
      <//>
      <${Stat} label="State" value=${bytes(state.at(-1) ?? null)} note=${plural(job.slots?.count ?? 0, "slot")}>
        <${Spark} values=${state} hue="--c4" />
      <//>
      <${Stat} label="Latency" value=${seconds(slow.at(-1) ?? null)} note="by the clock"><${Spark} values=${slow} hue="--c2" /><//>
      <${Stat} label="Checkpoint" value=${bytes(job.sizes?.checkpoint)} note=${job.sizes ? `${bytes(job.sizes.commit)} a commit` : ""} />
      <${Stat}
        label="Set aside"
        value=${count(late)}
        note="late or unusable rows"
        kind=${late ? "warn" : ""}
      />
    </dl>
    <${Card} title="Queries" note="Behind: from complete results to the newest row, in event time. Latency: from rows to complete results, by the clock.">
      <${Table}
        label="Queries"
        empty="The job has no queries."
        rows=${job.queries.map((query) => ({ ...query, key: query.name }))}
        columns=${[
          { title: "Query", show: (q) => html`<a href=${address("plan", q.name)}><strong>${q.name}</strong></a>` },
          { title: "Plan", show: (q) => html`<code class="plan">${q.plans || q.plan || "without joins"}</code>` },
          { title: "State", show: (q) => queryState(q) },
          { title: "Results", number: true, show: (q) => html`<a href=${address("results", q.name)}>${count(q.results)}</a>` },
          {
            title: "Complete before",
            show: (q) => html`<span class="tabular">${instant(q.released, q.time)}</span>`,
          },
          { title: "Behind", number: true, show: (q) => span(behind(q, job), q.time) },
          { title: "Latency", number: true, show: (q) => seconds(q.latency) },
          { title: "Adapts", show: (q) => html`<${Pill} kind=${q.adaptivity.mode}>${q.adaptivity.mode}<//>` },
        ]}
      />
    <//>
    <div class="two">
      <${Card} title="Streams" note="How far each promises to be.">
        <${Table}
          label="Streams"
          rows=${job.streams.map((stream) => ({ ...stream, key: stream.name }))}
          columns=${[
            { title: "Stream", show: (s) => html`<strong>${s.name}</strong>` },
            { title: "Rows", number: true, show: (s) => count(s.rows) },
            { title: "Late", number: true, show: (s) => count(s.late) },
            { title: "Nothing before", show: (s) => instant(s.register, s.time) },
          ]}
        />
      <//>
      <${Card} title="Who waits" note="A query can only go as far as its slowest stream.">
        <${Table}
          label="Who waits for whom"
          rows=${job.queries.map((q) => ({ ...q, key: q.name, ...slowest(q, job, series) }))}
          columns=${[
            { title: "Query", show: (q) => html`<a href=${address("waits", q.name)}>${q.name}</a>` },
            { title: "Waits for", show: (q) => q.stream ?? "nobody" },
            { title: "By", number: true, show: (q) => (q.behind ? span(q.behind, q.time) : "–") },
          ]}
        />
      <//>
    </div>
  `;
}

function queryState(query) {
  if (query.migration) return html`<${Pill} kind="new">migrating<//>`;
  const kind = { running: "good", starting: "auto", stopped: "old", failed: "bad", quarantined: "bad" }[query.status] ?? "plain";
  return html`<${Pill} kind=${kind}>${query.status}<//>`;
}

function Moving({ query }) {
  const part = progressOf(query);
  return html`<a class="moving" href=${address("migration", query.name)}>
    <span><strong>${query.name}</strong> is changing its plan by ${query.migration.strategy}</span>
    <code>${query.plan}</code><span aria-hidden="true">→</span><code>${query.migration.new_plan}</code>
    ${part !== null && html`<${Bar} part=${part} kind="new" /><span class="tabular">${percent(part)}</span>`}
  </a>`;
}
