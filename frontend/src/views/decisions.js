import { instant, plural, short } from "../format.js";
import { html } from "../html.js";
import { Bar, Card, Empty, Pill, Table } from "../parts.js";
import { address } from "../store.js";

const KINDS = { migrate: "new", rollback: "old", suggest: "suggest", wait: "suggest", stay: "plain" };

export function Decisions({ query }) {
  if (!query) return html`<${Empty}>The job has no queries.<//>`;
  const { mode, decisions, alternatives, statistics } = query.adaptivity;
  const newest = [...decisions].reverse();
  const now = newest[0];
  const most = Math.max(now?.cost ?? 0, now?.target_cost ?? 0, 1e-9);
  const streams = Object.entries(statistics.streams ?? {});
  const per = query.time === "timestamp" ? 1e6 : 1;
  const unit = query.time === "timestamp" ? "a second" : "a tick";
  return html`
    <${Card}
      title=${`Why ${query.name} runs as it does`}
      note=${mode === "off" ? "Adaptivity is off: other plans are not weighed." : now ? now.reason : "Nothing has been decided yet."}
      actions=${html`<${Pill} kind=${mode}>${mode}<//>
        <a class="button quiet" href=${address("actions", query.name, { do: "adapt" })}>Change…</a>`}
    >
      ${now &&
      html`<div class="table-wrap"><table class="compared">
        <caption class="hidden">Costs of the running plan and of the best known</caption>
        <tbody>
          <tr>
            <th scope="row">Running <code>${now.plan}</code></th>
            <td class="number">${short(now.cost * per)} ${unit}</td>
            <td class="bars"><${Bar} part=${now.cost / most} kind="old" /></td>
          </tr>
          <tr>
            <th scope="row">Best known <code>${now.target}</code></th>
            <td class="number">${short(now.target_cost * per)} ${unit}</td>
            <td class="bars"><${Bar} part=${now.target_cost / most} kind="new" /></td>
          </tr>
          <tr>
            <th scope="row">A migration costs</th>
            <td class="number">${short(now.migration_cost)} once</td>
            <td class="note">evidence so far ${short(now.evidence)}</td>
          </tr>
        </tbody>
      </table></div>`}
    <//>
    <div class="two">
      <${Card} title="Alternatives" note="Plans that have been better lately, and by how much in all.">
        <${Table}
          label="Alternatives"
          empty="No other plan has been better lately."
          rows=${alternatives}
          columns=${[
            { title: "Plan", show: (a) => html`<code>${a.plan}</code>` },
            { title: "Gained", number: true, show: (a) => short(a.gained) },
            { title: "Looks", number: true, show: (a) => a.looks },
          ]}
        />
      <//>
      <${Card} title="What is known" note="Measured on samples while the query runs.">
        <${Table}
          label="What is known of the streams"
          empty="Nothing is measured while adaptivity is off."
          rows=${streams}
          columns=${[
            { title: "Stream", show: ([alias]) => alias },
            { title: `Rows ${unit}`, number: true, show: ([, s]) => short(s.rate * per) },
            { title: "In the window", number: true, show: ([, s]) => short(s.population) },
          ]}
        />
        <${Table}
          label="Selectivities"
          empty=""
          rows=${Object.entries(statistics.selectivities ?? {})}
          columns=${[
            { title: "Condition", show: ([text]) => html`<code>${text}</code>` },
            { title: "Selectivity", number: true, show: ([, s]) => short(s.value) },
          ]}
        />
      <//>
    </div>
    <${Card} title="Decisions" note=${`${plural(decisions.length, "decision")} that the checkpoint remembers, newest first.`}>
      <ol class="feed">
        ${newest.map(
          (decision, i) => html`<li key=${i}>
            <div class="feed-head">
              <${Pill} kind=${KINDS[decision.action]}>${decision.action}<//>
              <span class="tabular">at ${instant(decision.moment, query.time)}</span>
              <code>${decision.plan}</code>${decision.target !== decision.plan && html`<span>→ <code>${decision.target}</code></span>`}
            </div>
            <p>${decision.reason}</p>
          </li>`,
        )}
      </ol>
      ${!newest.length && html`<${Empty}>None yet.<//>`}
    <//>
  `;
}
