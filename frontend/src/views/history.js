import { span } from "../format.js";
import { html } from "../html.js";
import { Card, Empty, Pill } from "../parts.js";
import { address } from "../store.js";

function changes(job) {
  const found = [];
  for (const query of job.queries) {
    for (const past of [...query.history, query.migration].filter(Boolean)) {
      const started = past.status === "started";
      const fault = { quarantined: "bad", resumed: "good" }[past.status];
      if (fault) {
        found.push({
          batch: past.end_batch ?? past.start_batch,
          kind: "fault",
          pill: fault,
          title: past.status === "resumed" ? `${query.name} was resumed` : `${query.name} was stopped by a value`,
          link: address("plan", query.name),
          plans: [],
          text: past.status === "resumed" ? `without the rows since batch ${past.start_batch}` : "",
          why: past.trigger,
        });
        continue;
      }
      found.push({
        batch: past.start_batch ?? job.batch,
        kind: started ? "start" : "migration",
        pill: started ? "good" : past.status === "cancelled" ? "old" : "new",
        title: started ? `${query.name} started` : `${query.name} ${past.status === "done" ? "changed its plan" : past.status}`,
        link: address(started ? "plan" : "migration", query.name),
        plans: started ? [past.new_plan] : [past.old_plan, past.new_plan],
        text: [
          past.strategy,
          past.end_batch !== null && past.end_batch !== past.start_batch ? `until batch ${past.end_batch}` : "",
          past.actual ? `took ${span(past.actual.duration, query.time)}` : "",
          past.note,
        ]
          .filter(Boolean)
          .join(", "),
        why: started ? "" : past.trigger,
      });
    }
  }
  for (const move of job.slots?.moves ?? [])
    found.push({
      batch: move.batch,
      kind: "move",
      pill: "move",
      title: move.record.slots?.[0] === move.record.slots?.[1] ? `${move.record.groups} groups moved` : `from ${move.record.slots[0]} to ${move.record.slots[1]} slots`,
      link: address("slots"),
      plans: [],
      text: "",
      why: move.trigger,
    });
  for (const request of job.requests)
    found.push({
      batch: request.batch ?? job.batch + 1,
      kind: "request",
      pill: request.status === "refused" ? "bad" : request.status === "done" ? "plain" : "old",
      title: `${request.command || "a request"} ${request.status}`,
      link: address("history"),
      plans: [],
      text: Object.entries(request.about).map(([name, value]) => `${name} ${value}`).join(", "),
      why: request.refused ?? "",
    });
  return found.sort((a, b) => b.batch - a.batch);
}

export function History({ job, settings }) {
  const kind = settings.get("kind") ?? "";
  const all = changes(job);
  const shown = kind ? all.filter((change) => change.kind === kind) : all;
  return html`<${Card}
    title="History"
    note="Every change of the job that the checkpoint remembers, newest first."
    actions=${["", "migration", "move", "request", "start", "fault"].map(
      (each) => html`<a class=${`chip ${each === kind ? "on" : ""}`} aria-current=${each === kind ? "true" : undefined} href=${address("history", "", { kind: each || null })}>${each || "all"}</a>`,
    )}
  >
    ${shown.length
      ? html`<ol class="timeline">
          ${shown.map(
            (change, i) => html`<li key=${i} class=${change.pill}>
              <a class="when" href=${address("time", "", { batch: change.batch })}>batch ${change.batch}</a>
              <div>
                <p><a href=${change.link}><strong>${change.title}</strong></a> <${Pill} kind=${change.pill}>${change.kind}<//></p>
                ${change.plans.length > 0 && html`<p class="plans">${change.plans.map((plan, j) => html`${j ? " → " : ""}<code>${plan || "without joins"}</code>`)}</p>`}
                ${change.text && html`<p class="note">${change.text}</p>`} ${change.why && html`<p class="note">${change.why}</p>`}
              </div>
            </li>`,
          )}
        </ol>`
      : html`<${Empty}>Nothing has changed yet.<//>`}
  <//>`;
}
