"""Migrations of a job's queries: begun with the next batch, or cancelled; what would be wrong is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from midstream.algebra.statistics import Statistics
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import copy_name
from midstream.errors import MigrationError
from midstream.job.migrations.copies import with_copy
from midstream.job.migrations.verifying import Verification, is_full
from midstream.job.plans.local_plans import require_seen, require_slots_of, require_still
from midstream.job.plans.migration_choice import decide, is_within, legal_strategy, require_cancellable
from midstream.job.queries.replacing import name_of_old, with_name_free
from midstream.job.queries.running_query import Beginning, MigrationUnderWay, RunningQuery
from midstream.job.slots.both_at_once import keeps_from, move_of, require_both
from midstream.job.slots.doubled_moves import moves_doubled
from midstream.job.slots.relocation import shipped_rows
from midstream.job.state import Event, JobState
from midstream.migration.verified import DIFFERS, FAILED, Stretch, can_be_adopted
from midstream.optimizer.plans import Plan, plan_query


@dataclass(frozen=True, slots=True)
class MigrationAsked(Event):
    """A query is to go over to the plan of `target` with the next batch, in all its slots or in some.

    With `verify` a copy of the query migrates, and the query follows once both have been the same for so many ticks.
    `observed` is what is known of the query's streams.
    """

    query: str
    target: RunningQuery
    strategy: str
    trigger: str
    part: str = "auto"
    slots: Sequence[int] | None = None
    verify: int | None = None
    observed: Statistics | None = None

    def happen(self, state: JobState) -> None:
        """Starts the migration with the next batch; plans in several stages go as a whole."""
        query = state.queries[self.query]
        require_at_work(state, self.query)
        require_both(state.manifest, query, self.target)
        if self.verify is not None:
            _begin_with_copy(state, query, self, self.verify)
            return
        if self.slots is not None or query.local:
            state.verifications.require_rest(self.query)
        else:
            _require_not_migrating(state, query)
        state.queries[self.query] = _migrating(state, query, self)


def _require_not_migrating(state: JobState, query: RunningQuery) -> None:
    require_still(query)
    known = state.verifications.by_query.get(query.name)
    if known is not None and not known.passed:
        state.verifications.require_rest(query.name)


def _begin_with_copy(state: JobState, query: RunningQuery, asked: MigrationAsked, verify: int) -> None:
    """Starts a migration of a copy of a query, which is compared with the query."""
    name, copy, before = query.name, copy_name(query.name), state.manifest
    _require_not_migrating(state, query)
    if before is not None and name not in before.queries:
        raise MigrationError(
            f"query {name} has not begun: there is nothing that its migration can be compared with",
            hint="wait for its first batch, or migrate it without verify",
        )
    for slot, own in query.local.items():
        require_still(own, slot)
    since = BEGINNING if before is None else before.released.get(name, BEGINNING)
    wanted = Verification(
        asked.target.plan.text, asked.strategy, asked.trigger, asked.part, since, since, Stretch(verify)
    )
    if asked.slots is not None:
        wanted = replace(wanted, slots=tuple(sorted(set(asked.slots))))
    made = _copied(state, query)
    made = replace(made, local={slot: _copied(state, own) for slot, own in query.local.items()})
    # The copy has all that the query has, so that its migration is decided as the query's would be.
    state.manifest = None if before is None else with_copy(before, name)
    target = replace(asked.target, name=copy, share=False)
    # Nothing is known of the copy's streams: it has not been watched.
    asked = replace(asked, target=target, observed=None)
    state.queries[copy] = _migrating(state, made, asked)
    _require_adoptable(query, state.queries[copy])
    state.verifications.begin(name, wanted)


def _copied(state: JobState, query: RunningQuery) -> RunningQuery:
    """The query, or what a slot runs of it, under the name of its copy."""
    return replace(state.target(query, query.plan), name=copy_name(query.name), share=False, core=query.core)


def _require_adoptable(query: RunningQuery, copy: RunningQuery) -> None:
    """Fails if a query could not go on as its copy, some slots of which migrate: slots cannot migrate a second time."""
    for slot, own in copy.local.items():
        if own.migration is not None and not can_be_adopted(query.in_slot(slot).plan, own.migration.target.plan):
            raise MigrationError(
                f"a migration of some slots of query {query.name} to {own.migration.target.plan.text} is not verified",
                detail="one of the plans gives results early, and the other by slices of time",
                hint="verify a migration of all slots, or leave verify out",
            )


def begin_verified(state: JobState, observed: Mapping[str, Statistics]) -> None:
    """Starts the migrations that were verified and that queries have to go through themselves."""
    for name, known in list(state.verifications.by_query.items()):
        query = state.queries[name]
        if not known.passed or known.shadow or query.migration is not None or name in state.faults.stopped:
            continue
        target = state.target(query, plan_query(query.plan.query, known.plan, query.emit_every))
        if keeps_from(state.manifest, query, target):
            continue
        asked = MigrationAsked(name, target, known.strategy, known.trigger, known.part, observed=observed.get(name))
        asked.happen(state)
        begun = state.queries[name]
        assert begun.migration is not None
        decision = {**begun.migration.decision, "verified": known.found().to_json()}
        state.queries[name] = replace(begun, migration=replace(begun.migration, decision=decision))


def let_shadows_take_places(state: JobState) -> list[str]:
    """Lets texts that ran beside queries, and gave what was expected, take their places; gives the names of these.

    The query that comes takes over all that its shadow runs, in the batch that is the last for the shadow too. While
    groups move to two slots that is divided between these, and the texts wait.
    """
    if moves_doubled(state.manifest, state.wanted):
        return []
    passed = {name: known for name, known in state.verifications.by_query.items() if known.passed and known.shadow}
    for name, known in passed.items():
        manifest, old, shadow = state.manifest, state.queries[name], state.queries[copy_name(name)]
        assert manifest is not None and known.shadow is not None
        text = known.shadow.cql
        declared, added = state.texts.get(name, (old.cql,))[0], state.added.get(name)
        freed = with_name_free(manifest, name, text, shadow.plan.text)
        *past, record = freed.account(name).history
        freed = freed.with_account(name, history=[*past, {**record, "verified": known.found().to_json()}])
        state.replace_query(name, name_of_old(manifest, name), freed, old)
        state.queries[name] = replace(shadow.called(name), programs={}, begins=Beginning(known.shadow.withhold))
        state.retiring.add(shadow.name)
        del state.verifications.by_query[name]
        if added is not None:
            state.added[name] = {**added, "cql": text, "plan": None}
        else:
            state.texts[name] = (declared, text)
    return list(passed)


def switch_to_shadow(state: JobState, name: str) -> None:
    """Lets the other text of a query take its place with the next batch, whatever was found so far.

    One that is not compared does so with those that change with it, and waits for the old ones no longer.
    """
    manifest, verifications = state.manifest, state.verifications
    known = verifications.by_query.get(name)
    if manifest is None or known is None or known.shadow is None:
        raise MigrationError(f"query {name} is not compared with another text", hint="begin with replace --verify")
    for one in verifications.changing_with(name):
        if not _can_switch(state, manifest, one, verifications.by_query[one]):
            raise MigrationError(
                f"the other text of query {one} gives no complete results yet", hint="wait until it does, or cancel it"
            )
        verifications.by_query[one] = replace(verifications.by_query[one], passed=True, comparison=None)


def _can_switch(state: JobState, manifest: Manifest, name: str, known: Verification) -> bool:
    """Whether another text has given results that were compared with a query's, or else has all that is kept for it."""
    copy = copy_name(name)
    if copy in state.faults.stopped or copy not in manifest.queries or known.shadow is None:
        return False
    compared = bool(known.shadow.columns)
    return manifest.released.get(copy, BEGINNING) >= known.since if compared else is_full(manifest, state.queries[copy])


