import { useEffect, useState } from "preact/hooks";
import { bytes, count, movingText, plural, short, span } from "../format.js";
import { html } from "../html.js";
import { Card, Choice, Empty, Fault, Pill, Table } from "../parts.js";
import { address, store } from "../store.js";

const STRATEGIES = ["auto", "moving_state", "moving_state_paced", "parallel_track", "genmig", "genmig_reference_point", "genmig_shortened"];

const ACTIONS = {
  migrate: { title: "Migrate", note: "Another plan for a query, while results keep flowing." },
  cancel: { title: "Cancel a migration", note: "Back to the plan before; nothing is lost or doubled." },
  add: { title: "Add a query", note: "It starts with the next batch." },
  drop: { title: "Drop a query", note: "Its state goes with the next batch, its results later." },
  adapt: { title: "Adaptivity", note: "Whether a query looks for better plans by itself." },
  rebalance: { title: "Rebalance", note: "Reassign partition groups to balance load." },
  cancel_rebalance: { title: "Cancel a move", note: "Groups under way stay in their slots; nothing is lost or doubled." },
  rescale: { title: "Rescale", note: "Another number of slots." },
  resume: { title: "Resume a query", note: "A query that a value has stopped goes on, without the rows that it missed." },
  stop: { title: "Stop", note: "Ends the job after the batch under way; a restart goes on." },
};

export function Actions({ job, query, settings, live }) {
  const { session, connection } = store;
  const [wanted, want] = useState({});
  const [state, be] = useState({ phase: "asking" });
  const name = ACTIONS[settings.get("do")] ? settings.get("do") : "migrate";
  useEffect(() => {
    want({});
    be({ phase: "asking" });
  }, [name, query?.name]);
  const request = requestOf(name, query, wanted, job);
  const act = async (dry_run) => {
    be({ phase: dry_run ? "foretelling" : "doing", forecast: state.forecast });
    try {
      const answer = await store.ask(request, { dry_run });
      be(dry_run ? { phase: "foretold", forecast: answer, request: JSON.stringify(request) } : { phase: "done", answer });
    } catch (error) {
      be({ phase: "refused", error: error.message ? error : { message: "the server cannot be reached" } });
    }
  };
  const change = (more) => {
    want((old) => ({ ...old, ...more }));
    be({ phase: "asking" });
  };
  const blocked = !live
    ? "Go back to now to act."
    : connection === "file"
      ? "This is a file: it cannot reach the job."
      : !session.may_act
        ? "To act, open the link that the command has printed: it carries the token."
        : !job.running
          ? "The job does not run: there is nobody to ask."
          : null;
  const ready = !blocked && request !== null;
  const foretold = state.phase === "foretold" && state.request === JSON.stringify(request);
  return html`
    <${Card} title="Actions" note="Every action first shows what it would do. Nothing happens before you confirm.">
      <div class="chips" role="navigation" aria-label="Actions">
        ${Object.entries(ACTIONS).map(
          ([key, each]) => html`<a class=${`chip ${key === name ? "on" : ""}`} aria-current=${key === name ? "true" : undefined} href=${address("actions", query?.name, { do: key })}>${each.title}</a>`,
        )}
      </div>
      ${blocked && html`<p class="blocked" role="status">${blocked}</p>`}
    <//>
    <${Card} title=${ACTIONS[name].title} note=${ACTIONS[name].note} id="card-action">
      <form
        onSubmit=${(event) => {
          event.preventDefault();
          act(!foretold);
        }}
      >
        <fieldset disabled=${Boolean(blocked) || state.phase === "foretelling" || state.phase === "doing"}>
          <legend class="hidden">${ACTIONS[name].title}</legend>
          <${Fields} name=${name} job=${job} query=${query} wanted=${wanted} change=${change} blocked=${blocked} />
          <div class="row">
            ${foretold
              ? html`<button class=${`primary ${["stop", "drop"].includes(name) ? "danger" : ""}`} disabled=${!ready}>${ACTIONS[name].title} now</button>
                  <button type="button" class="quiet" onClick=${() => be({ phase: "asking" })}>Not now</button>`
              : html`<button class="primary" disabled=${!ready}>${state.phase === "foretelling" ? "Asking the job…" : "Show what it would do"}</button>`}
          </div>
        </fieldset>
      </form>
      <div aria-live="polite">
        ${foretold && html`<${Forecast} name=${name} forecast=${state.forecast} query=${query} wanted=${wanted} change=${want} />`}
        ${state.phase === "refused" && html`<${Fault} error=${state.error} />`}
        ${state.phase === "doing" && html`<p class="note">The job answers between two batches…</p>`}
        ${state.phase === "done" && html`<p class="done" role="status">Done: the next batch shows it. <a href=${address("history")}>History</a></p>`}
      </div>
    <//>
  `;
}

