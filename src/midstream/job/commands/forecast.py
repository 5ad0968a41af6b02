"""What a request to a running job would do, without doing it: what it would cost, or why it would be refused.

A forecast reads what the job knows and changes nothing; between it and the request the job goes on, so figures are
those of the moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from midstream.adaptation.cost_corrections import TERMS, Factors, corrected
from midstream.adaptation.policy import mode_of
from midstream.algebra.declarations import Catalog
from midstream.algebra.statistics import Statistics
from midstream.algebra.time import moment
from midstream.checkpoint.commands import (
    Adapt,
    AddQuery,
    CancelMigration,
    CancelRebalance,
    ChangeLinks,
    Command,
    CorrectCosts,
    DropQuery,
    Migrate,
    Rebalance,
    ReplaceQuery,
    Rescale,
    ResumeQuery,
    ScheduleOperators,
    StopJob,
    SwitchQuery,
)
from midstream.checkpoint.packs import entries_in
from midstream.checkpoint.stored_slots import moving_groups
from midstream.distribution.fragments import ARRIVAL, Routing
from midstream.distribution.move_legality import protocol_named
from midstream.errors import InternalError, JobError, MigrationError, QueryError, query_in
from midstream.inputs.json_values import json_value
from midstream.job.commands.adding import Adding
from midstream.job.commands.replacement import replacement, switched
from midstream.job.commands.rewording import Rewording, Text
from midstream.job.events import CostsCorrected, MoveCancelled, Rebalanced
from midstream.job.job import Job
from midstream.job.outputs.expected_moves import expected_moves, sent_by_site, topology_now, watched
from midstream.job.plans.local_plans import require_still
from midstream.job.plans.migration_choice import decide, legal_strategy, require_cancellable
from midstream.job.queries.plan_graph import graph_of
from midstream.job.queries.running_query import Beginning, RunningQuery
from midstream.job.slots.both_at_once import move_of, require_both
from midstream.job.slots.class_dealing import ClassLoads
from midstream.job.slots.relocation import groups_moved, require_slots, shipped_rows
from midstream.job.task.exchange import default_routing
from midstream.language import parse
from midstream.language.over_queries import with_queries
from midstream.migration.auto import PREFERENCES, Auto, StrategyChoice, preference_named
from midstream.migration.costs import Predictor
from midstream.migration.predict import predicted, prediction_text
from midstream.migration.protocol import Decision, Situation, Strategy
from midstream.migration.registry import STRATEGIES
from midstream.optimizer.growth import growth
from midstream.optimizer.plans import Plan, best_plan, enumerate_plans, plan_query
from midstream.optimizer.sites.links import changes, links_summary
from midstream.scheduling.schedule import schedule_of

OFFERED = 12
"""How many plans are offered for a query."""

Record = dict[str, Any]
Legal = Callable[[str], tuple[Strategy, bool]]
"""The strategy of a name, and whether both plans lie apart; refuses what would be wrong."""


def forecast(job: Job, command: Command, catalog: Catalog) -> Record:
    """What a command would do; texts of queries are bound to the streams of a catalog."""
    match command:
        case Migrate(name, plan):
            return _migrate(job, query_in(job.queries, name), plan, command.part)
        case CancelMigration(name):
            query, known = query_in(job.queries, name), job.state.verifications.by_query.get(name)
            if known is not None and query.migration is None:
                text = None if known.shadow is None else known.shadow.cql
                return {"query": name, "plan": query.plan.text, "cancelled": known.plan, "text": text}
            migration = require_cancellable(query, move_of(job.manifest, name))
            return {"query": name, "plan": query.plan.text, "cancelled": migration.target.plan.text, "text": None}
        case ScheduleOperators(scheduling):
            return {"from": job.state.settings.scheduling, "to": schedule_of(scheduling).name}
        case AddQuery():
            return _add(job, command, catalog)
        case ReplaceQuery():
            return replacement(job, command, catalog)
        case SwitchQuery(name):
            return switched(job, name)
        case DropQuery(name):
            return _drop(job, query_in(job.queries, name))
        case Rebalance(protocol, by, routing):
            return _rebalance(job, routing, protocol_named(protocol), by or "")
        case CancelRebalance():
            job.state.after(MoveCancelled())
            moving = None if job.manifest is None else moving_groups(job.manifest)
            return {"cancelled": None if moving is None else asdict(moving)}
        case Rescale(slots):
            require_slots(slots, 2**job.state.group_bits)
            return _reroute(job, Routing(tuple(default_routing(slots, 2**job.state.group_bits)), slots))
        case ChangeLinks(links):
            return _links(job, links)
        case CorrectCosts(factors):
            return _corrected(job, factors)
        case Adapt(name, mode):
            return _adapt(job, query_in(job.queries, name), mode)
        case ResumeQuery(name):
            return _resume(job, name)
        case StopJob():
            last = None if job.manifest is None else job.manifest.batch_id
            return {"batch": last, "queries": sorted(job.queries)}
    raise InternalError(f"there is no forecast of {command}")


def offered_plans(job: Job, query: RunningQuery) -> list[Record]:
    """Plans of a query, the cheapest first, by what is known of its streams; the running one is among them."""
    estimator = watched(job, query, topology_now(job))
    observed = None if estimator is None else estimator.statistics
    plans = {plan.text: plan for plan in _plans(job, query, observed)}
    plans.setdefault(query.plan.text, query.plan)
    costs = {text: None if estimator is None else estimator.per_tick(p.logical) for text, p in plans.items()}
    ranked = sorted(plans, key=lambda text: costs[text] or 0.0)[:OFFERED]
    if query.plan.text not in ranked:
        ranked.append(query.plan.text)
    return [{"plan": text, "cost": costs[text], "running": text == query.plan.text} for text in ranked]


def moved_text(job: Job, query: RunningQuery) -> list[str]:
    """What of a query went through exchanges in the last batch, beside what the optimizer expects."""
    counts = (job.commits.progress or {}).get("queries", {}).get(query.name)
    if counts is None or query.staged.stages == 1:
        return []
    expected = expected_moves(job, query)
    rows = (counts["moved"], None if expected is None else expected.rows)
    lines = [f"Rows between stages in the last batch: {_beside(*rows)}"]
    sizes, sent = {} if expected is None else expected.bytes, sent_by_site(job, counts["sent"])
    for pair in sorted({*sent, *sizes}):
        wanted = None if expected is None else sizes.get(pair, 0.0)
        lines.append(f"Bytes from {pair} in the last batch: {_beside(sent.get(pair, 0), wanted)}")
    return lines


def _beside(counted: int, expected: float | None) -> str:
    return f"{counted:,}" + ("" if expected is None else f", {expected:,.0f} were expected")


def _plans(job: Job, query: RunningQuery, observed: Statistics | None) -> list[Plan]:
    constants, topology = job.watchers.constants, topology_now(job)
    return enumerate_plans(query.plan.query, query.emit_every, 64, observed, constants, True, topology)


def migration_text(job: Job, query: RunningQuery, plan: Plan | str, part: str, preference: str) -> str:
    """What would migrate to another plan, and what each strategy would take or why it is refused."""
    target, known = _towards(job, query, plan_query(query.plan.query, plan, query.emit_every))
    legal = _legal(job, query, target, part)
    auto, apart = legal("auto")
    if not apart and query.staged.stages == 1:
        return prediction_text(known, part, preference)
    if isinstance(auto, Auto):
        auto = Auto(auto.strategies, preference_named(preference))
    known, decision = _decided(job, query, target, auto, apart, known)
    predictor, predictions, refusals = Predictor(query.plan, target.plan, known), [], {}
    for name in STRATEGIES:
        try:
            strategy, _ = legal(name)
        except MigrationError as error:
            refusals[name] = error.message
        else:
            predictions += [] if name == "auto" else [predictor.predict(name, strategy.decide(known))]
    predictions.sort(key=PREFERENCES[preference_named(preference)])
    choice = StrategyChoice(decision.get("strategy", auto.name), preference, tuple(predictions), refusals)
    return f"migrates: {decision.get('part') or 'the whole plan'}\n{choice.explain()}"


def _migrate(job: Job, query: RunningQuery, plan: str, part: str) -> Record:
    wanted = plan_query(query.plan.query, plan, query.emit_every)
    if wanted.text == query.plan.text and not query.local:
        return {**_between(job, query, query), "part": None, "side_by_side": False, "strategy": None, "strategies": []}
    target, known = _towards(job, query, wanted)
    legal = _legal(job, query, target, part)
    auto, apart = legal("auto")
    known, decision = _decided(job, query, target, auto, apart, known)
    strategies = [_strategy(legal, name, known) for name in STRATEGIES if name != "auto"]
    return {
        **_between(job, query, target),
        "part": decision.get("part"),
        "side_by_side": apart,
        "strategy": decision.get("strategy", auto.name),
        "strategies": strategies,
        "unknown": sorted({source.stream.alias for source in query.sources} - known.statistics.streams.keys()),
    }


def _between(job: Job, query: RunningQuery, target: RunningQuery) -> Record:
    """What a forecast says of the two plans; equal ones: there is nothing to migrate."""
    return {
        "query": query.name,
        "time": "integer" if query.plan.domain.is_integer else "timestamp",
        "from": query.plan.text,
        "to": target.plan.text,
        "graph": graph_of(target)["nodes"],
        "observed": query.name in job.watchers.by_query,
    }


def _towards(job: Job, query: RunningQuery, plan: Plan) -> tuple[RunningQuery, Situation]:
    """The query with another plan, and what is known of the way to it."""
    require_still(query)
    target = job.state.target(query, plan)
    require_both(job.manifest, query, target)
    known = replace(job.state.situation(query), old=query.plan, new=plan, functions=query.functions)
    watcher = job.watchers.by_query.get(query.name)
    return target, known if watcher is None else replace(known, statistics=watcher.observed)


def _decided(
    job: Job, query: RunningQuery, target: RunningQuery, strategy: Strategy, apart: bool, known: Situation
) -> tuple[Situation, Decision]:
    """What a strategy would decide, and what it would know then."""
    if apart:
        known = replace(known, shipped=shipped_rows(query, target, job.manifest, job.state.routing))
    watcher = job.watchers.by_query.get(query.name)
    return known, decide(strategy, apart, known, None if watcher is None else watcher.observed)


def _legal(job: Job, query: RunningQuery, target: RunningQuery, part: str) -> Legal:
    """Asks which strategies are right for a query as it runs now, also while its groups move."""
    moving = move_of(job.manifest, query.name) is not None
    return lambda name: legal_strategy(query, target, name, part, moving=moving)


def _strategy(legal: Legal, name: str, known: Situation) -> Record:
    try:
        chosen, _ = legal(name)
    except MigrationError as error:
        return {"strategy": name, "legal": False, "why": error.message, "hint": error.hint}
    record = predicted(name, chosen.decide(known), known)
    return {**(record or {}), "strategy": name, "legal": True}


def _add(job: Job, command: AddQuery, catalog: Catalog) -> Record:
    if command.query in job.queries:
        raise QueryError(f"query {command.query} already exists", hint="choose another name, or drop that one first")
    cql = with_queries(command.cql, catalog.queries, catalog.streams)
    relation = parse(cql, catalog)
    begins = Beginning(since=Beginning.since_tick(command.since, relation.domain), rate=command.backfill_rate)
    text = Text(command.query, cql, relation, command.plan, begins=begins)
    new, verdict = Rewording(job, Adding(job, catalog.functions), catalog).addition(text)
    return {
        "query": command.query,
        "plan": new.plan.text,
        "operators": str(new.plan.physical),
        "columns": [[field.name, str(field.type)] for field in relation.schema],
        "warnings": list(growth(new.plan.physical)),
        "begins": None if verdict is None else verdict.to_json(),
        "answers_from": None if verdict is None else json_value(moment(verdict.start, relation.domain)),
    }


def _drop(job: Job, query: RunningQuery) -> Record:
    manifest = job.manifest
    held = [] if manifest is None else list(entries_in(manifest.segments.get(query.name, {})))
    results = 0 if manifest is None else manifest.account(query.name).results
    return {
        "query": query.name,
        "cql": query.cql,
        "state_rows": sum(entry.rows for entry in held),
        "state_bytes": sum(entry.bytes for entry in held),
        "results": results,
    }


def _resume(job: Job, name: str) -> Record:
    fault = job.state.faults.stopped.get(name)
    if fault is None:
        query_in(job.queries, name)
        raise JobError(f"query {name} is not in quarantine")
    last = fault.batch if job.manifest is None else job.manifest.batch_id
    return {"query": name, "reason": fault.reason, "since": fault.batch, "missed": last - fault.batch + 1}


def _reroute(job: Job, wanted: Routing) -> Record:
    """What reassigning groups would move; a group's part of the state is about its part of the slot's load."""
    now, manifest = job.state.routing, job.manifest
    loads = ClassLoads.of(manifest) if job.state.loads else ClassLoads({ARRIVAL: [1.0] * len(now.groups)})
    moved = groups_moved(now, wanted)
    state = 0 if manifest is None else sum(entry.bytes for entry in manifest.entries())
    return {
        "changes": bool(moved),
        "slots": [now.slots, wanted.slots],
        "groups": sum(moved.values()),
        "classes": {name: count for name, count in moved.items() if name},
        "state_bytes": round(loads.part_moved(now, wanted) * state),
        "skew": [round(loads.skew(now), 3), round(loads.skew(wanted), 3)],
        "waits": any(q.migrates and not (q.migration and q.migration.moves) for q in job.queries.values()),
    }


def _corrected(job: Job, factors: Factors) -> Record:
    """What plans would be weighed by."""
    state, _ = job.state.after(CostsCorrected(factors))
    constants = corrected(job.cluster.constants, state.settings.costs)
    names = [*TERMS, "second"]
    return {
        "from": {name: getattr(job.watchers.constants, name) for name in names},
        "to": {name: getattr(constants, name) for name in names},
        "costs": state.settings.costs,
    }


def _links(job: Job, wanted: Mapping[str, str]) -> Record:
    """The plans that would be the best if links were others, of the queries that are watched."""
    located, known = job.watchers.located, job.state.settings.links
    later = located.changed(known, wanted)
    queries = {}
    for name in job.watchers.by_query:
        query = query_in(job.queries, name)
        estimator = watched(job, query, located.topology(job.state.slots, later))
        if estimator is not None:
            best = best_plan(query.plan.query, query.plan.emission, estimator)
            costs = {"cost": estimator.per_tick(query.plan.logical), "best_cost": estimator.per_tick(best.logical)}
            queries[name] = {"plan": query.plan.text, "best": best.text, **costs}
    now, then = located.links(known), located.links(later)
    return {"changes": changes(now, then), "links": links_summary(then), "queries": queries}


def _rebalance(job: Job, routing: Sequence[int] | None, protocol: str, key_class: str) -> Record:
    """What dealing groups as `routing` says, or evenly, would move; which groups would be shared or go home."""
    now, then = job.state, job.state.after(Rebalanced(routing, "", protocol, key_class))[0]
    wanted = now.routing if then.wanted is None or then.wanted is now.wanted else then.wanted
    begun = [group for number, group in then.spread.groups.items() if number not in now.spread.groups]
    home = sorted(now.spread.groups.keys() - then.spread.groups.keys(), key=str)
    record = _reroute(job, wanted)
    spread = [
        {
            "group": group.group,
            "stream": group.spread,
            "slots": group.ways,
            "reason": group.reason,
            **({"by": group.key_class} if group.key_class else {}),
        }
        for group in begun
    ]
    return {
        **record,
        "changes": record["changes"] or bool(begun) or bool(home),
        "protocol": wanted.protocol,
        "spread": spread,
        "brought_home": home,
    }


def _adapt(job: Job, query: RunningQuery, mode: str) -> Record:
    watcher = job.watchers.by_query.get(query.name)
    return {"query": query.name, "from": "off" if watcher is None else watcher.policy.mode, "to": mode_of(mode)}
