import { useEffect, useState } from "preact/hooks";
import { count, movingText, plural, range, short, span } from "../format.js";
import { html } from "../html.js";
import { Card, Choice, Fault, Pill, Table } from "../parts.js";
import { address, store } from "../store.js";

export function Actions({ job, query, settings, live }) {
  const { session, connection } = store;
  const [wanted, want] = useState({});
  const [state, be] = useState({ phase: "asking" });
  const commands = session.commands ?? [];
  const chosen = commands.find((each) => each.command === settings.get("do")) ?? commands.find((each) => each.command === "migrate");
  const name = chosen?.command;
  useEffect(() => {
    want({});
    be({ phase: "asking" });
  }, [name, query?.name]);
  const request = chosen ? requestOf(chosen, query, wanted) : null;
  const act = async (dry_run) => {
    be({ phase: dry_run ? "foretelling" : "doing", forecast: state.forecast });
    try {
      const answer = await store.ask(request, { dry_run });
      be(dry_run ? { phase: "foretold", forecast: answer, request: JSON.stringify(request) } : { phase: "done" });
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
        ${commands.map(
          (each) => html`<a class=${`chip ${each === chosen ? "on" : ""}`} aria-current=${each === chosen ? "true" : undefined} href=${address("actions", query?.name, { do: each.command })}>${each.title}</a>`,
        )}
      </div>
      ${blocked && html`<p class="blocked" role="status">${blocked}</p>`}
    <//>
    ${chosen && html`<${Card} title=${chosen.title} note=${chosen.note} id="card-action">
      <form
        onSubmit=${(event) => {
          event.preventDefault();
          act(!foretold);
        }}
      >
        <fieldset disabled=${Boolean(blocked) || state.phase === "foretelling" || state.phase === "doing"}>
          <legend class="hidden">${chosen.title}</legend>
          <div class="row">${chosen.fields.map((field) => html`<${Input} key=${`${name} ${field.name}`} field=${field} command=${name} job=${job} query=${query} wanted=${wanted} change=${change} blocked=${blocked} />`)}</div>
          <${Now} name=${name} job=${job} query=${query} />
          <div class="row">
            ${foretold
              ? html`<button class=${`primary ${["stop", "drop"].includes(name) ? "danger" : ""}`} disabled=${!ready}>${chosen.title} now</button>
                  <button type="button" class="quiet" onClick=${() => be({ phase: "asking" })}>Not now</button>`
              : html`<button class="primary" disabled=${!ready}>${state.phase === "foretelling" ? "Asking the job…" : "Show what it would do"}</button>`}
          </div>
        </fieldset>
      </form>
      <div aria-live="polite">
        ${foretold && html`<${Forecast} name=${name} forecast=${state.forecast} query=${query} />`}
        ${state.phase === "refused" && html`<${Fault} error=${state.error} />`}
        ${state.phase === "doing" && html`<p class="note">The job answers between two batches…</p>`}
        ${state.phase === "done" && html`<p class="done" role="status">Done: the next batch shows it. <a href=${address("history")}>History</a></p>`}
      </div>
    <//>`}
  `;
}

// What the job is asked: the fields that were filled in; null while one is missing that it needs.
function requestOf(command, query, wanted) {
  const request = { command: command.command };
  for (const { name, kind, required, initial } of command.fields) {
    const value = kind === "query" ? query?.name : (wanted[name] ?? initial);
    const given = value !== null && value !== undefined && String(value).trim() !== "";
    if (given) request[name] = value;
    else if (required) return null;
  }
  return request;
}

const LABELS = { cql: "CQL", name: "Name" };

// One field of a command, as what it holds asks for.
function Input({ field, command, job, query, wanted, change, blocked }) {
  const { name, kind, choices, initial, help } = field;
  const label = LABELS[kind] ?? name[0].toUpperCase() + name.slice(1);
  const value = wanted[name] ?? initial ?? "";
  const set = (event) => change({ [name]: event.target.value });
  if (kind === "query")
    return html`<${Choice} label="Query" value=${query?.name ?? ""} options=${job.queries.map((each) => [each.name, each.name])} onChange=${(chosen) => (location.hash = address("actions", chosen, { do: command }))} />`;
  if (kind === "plan") return html`<${Plans} query=${query} wanted=${wanted} change=${change} blocked=${blocked} />`;
  if (choices)
    return html`<${Choice} label=${label} value=${value} options=${[...(initial === null ? [["", "choose…"]] : []), ...choices.map((each) => [each, each])]} onChange=${(chosen) => change({ [name]: chosen })} />`;
  if (kind === "number")
    return html`<label class="choice" title=${help}><span>${label}</span><input name=${name} type="number" min="1" value=${value} onInput=${(event) => change({ [name]: Number.parseInt(event.target.value, 10) || null })} /></label>`;
  if (kind === "cql" || kind === "links")
    return html`<label class="choice wide" title=${help}><span>${label}</span><textarea name=${name} rows="5" spellcheck="false" value=${value} placeholder=${kind === "cql" ? "SELECT … FROM stream [RANGE 10 MINUTES] …" : "eu -> us: 2 s, 100 KB/s"} onInput=${set}></textarea></label>`;
  return html`<label class="choice" title=${help}><span>${label}</span><input name=${name} value=${value} maxlength="10000" autocomplete="off" spellcheck="false" onInput=${set} /></label>`;
}

// How that which a command changes is now.
function Now({ name, job, query }) {
  const now = {
    cancel: () => (query?.migration ? `Going to ${query.migration.new_plan} since batch ${query.migration.start_batch}.` : "This query is not migrating."),
    resume: () => (query?.quarantine ? `Stopped in batch ${query.quarantine.batch}: ${query.quarantine.reason}` : "This query is not in quarantine."),
    adapt: () => `Now ${query?.adaptivity.mode}.`,
    cancel_rebalance: () => (job.slots?.moving ? movingText(job.slots.moving) : "No group is under way."),
    rescale: () => `Now ${job.slots?.count}.`,
  }[name];
  return now ? html`<p class="note">${now()}</p>` : null;
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
      ({ answer }) => current && offer(answer.plans),
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

const expected = (name, show) => (strategy) => (strategy.legal ? range(strategy.ranges[name], show) : "");

// A forecast in words; that of a migration has a table of what each strategy would take.
function Forecast({ name, forecast: { answer, text }, query }) {
  const time = query?.time ?? "integer";
  if (name !== "migrate" || !answer.strategies.length) {
    const [first, ...rest] = text.split("\n");
    return html`<div class="foretold"><p>${first}</p>${rest.length > 0 && html`<pre>${rest.join("\n")}</pre>`}</div>`;
  }
  return html`<div class="foretold">
    <p class="plans"><code>${answer.from}</code> → <code>${answer.to}</code> ${answer.part && html`<span class="note">only ${answer.part}</span>`}</p>
    ${!answer.observed && html`<p class="note">The query's streams are not watched, so these figures are rough. Adaptivity makes them better.</p>`}
    <${Table}
      label="What each strategy would take"
      rows=${answer.strategies}
      columns=${[
        { title: "Strategy", show: (s) => html`${s.strategy} ${s.strategy === answer.strategy ? html`<${Pill} kind="new">auto chooses<//>` : ""}` },
        { title: "Application time", number: true, show: expected("duration", (v) => span(v, time)) },
        { title: "Rows of work", number: true, show: expected("work", (v) => count(Math.round(v))) },
        { title: "Rows held", number: true, show: expected("rows", (v) => count(Math.round(v))) },
        { title: "Silence", number: true, show: expected("silence", (v) => span(v, time)) },
        {
          title: "Figures are",
          show: (s) =>
            html`<span class="note">${!s.legal ? s.why : s.measured ? `corrected by ${plural(s.measured, "migration")} of this job` : "a model's, not measured in this job yet"}</span>`,
        },
      ]}
    />
  </div>`;
}