function requestOf(name, query, wanted, job) {
  switch (name) {
    case "migrate":
      return query && wanted.plan
        ? { command: "migrate", query: query.name, plan: wanted.plan, strategy: wanted.strategy ?? "auto", part: wanted.part ?? "auto", ...(wanted.verify?.trim() ? { verify: wanted.verify.trim() } : {}) }
        : null;
    case "cancel":
    case "drop":
    case "resume":
      return query ? { command: name, query: query.name } : null;
    case "add":
      return wanted.query && wanted.cql ? { command: "add", query: wanted.query, cql: wanted.cql, adaptive: wanted.adaptive ?? "off" } : null;
    case "adapt":
      return query && wanted.mode ? { command: "adapt", query: query.name, mode: wanted.mode } : null;
    case "rescale":
      return wanted.slots ? { command: "rescale", slots: wanted.slots } : null;
    default:
      return { command: name };
  }
}

function Fields({ name, job, query, wanted, change, blocked }) {
  const choose = html`<${Choice}
    label="Query"
    value=${query?.name ?? ""}
    options=${job.queries.map((each) => [each.name, each.name])}
    onChange=${(value) => (location.hash = address("actions", value, { do: name }))}
  />`;
  switch (name) {
    case "migrate":
      return html`<div class="row">${choose}<${Plans} query=${query} wanted=${wanted} change=${change} blocked=${blocked} />
        <${Choice} label="Strategy" value=${wanted.strategy ?? "auto"} options=${STRATEGIES.map((each) => [each, each])} onChange=${(strategy) => change({ strategy })} />
        <${Choice} label="What migrates" value=${wanted.part ?? "auto"} options=${[["auto", "where the plans differ"], ["smallest", "the smallest part"], ["whole", "the whole plan"]]} onChange=${(part) => change({ part })} />
        <label class="choice"><span>Verify for</span><input name="verify" value=${wanted.verify ?? ""} placeholder="10 minutes" maxlength="100" autocomplete="off" spellcheck="false" onInput=${(event) => change({ verify: event.target.value })} /></label>
      </div>`;
    case "cancel":
      return html`<div class="row">${choose}</div>
        <p class="note">${query?.migration ? html`Going over to <code>${query.migration.new_plan}</code> since batch ${query.migration.start_batch}.` : "This query is not migrating."}</p>`;
    case "drop":
      return html`<div class="row">${choose}</div>`;
    case "resume":
      return html`<div class="row">${choose}</div>
        <p class="note">${query?.quarantine ? `Stopped in batch ${query.quarantine.batch}: ${query.quarantine.reason}` : "This query is not in quarantine."}</p>`;
    case "add":
      return html`<div class="row">
          <label class="choice"><span>Name</span><input name="query" value=${wanted.query ?? ""} pattern="[A-Za-z_][A-Za-z0-9_\\-]*" maxlength="200" autocomplete="off" spellcheck="false" onInput=${(event) => change({ query: event.target.value })} /></label>
          <${Choice} label="Adapts" value=${wanted.adaptive ?? "off"} options=${["off", "suggest", "auto"].map((each) => [each, each])} onChange=${(adaptive) => change({ adaptive })} />
        </div>
        <label class="choice wide"><span>CQL</span><textarea rows="5" spellcheck="false" value=${wanted.cql ?? ""} placeholder="SELECT … FROM stream [RANGE 10 MINUTES] …" onInput=${(event) => change({ cql: event.target.value })}></textarea></label>`;
    case "adapt":
      return html`<div class="row">${choose}
        <${Choice} label="Mode" value=${wanted.mode ?? ""} options=${[["", "choose…"], ["off", "off: keep its plan"], ["suggest", "suggest: only say so"], ["auto", "auto: migrate by itself"]]} onChange=${(mode) => change({ mode })} />
        <p class="note">Now ${query?.adaptivity.mode}.</p></div>`;
    case "cancel_rebalance":
      return html`<p class="note">${job.slots?.moving ? movingText(job.slots.moving) : "No group is under way."}</p>`;
    case "rescale":
      return html`<div class="row"><label class="choice"><span>Slots</span><input type="number" min="1" max="256" value=${wanted.slots ?? ""} onInput=${(event) => change({ slots: Number.parseInt(event.target.value, 10) || null })} /></label>
        <p class="note">Now ${job.slots?.count}.</p></div>`;
    default:
      return null;
  }
}

const costOf = (cost, time) => (time === "timestamp" ? `${short(cost * 1e6)} a second` : `${short(cost)} a tick`);

