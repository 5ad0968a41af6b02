import { bytes, count, movingText, percent, plural } from "../format.js";
import { html } from "../html.js";
import { Bar, Card, Empty, Pill, Table } from "../parts.js";
import { address } from "../store.js";

export function Slots({ job }) {
  if (!job.slots) return html`<${Empty}>How groups lay at that batch is no longer known.<//>`;
  const { count: slots, routing, loads, moves, moving } = job.slots;
  const groups = routing.map((slot, group) => ({ slot, group, load: loads[group] ?? 0 }));
  const busiest = Math.max(...loads, 1e-9);
  const each = Array.from({ length: slots }, (_, slot) => {
    const own = groups.filter((group) => group.slot === slot);
    return { slot, own, load: own.reduce((sum, group) => sum + group.load, 0), bytes: job.slots.bytes[slot] ?? 0 };
  });
  const all = each.reduce((sum, slot) => sum + slot.load, 0);
  const most = Math.max(...each.map((slot) => slot.load), 1e-9);
  const skew = all ? (most * slots) / all : 1;
  return html`
    <${Card}
      title="Slots and partition groups"
      note=${`Each cell is a group of keys; the darker, the more rows came lately. ${
        slots > 1 ? `The fullest slot has ${skew.toFixed(2)} times the mean.` : "The job has one slot."
      }`}
      actions=${html`<a class="button quiet" href=${address("actions", "", { do: "rebalance" })}>Rebalance…</a>
        <a class="button quiet" href=${address("actions", "", { do: "rescale" })}>Rescale…</a>`}
    >
      <div class="heatmap">
        ${each.map(
          (slot) => html`<div class="slot" key=${slot.slot}>
            <div class="slot-head">
              <strong>Slot ${slot.slot}</strong>
              <span>${plural(slot.own.length, "group")}</span>
              <${Bar} part=${slot.load / most} kind=${slot.load * slots > 1.5 * all ? "bad" : ""} />
              <span class="tabular">${percent(all ? slot.load / all : null)} of rows</span>
              <span class="tabular">${bytes(slot.bytes)}</span>
            </div>
            <div class="cells" role="img" aria-label=${`Slot ${slot.slot} has ${slot.own.length} groups and ${count(Math.round(slot.load))} recent rows`}>
              ${slot.own.map(
                (group) =>
                  html`<i
                    key=${group.group}
                    title=${`group ${group.group}: ${count(group.load)} rows lately`}
                    style=${{ opacity: 0.08 + 0.92 * Math.sqrt(group.load / busiest) }}
                  ></i>`,
              )}
            </div>
          </div>`,
        )}
      </div>
    <//>
    ${moving &&
    html`<${Card}
      title="Moving now"
      note=${movingText(moving)}
      actions=${html`<a class="button quiet" href=${address("actions", "", { do: "cancel_rebalance" })}>Cancel…</a>`}
    >
      <p>${moving.trigger}</p>
    <//>`}
    <${Card} title="Plans by slot">
      <${Table}
        label="Plans by slot"
        rows=${job.queries}
        columns=${[
          { title: "Query", show: (q) => html`<a href=${address("plan", q.name)}>${q.name}</a>` },
          { title: "Slots run", show: (q) => html`<code>${q.plans || q.plan || "without joins"}</code>` },
          { title: "Going over to", show: (q) => (q.migration ? html`<code>${q.migration.new_plan}</code>` : "–") },
        ]}
      />
    <//>
    <${Card} title="Moves" note="Groups that went to other slots, their state with them.">
      <${Table}
        label="Moves"
        empty="No group has moved yet."
        rows=${[...moves].reverse()}
        columns=${[
          { title: "Batch", number: true, show: (m) => m.batch },
          { title: "Groups", number: true, show: (m) => count(m.record.groups) },
          { title: "Rows sent", number: true, show: (m) => count(m.record.rows_sent) },
          {
            title: "Slots",
            show: (m) =>
              m.record.slots?.[0] === m.record.slots?.[1]
                ? m.record.slots?.[0]
                : html`<${Pill} kind="move">${m.record.slots[0]} → ${m.record.slots[1]}<//>`,
          },
          { title: "Why", show: (m) => m.trigger },
        ]}
      />
    <//>
  `;
}
