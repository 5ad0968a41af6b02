import { Spark, perSecond, total } from "../charts.js";
import { bytes, count, instant, percent, plural, seconds, span } from "../format.js";
import { html } from "../html.js";
import { Bar, Card, Pill, Stat, Table } from "../parts.js";
import { address } from "../store.js";
import { progressOf } from "./migration.js";
import { slowest } from "./waits.js";

const recent = (column, n = 20) => {
  const known = column.slice(-n).filter((value) => value !== null && value !== undefined);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
};

export function Overview({ job, series }) {
  const rows = perSecond(total(series.rows), series.at);
  const results = perSecond(total(series.results), series.at);
  const state = total(series.state_bytes);
  const took = series.seconds?.batch ?? series.seconds?.job ?? [];
  const late = job.streams.reduce((sum, stream) => sum + stream.late + stream.unusable, 0);
  const moving = job.queries.filter((query) => query.migration);
  return html`
    ${moving.map((query) => html`<${Moving} key=${query.name} query=${query} />`)}
    ${job.queries.filter((query) => query.quarantine).map((query) => html`<${Stopped} key=${query.name} query=${query} />`)}
    <dl class="stats" aria-label="The job at a glance">
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
      <${Stat}
        label="Set aside"
        value=${count(late)}
        note="late or unusable rows"
        kind=${late ? "warn" : ""}
      />
    </dl>
    <${Card} title="Queries" note="Each runs by a plan that can change while results keep flowing.">
      <${Table}
        label="Queries"
        empty="The job has no queries."
        rows=${job.queries.map((query) => ({ ...query, key: query.name }))}
        columns=${[
          { title: "Query", show: (q) => html`<a href=${address("plan", q.name)}><strong>${q.name}</strong></a>` },
          { title: "Plan", show: (q) => html`<code class="plan">${q.plans || q.plan || "without joins"}</code>` },
          { title: "State", show: (q) => queryState(q) },
          { title: "Results", number: true, show: (q) => count(q.results) },
          {
            title: "Complete before",
            show: (q) => html`<span class="tabular">${instant(q.released, q.time)}</span>`,
          },
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
            { title: "Nothing before", show: (s) => instant(s.register, timeOf(job, s.name)) },
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

function timeOf(job, stream) {
  return job.queries.find((query) => query.streams.includes(stream))?.time ?? "integer";
}

function queryState(query) {
  if (query.migration) return html`<${Pill} kind="new">migrating<//>`;
  const kind = { running: "good", quarantined: "bad" }[query.status] ?? "plain";
  return html`<${Pill} kind=${kind}>${query.status}<//>`;
}

function Stopped({ query }) {
  return html`<a class="moving stopped" href=${address("actions", query.name, { do: "resume" })}>
    <span><strong>${query.name}</strong> takes in nothing since batch ${query.quarantine.batch}: ${query.quarantine.reason}</span>
  </a>`;
}

function Moving({ query }) {
  const part = progressOf(query);
  return html`<a class="moving" href=${address("migration", query.name)}>
    <span><strong>${query.name}</strong> is changing its plan by ${query.migration.strategy}</span>
    <code>${query.plan}</code><span aria-hidden="true">→</span><code>${query.migration.new_plan}</code>
    ${part !== null && html`<${Bar} part=${part} kind="new" /><span class="tabular">${percent(part)}</span>`}
  </a>`;
}