// The plans that the job's optimizer offers, the cheapest first; any other can be written down.
function Plans({ query, wanted, change, blocked }) {
  const [offered, offer] = useState(null);
  const [own, write] = useState(false);
  useEffect(() => {
    offer(null);
    if (!query || blocked) return;
    let current = true;
    store.ask({ command: "plans", query: query.name }).then(
      (answer) => current && offer(answer.plans),
      () => current && offer([]),
    );
    return () => (current = false);
  }, [query?.name, query?.plan, Boolean(blocked)]);
  const others = (offered ?? []).filter((each) => !each.running);
  if (own || (offered && !others.length))
    return html`<label class="choice"><span>Plan</span><input value=${wanted.plan ?? ""} placeholder="((A B) C)" spellcheck="false" maxlength="10000" onInput=${(event) => change({ plan: event.target.value })} /></label>`;
  return html`<${Choice}
    label="Plan"
    value=${wanted.plan ?? ""}
    options=${[
      ["", offered === null ? (blocked ? "–" : "asking the optimizer…") : "choose…"],
      ...others.map((each) => [each.plan, each.cost === null ? each.plan : `${each.plan}, costs ${costOf(each.cost, query.time)}`]),
      ["other", "another…"],
    ]}
    onChange=${(plan) => (plan === "other" ? (write(true), change({ plan: "" })) : change({ plan }))}
  />`;
}

function Forecast({ name, forecast, query }) {
  const time = query?.time ?? "integer";
  switch (name) {
    case "migrate":
      return html`<div class="foretold">
        <p class="plans"><code>${forecast.from}</code> → <code>${forecast.to}</code> ${forecast.part && html`<span class="note">only ${forecast.part}</span>`}</p>
        ${!forecast.observed && html`<p class="note">The query's streams are not watched, so these figures are rough. Adaptivity makes them better.</p>`}
        <${Table}
          label="What each strategy would take"
          rows=${forecast.strategies}
          columns=${[
            { title: "Strategy", show: (s) => html`${s.strategy} ${s.strategy === forecast.strategy ? html`<${Pill} kind="new">auto chooses<//>` : ""}` },
            { title: "Application time", number: true, show: (s) => (s.legal ? span(s.duration, time) : "") },
            { title: "Rows of work", number: true, show: (s) => (s.legal ? count(Math.round(s.work)) : "") },
            { title: "Rows held", number: true, show: (s) => (s.legal ? count(Math.round(s.rows)) : "") },
            { title: "Silence", number: true, show: (s) => (s.legal ? span(s.silence, time) : "") },
            { title: "", show: (s) => (s.legal ? html`<${Pill} kind="good">legal<//>` : html`<span class="note">${s.why}</span>`) },
          ]}
        />
      </div>`;
    case "cancel":
      return html`<p class="foretold">${forecast.query} would stay with <code>${forecast.plan}</code>, not <code>${forecast.cancelled}</code>.</p>`;
    case "add":
      return html`<div class="foretold">
        <p>It would run by <code>${forecast.plan || "its only plan"}</code> and give ${forecast.columns.map(([column, type]) => html`<code>${column} ${type}</code> `)}</p>
        ${forecast.warnings.map((warning) => html`<p class="blocked">${warning}</p>`)}
        <pre>${forecast.operators}</pre>
      </div>`;
    case "drop":
      return html`<p class="foretold">${bytes(forecast.state_bytes)} of state (${plural(forecast.state_rows, "row")}) and ${plural(forecast.results, "result")} would go.</p>`;
    case "cancel_rebalance":
      return html`<p class="foretold">${forecast.cancelled ? `${plural(forecast.cancelled.groups + forecast.cancelled.queued, "group")} would stay in their slots.` : "The move that waits would not begin."}</p>`;
    case "rebalance":
    case "rescale":
      return html`<p class="foretold">
        ${forecast.changes
          ? html`${plural(forecast.groups, "group")} would move with about ${bytes(forecast.state_bytes)} of state;
              the fullest slot would have ${short(forecast.skew[1])} times the mean instead of ${short(forecast.skew[0])}.
              ${forecast.waits ? " It would wait for the migration under way." : ""}`
          : "Nothing would change."}
      </p>`;
    case "adapt":
      return html`<p class="foretold">Adaptivity of ${forecast.query} would go from ${forecast.from} to ${forecast.to}.</p>`;
    case "resume":
      return html`<p class="foretold">${forecast.query} would go on without the rows of ${plural(forecast.missed, "batch", "batches")} since batch ${forecast.since}, as if they had never come for it.</p>`;
    case "stop":
      return html`<p class="foretold">The job would end after the batch under way, the last done is ${forecast.batch}. ${plural(forecast.queries.length, "query", "queries")} would pause.</p>`;
    default:
      return html`<${Empty}>–<//>`;
  }
}
