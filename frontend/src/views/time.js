import { useMemo } from "preact/hooks";
import { Chart, perSecond } from "../charts.js";
import { bytes, clock, count, seconds, span } from "../format.js";
import { html } from "../html.js";
import { Card, Empty, Pill, Table } from "../parts.js";
import { address, set } from "../store.js";

const PARTS = ["transfer", "state", "kernel", "write", "watch", "spark", "commit", "decide", "sinks"];
const MARKS = { fault: "bad", resume: "good", migration: "new", move: "move", rescale: "move", restart: "bad", start: "good" };

export function Time({ job, series, now }) {
  const columns = useMemo(() => prepared(series, job.queries), [series]);
  if (series.batch.length < 2) return html`<${Empty}>Charts begin with the second batch.<//>`;
  const time = job.queries[0]?.time ?? "integer";
  const chart = { series, now };
  return html`
    <${Card}
      title="Over time"
      note="Drag across a chart to look closer, double-click to see all. Marks show when something changed."
    >
      <div class="charts">
        <${Chart} title="Throughput" ...${chart} ...${columns.rows} show=${(v) => (v === null ? "–" : `${count(Math.round(v))}/s`)} />
        <${Chart} title="Output" ...${chart} ...${columns.results} show=${(v) => (v === null ? "–" : `${count(Math.round(v))}/s`)} />
        <${Chart} title="Behind, in event time" ...${chart} ...${columns.delay} show=${(v) => span(v, time)} label="How far complete results are behind the newest row, in event time" />
        <${Chart} title="Latency, by the clock" ...${chart} ...${columns.latency} show=${seconds} label="From rows to complete results, by the clock" />
        <${Chart} title="State" ...${chart} ...${columns.state} show=${bytes} />
        <${Chart} title="Batch time by part" ...${chart} ...${columns.parts} show=${seconds} stack />
        <${Chart} title="Late and unusable rows" ...${chart} ...${columns.dead} show=${(v) => count(v)} />
      </div>
    <//>
    <${Card} title="Marks" note="What changed, and when.">
      <${Table}
        label="Marks"
        empty="Nothing has changed in the time that the charts show."
        rows=${[...series.marks].reverse().slice(0, 50)}
        onRow=${(mark) => set({ batch: String(mark.batch) }, { replace: false })}
        columns=${[
          { title: "Batch", show: (m) => html`<a href=${address("time", "", { batch: m.batch })}>${m.batch}</a>` },
          { title: "What", show: (m) => html`<${Pill} kind=${MARKS[m.kind]}>${m.kind}<//>` },
          { title: "", show: (m) => m.text },
        ]}
      />
      <p class="note">The charts show ${count(series.batch.length)} batches, from ${clock(series.at[0])} to ${clock(series.at.at(-1))}.</p>
    <//>
  `;
}

function prepared(series, queries) {
  const named = (columns, change = (column) => column) => ({
    names: Object.keys(columns ?? {}),
    columns: Object.entries(columns ?? {}).map(([name, column]) => change(column, name)),
  });
  const newest = (query, i) =>
    (queries.find((each) => each.name === query)?.streams ?? Object.keys(series.latest ?? {})).reduce(
      (most, stream) => Math.max(most, series.latest?.[stream]?.[i] ?? -Infinity),
      -Infinity,
    );
  const known = PARTS.filter((part) => series.seconds?.[part]);
  return {
    rows: named(series.rows, (column) => perSecond(column, series.at)),
    results: named(series.results, (column) => perSecond(column, series.at)),
    state: named(series.state_bytes),
    delay: named(series.released, (column, query) =>
      column.map((value, i) => (value === null || newest(query, i) === -Infinity ? null : Math.max(0, newest(query, i) - value))),
    ),
    latency: named(series.latency),
    parts: { names: known, columns: known.map((part) => series.seconds[part]) },
    dead: {
      names: ["late", "unusable"],
      columns: ["late", "unusable"].map((kind) =>
        series.batch.map((_, i) => Object.values(series[kind] ?? {}).reduce((sum, column) => sum + (column[i] ?? 0), 0)),
      ),
    },
  };
}