def require_untried(state: JobState, name: str, plan: Plan) -> None:
    """Fails while a migration of a query is verified, and if a verification has found the plan to differ."""
    state.verifications.require_rest(name)
    history = () if state.manifest is None else state.manifest.account(name).history
    if any(record["status"] in (DIFFERS, FAILED) and record["new_plan"] == plan.text for record in history):
        raise MigrationError(f"a verification has found {plan.text} to differ from the plan that ran")


def require_way(state: JobState, query: RunningQuery, plan: Plan, strategy: str, alone: bool = False) -> None:
    """Raises a MigrationError if a query, or a slot `alone`, could not begin to go over with the next batch."""
    require_untried(state, query.name, plan)
    target = state.target(query, plan)
    require_both(state.manifest, query, target)
    if alone:
        require_slots_of(query, target, [0], 1)
        require_seen(query, target)
    legal_strategy(query, target, strategy, alone=alone, moving=move_of(state.manifest, query.name) is not None)


def _decided(state: JobState, query: RunningQuery, asked: MigrationAsked, alone: bool = False) -> MigrationUnderWay:
    """A migration as it was decided, before it begins; `alone` is one of a slot by itself."""
    move = move_of(state.manifest, query.name)
    chosen, apart = legal_strategy(query, asked.target, asked.strategy, asked.part, alone, move is not None)
    known = replace(state.situation(query), old=query.plan, new=asked.target.plan, functions=query.functions)
    if apart:
        known = replace(known, shipped=shipped_rows(query, asked.target, state.manifest, state.routing))
    decision = decide(chosen, apart, known, asked.observed)
    if move is not None and move.split_at is not None and "split_after" in decision:
        # What is opened last answers last.
        decision["split_after"] = max(decision["split_after"], move.split_at)
    name = decision["strategy"] if apart else chosen.name
    apart = apart and not is_within(chosen, name)
    plan = asked.target.plan.text
    return MigrationUnderWay(plan, name, decision, asked.trigger, apart, target=asked.target)


