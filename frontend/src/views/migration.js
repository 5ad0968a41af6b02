import { count, instant, percent, span } from "../format.js";
import { PlanGraph } from "../graph.js";
import { html } from "../html.js";
import { Bar, Card, Empty, Pill, Stat, Table } from "../parts.js";
import { address, set } from "../store.js";

// How far a migration is: of one with a split time, how near that is; null where nobody can say.
export function progressOf(query) {
  const move = query.migration;
  if (!move) return null;
  const [from, now] = [move.actual?.started_at, query.advanced_to ?? move.actual?.ended_at];
  if (move.split_time === null || from === null || from === undefined || now === null || now === undefined) return null;
  if (move.split_time <= from) return 1;
  return Math.max(0, Math.min(1, (now - from) / (move.split_time - from)));
}

export function Migration({ job, query, settings, live, inflow }) {
  if (!query) return html`<${Empty}>The job has no queries.<//>`;
  const move = query.migration;
  const past = [...query.history].filter((each) => each.new_plan && each.status !== "started").reverse();
  return html`
    ${move ? html`<${UnderWay} job=${job} query=${query} move=${move} settings=${settings} live=${live} inflow=${inflow} />` : null}
    ${!move && past.length
      ? html`<${Card} title=${`Last migration of ${query.name}`} note=${past[0].trigger}>
          <p class="plans"><code>${past[0].old_plan}</code> <span>→</span> <code>${past[0].new_plan}</code></p>
          <${Compared} move=${past[0]} time=${query.time} />
        <//>`
      : null}
    ${!move && !past.length
      ? html`<${Card} title=${`Migrations of ${query.name}`}>
          <${Empty}
            >This query has run by one plan so far. When it changes, the old and the new plan are shown here side by side
            while results keep flowing.<//
          >
          <p><a class="button" href=${address("actions", query.name, { do: "migrate" })}>Try another plan</a></p>
        <//>`
      : null}
    <${Card} title="Migrations so far" id="card-migrations">
      <${Table}
        label="Migrations so far"
        empty="None yet."
        rows=${past}
        columns=${[
          { title: "Batches", show: (m) => `${m.start_batch ?? "–"} to ${m.end_batch ?? "–"}` },
          { title: "From", show: (m) => html`<code>${m.old_plan}</code>` },
          { title: "To", show: (m) => html`<code>${m.new_plan}</code>` },
          { title: "Strategy", show: (m) => m.strategy },
          { title: "Took", number: true, show: (m) => span(m.actual?.duration ?? null, query.time) },
          { title: "Outcome", show: (m) => html`<${Pill} kind=${m.status === "done" ? "good" : "old"}>${m.status}<//>` },
        ]}
      />
    <//>
  `;
}

function UnderWay({ job, query, move, settings, live, inflow }) {
  const part = progressOf(query);
  const shared = new Set(query.graph.nodes.map((node) => node.content));
  const target = move.target ?? { nodes: [], complete: false };
  const fresh = new Set(target.nodes.map((node) => node.content));
  const common = target.nodes.filter((node) => shared.has(node.content)).length;
  const chosen = settings.get("node");
  const choose = (id) => set({ node: id === chosen ? null : id });
  return html`
    <${Card}
      title=${`${query.name} is changing its plan`}
      note=${move.trigger}
      class="migrating"
      actions=${html`<a class="button quiet" href=${address("actions", query.name, { do: "cancel" })}>Cancel…</a>`}
    >
      <${Progress} query=${query} move=${move} part=${part} />
      <div class="sides">
        <section class="side old" aria-label="The old plan">
          <h3><${Pill} kind="old">old<//> <code>${query.plan}</code></h3>
          <${PlanGraph}
            graph=${query.graph}
            metric="state"
            chosen=${chosen}
            onChoose=${choose}
            flowing=${live && job.running}
            inflow=${inflow}
            marked=${(node) => (fresh.has(node.content) ? "shared" : "old")}
            label="Operators of the old plan"
          />
        </section>
        <section class="side new" aria-label="The new plan">
          <h3><${Pill} kind="new">new<//> <code>${move.new_plan}</code></h3>
          <${PlanGraph}
            graph=${target}
            metric="state"
            chosen=${chosen}
            onChoose=${choose}
            flowing=${live && job.running}
            inflow=${inflow}
            marked=${(node) => (shared.has(node.content) ? "shared" : "new")}
            label="Operators of the new plan"
          />
        </section>
      </div>
      <p class="key">
        <span class="swatch shared" aria-hidden="true"></span>shared by both (${common})
        <span class="swatch old" aria-hidden="true"></span>only in the old plan
        <span class="swatch new" aria-hidden="true"></span>only in the new plan; figures are bytes of state
      </p>
    <//>
    <${Card} title="Forecast and actual" note=${`Strategy ${move.strategy}${move.part ? `, only ${move.part}` : ""}.`}>
      <${Compared} move=${move} time=${query.time} />
      ${move.forecasts.length > 1 &&
      html`<h3>What other strategies were predicted to take</h3>
        <${Forecasts} forecasts=${move.forecasts} chosen=${move.strategy} time=${query.time} />`}
    <//>
  `;
}

function Progress({ query, move, part }) {
  const from = move.actual?.started_at;
  if (move.split_time === null)
    return html`<dl class="stats">
      <${Stat} label="State moving" value=${count(move.actual?.peak_extra_rows)} note="rows held for the new plan" kind="new" />
      <${Stat} label="Batches" value=${count(move.actual?.batches)} note=${move.status} />
    </dl>`;
  const left = Math.max(0, move.split_time - (query.advanced_to ?? from ?? move.split_time));
  return html`<div class="split">
    <div class="split-bar" role="progressbar" aria-label="Split time approaching" aria-valuemin="0" aria-valuemax="100" aria-valuenow=${part === null ? undefined : Math.round(part * 100)}>
      <span class="old" style=${{ width: `${(part ?? 0) * 100}%` }}></span>
    </div>
    <div class="split-ends">
      <span>began at <b>${instant(from, query.time)}</b></span>
      <span class="middle">${
        part === null
          ? "waiting for the first batch"
          : part < 1
            ? html`<b>${percent(part)}</b> of the way; the split time is <b>${span(left, query.time)}</b> ahead, results still come from the old plan`
            : html`the split time has passed: <b>results come from the new plan</b>, the old one ends when it has given all`
      }</span>
      <span>split at <b>${instant(move.split_time, query.time)}</b></span>
    </div>
  </div>`;
}

const MEASURES = [
  ["Application time", "duration", (m) => m.actual?.duration, (v, time) => span(v, time)],
  ["Work", "work", (m) => m.actual?.processed_twice, (v) => `${count(Math.round(v))} rows`],
  ["Held besides", "rows", (m) => m.actual?.peak_extra_rows, (v) => `${count(Math.round(v))} rows`],
  ["Longest silence", "silence", (m) => m.actual?.longest_silence, (v, time) => span(v, time)],
];

export function Compared({ move, time }) {
  return html`<div class="table-wrap"><table class="compared">
    <caption class="hidden">Forecast and actual figures of the migration</caption>
    <thead>
      <tr><th scope="col">Measure</th><th scope="col" class="number">Forecast</th><th scope="col" class="number">Actual</th><th scope="col"><span class="hidden">As bars</span></th></tr>
    </thead>
    <tbody>
      ${MEASURES.map(([title, name, actualOf, show]) => {
        const told = move.forecast?.[name] ?? null;
        const actual = actualOf(move) ?? null;
        const most = Math.max(told ?? 0, actual ?? 0, 1e-9);
        return html`<tr key=${name}>
          <th scope="row">${title}</th>
          <td class="number">${told === null ? "–" : show(told, time)}</td>
          <td class="number">${actual === null ? "–" : show(actual, time)}</td>
          <td class="bars"><${Bar} part=${(told ?? 0) / most} kind="forecast" /><${Bar} part=${(actual ?? 0) / most} kind="new" /></td>
        </tr>`;
      })}
    </tbody>
  </table></div>`;
}

export function Forecasts({ forecasts, chosen, time }) {
  return html`<${Table}
    label="Forecasts by strategy"
    rows=${forecasts}
    columns=${[
      { title: "Strategy", show: (f) => html`${f.strategy} ${f.strategy === chosen ? html`<${Pill} kind="new">chosen<//>` : ""}` },
      { title: "Application time", number: true, show: (f) => span(f.duration, time) },
      { title: "Rows of work", number: true, show: (f) => count(Math.round(f.work)) },
      { title: "Rows held", number: true, show: (f) => count(Math.round(f.rows)) },
      { title: "Silence", number: true, show: (f) => span(f.silence, time) },
    ]}
  />`;
}
