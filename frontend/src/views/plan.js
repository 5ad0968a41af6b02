import { bytes, count, percent, seconds } from "../format.js";
import { METRICS, PlanGraph, kindOf, topFive } from "../graph.js";
import { html } from "../html.js";
import { Bar, Card, Choice, Empty, Table } from "../parts.js";
import { address, set } from "../store.js";

export function Plan({ job, query, settings, live, inflow }) {
  if (!query) return html`<${Empty}>The job has no queries.<//>`;
  const metric = METRICS[settings.get("metric")] ? settings.get("metric") : "time";
  const chosen = settings.get("node");
  const focus = settings.get("focus");
  const all = settings.get("all") === "1";
  const nodes = query.graph.nodes;
  const node = nodes.find((each) => each.id === chosen);
  const top = topFive(nodes, metric);
  const most = top[0]?.value ?? 1;
  return html`
    <${Card}
      title=${`Plan of ${query.name}`}
      note=${html`<code class="plan">${query.plans || query.plan || "without joins"}</code>${query.graph.complete
          ? ""
          : " Only the join tree of this plan is known."}`}
      actions=${html`
        <${Choice}
          label="Colour by"
          value=${metric}
          options=${Object.entries(METRICS).map(([key, each]) => [key, each.title])}
          onChange=${(value) => set({ metric: value })}
        />
        ${nodes.length > 60 &&
        html`<button class="quiet" onClick=${() => set({ all: all ? null : "1", focus: null })}>
          ${all ? "Fold" : `Show all ${nodes.length}`}
        </button>`}
        ${focus && html`<button class="quiet" onClick=${() => set({ focus: null })}>Back to the result</button>`}
      `}
    >
      ${nodes.length
        ? html`<${PlanGraph}
            graph=${query.graph}
            metric=${metric}
            chosen=${chosen}
            focus=${focus}
            all=${all}
            flowing=${live && job.running}
            inflow=${inflow}
            label=${`Operators of ${query.name}; choose one for its figures, arrow keys move between them`}
            onChoose=${(id) => set({ node: id === chosen ? null : id })}
            onFocus=${(id) => set({ focus: id })}
          />`
        : html`<${Empty}>Nothing is known of this plan's operators.<//>`}
      <details class="cql">
        <summary>The query</summary>
        <pre>${query.cql || "not known"}</pre>
      </details>
    <//>
    <div class="two">
      <${Card} title=${`Top five by ${METRICS[metric].title.toLowerCase()}`} note="In the last batch.">
        ${top.length
          ? html`<ol class="topfive">
              ${top.map(
                ({ node: each, value }) => html`<li key=${each.id}>
                  <a href=${address("plan", query.name, { metric, node: each.id })}>${kindOf(each)}</a>
                  <span class="label">${each.label}</span>
                  <${Bar} part=${value / most} />
                  <b>${METRICS[metric].show(value)}</b>
                </li>`,
              )}
            </ol>`
          : html`<${Empty}>No operator did anything in the last batch.<//>`}
      <//>
      ${node
        ? html`<${Card} title=${kindOf(node)} note=${node.label} id="card-operator">
            <dl class="facts">
              <div><dt>Stage</dt><dd>${node.stage}</dd></div>
              ${node.figures
                ? html`<div><dt>Rows in</dt><dd>${count(node.figures.rows_in)}</dd></div>
                    <div><dt>Rows out</dt><dd>${count(node.figures.rows_out)}</dd></div>
                    <div>
                      <dt>Selectivity</dt>
                      <dd>${node.figures.rows_in ? percent(node.figures.rows_out / node.figures.rows_in) : "–"}</dd>
                    </div>
                    <div><dt>Time</dt><dd>${seconds(node.figures.seconds)}</dd></div>
                    <div><dt>State</dt><dd>${count(node.figures.state_rows)} rows, ${bytes(node.figures.state_bytes)}</dd></div>`
                : html`<div><dt>Figures</dt><dd>none for this operator</dd></div>`}
            </dl>
            ${nodes.length > 60 && html`<button onClick=${() => set({ focus: node.id })}>Show what feeds it</button>`}
          <//>`
        : html`<${Card} title="States" note="What the plan remembers, over all slots.">
            <${Table}
              label="States"
              empty="The plan keeps no state, or it is not known."
              rows=${query.states}
              columns=${[
                { title: "What it holds", show: (s) => html`<code class="state" title=${s.state}>${s.state}</code>` },
                { title: "Key", show: (s) => s.key.join(", ") },
                { title: "Rows", number: true, show: (s) => count(s.rows) },
                { title: "Size", number: true, show: (s) => bytes(s.bytes) },
              ]}
            />
          <//>`}
    </div>
  `;
}