def _migrating(state: JobState, query: RunningQuery, asked: MigrationAsked) -> RunningQuery:
    """The query with a migration; where slots go by themselves, of each that runs by another plan than the target."""
    if asked.slots is None and not query.local:
        return replace(query, migration=_decided(state, query, asked))
    slots = sorted(set(range(state.slots) if asked.slots is None else asked.slots))
    require_slots_of(query, asked.target, slots, state.slots)
    begun = {}
    for slot in slots:
        own = query.in_slot(slot)
        if own.plan.text != asked.target.plan.text:
            begun[slot] = replace(own, local={}, migration=_decided(state, own, asked, alone=True))
    return replace(query, local={**query.local, **begun})


def cancel_migration(state: JobState, name: str, why: str = "") -> None:
    """Goes back to the old plan with the next batch."""
    if name in state.verifications.by_query:
        for other in state.verifications.changing_with(name):
            verified = state.verifications.forget(other, state.queries)
            assert verified is not None
            told = {**verified, **({"why": why} if why else {})}
            state.cancelled[other] = [*state.cancelled.get(other, ()), told]
        return
    query = state.queries[name]
    require_at_work(state, name)
    migrating = {slot: own for slot, own in query.local.items() if own.migration is not None}
    if migrating:
        local = {slot: _cancelled(state, name, own) for slot, own in migrating.items()}
        state.queries[name] = replace(query, local={**query.local, **local})
    else:
        state.queries[name] = _cancelled(state, name, query)


def _cancelled(state: JobState, name: str, own: RunningQuery) -> RunningQuery:
    """The query, or a slot of it, on its way back; a migration that has not begun is over, and is recorded."""
    migration = require_cancellable(own, move_of(state.manifest, own.name))
    if migration.begun is not None:
        return replace(own, migration=replace(migration, cancelling=True))
    told = migration.record(own.plan.text, None, "cancelled")
    state.cancelled[name] = [*state.cancelled.get(name, ()), told]
    return replace(own, migration=None)


def require_at_work(state: JobState, name: str) -> None:
    """Fails if a query is in quarantine."""
    fault = state.faults.stopped.get(name)
    if fault is not None:
        raise MigrationError(
            f"query {name} is in quarantine since batch {fault.batch}",
            detail=fault.reason,
            hint="resume it first, or replace it",
        )
