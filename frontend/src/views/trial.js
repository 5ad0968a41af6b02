import { useEffect, useState } from "preact/hooks";
import { bytes, count, seconds, short } from "../format.js";
import { html } from "../html.js";
import { Card, Empty, Fault, Table } from "../parts.js";
import { store } from "../store.js";

const FIGURES = [
  ["State", (query) => query.state_bytes, bytes],
  ["Rows of state", (query) => query.state_rows, count, (told) => told.state_rows],
  ["Rows looked up or stored", (query) => query.probed + query.inserted, count, (told, trial) => told.work * trial.ticks],
  ["Candidate pairs", (query) => query.matched, count],
  ["Operators, a batch", (query) => query.seconds, seconds, (told) => told.seconds],
  ["Results", (query) => query.results, count],
];
const COLUMNS = [
  { title: "Figure", show: (row) => row.title },
  { title: "Before", number: true, show: (row) => row.show(row.before) },
  { title: "After", number: true, show: (row) => row.show(row.after) },
  { title: "Times", number: true, show: (row) => (row.before ? short(row.after / row.before) : "–") },
];

// What the last trial of a change beside the job has found; asked for again with every batch.
export function Trial({ live, now }) {
  const [told, tell] = useState(null);
  const batch = live ? store.live?.batch : now;
  useEffect(() => {
    let wanted = true;
    store.trial().then(
      (trial) => wanted && tell({ trial }),
      (error) => wanted && tell({ error }),
    );
    return () => (wanted = false);
  }, [batch]);
  const trial = told?.trial;
  if (!trial) return html`<${Card} title="The last trial" note=${told ? "" : "Reading…"}>
    ${told?.error && html`<${Fault} error=${told.error} />`}
    ${told && !told.error && html`<${Empty}>Nothing was tried yet. A changed job file is tried beside this job by <code>midstream try CHECKPOINT JOB.toml</code>.<//>`}
  <//>`;
  const rows = Object.values(trial.rows).reduce((a, b) => a + b, 0);
  const parts = Object.keys(trial.before.seconds).map((part) => ({ title: `${part}, a batch`, show: seconds, before: trial.before.seconds[part], after: trial.after.seconds[part] }));
  return html`
    <${Card}
      title="The last trial"
      note=${`${count(trial.batches)} batches up to batch ${count(trial.batch)} with ${count(rows)} rows, run again on ${trial.on === "spark" ? "Spark" : "local threads"} without and with the change. Times are medians.`}
    >
      <${Table} label="Times of a batch" columns=${COLUMNS} rows=${[{ title: "Slots", show: count, before: trial.before.slots, after: trial.after.slots }, ...parts]} />
    <//>
    ${Object.keys(trial.after.queries).map((name) => html`<${Tried} key=${name} name=${name} trial=${trial} />`)}
    <${Card} title="Cost constants" note=${trial.factors ? "What plans were weighed by, and what operators took." : "Too few rows came to hold them against what they took."}>
      ${trial.factors &&
      html`<${Table}
        label="Cost constants"
        rows=${Object.entries(trial.constants)}
        columns=${[
          { title: "Constant", show: ([name]) => name },
          { title: "Used", number: true, show: ([, cost]) => count(cost.used) },
          { title: "Measured", number: true, show: ([, cost]) => count(cost.measured) },
        ]}
      />`}
    <//>
  `;
}

function Tried({ name, trial }) {
  const [before, after] = [trial.before.queries[name], trial.after.queries[name]];
  const told = trial.forecast[name];
  const rows = FIGURES.flatMap(([title, of, show, forecast]) => [
    { title, show, before: before ? of(before) : null, after: of(after) },
    ...(forecast ? [{ title: `${title}: forecast`, show, before: told.before ? forecast(told.before, trial) : null, after: forecast(told.after, trial) }] : []),
  ]);
  const found = trial.differences[name];
  const plan = before && before.plan === after.plan ? `By ${after.plan || "its only plan"}.` : `By ${after.plan || "its only plan"}${before ? `, before by ${before.plan || "its only plan"}` : ", not there before"}.`;
  return html`<${Card} title=${`Query ${name}`} note=${`${plan} ${found ? (found.equal ? "Results are the same." : `${found.reason}.`) : ""}`}>
    <${Table} label=${`Figures of query ${name}`} columns=${COLUMNS} rows=${rows} />
    ${["only_before", "only_after"].map(
      (side) => found?.[side]?.length > 0 && html`<p class="note below">Only ${side.slice(5)} the change: <code>${found[side].slice(0, 5).map((row) => JSON.stringify(row)).join(" ")}</code></p>`,
    )}
  <//>`;
}
