"""Migrations of a job's queries: begun with the next batch, or cancelled; what would be wrong is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from midstream.algebra.statistics import Statistics
from midstream.algebra.time import BEGINNING
from midstream.errors import MigrationError
from midstream.job.doubled_moves import moves_doubled, require_rest
from midstream.job.local_plans import require_slots_of
from midstream.job.migration_choice import decide, legal_strategy, require_cancellable
from midstream.job.moving_migrations import BY_GROUP
from midstream.job.relocation import shipped_rows
from midstream.job.running_query import MigrationUnderWay, RunningQuery
from midstream.job.state import JobState
from midstream.job.verifying import Verification, copy_name, with_copy
from midstream.migration.verified import DIFFERS, FAILED, Stretch
from midstream.optimizer.plans import Plan, plan_query

log = logging.getLogger(__name__)

SlotWish = tuple[str, int, Mapping[str, Any]]
"""A query, a slot of it, and what that slot wants to go over to."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A migration that is asked for: of a query, to a plan, by a strategy; of all its slots, or of some.

    With `verify` a copy of the query migrates, and the query follows once both have been the same for so many ticks.
    """

    query: str
    target: RunningQuery
    strategy: str
    trigger: str
    part: str = "auto"
    slots: Sequence[int] | None = None
    verify: int | None = None


def begin_migration(state: JobState, wish: Wish, observed: Callable[[str], Statistics | None]) -> None:
    """Starts a migration with the next batch; plans in several stages go as a whole.

    `observed` gives what is known of a query's streams.
    """
    query = state.queries[wish.query]
    require_at_work(state, wish.query)
    require_rest(state.manifest)
    if wish.verify is not None:
        _begin_with_copy(state, query, wish, wish.verify, observed)
    elif wish.slots is not None or query.local:
        state.verifications.require_rest(wish.query)
        _begin_locally(state, query, wish, observed)
    else:
        _require_not_migrating(state, query)
        query.migration = _decided(state, query, wish, observed)


def begin_in_slots(state: JobState, wishes: Sequence[SlotWish], observed: Callable[[str], Statistics | None]) -> None:
    """Starts the migrations that slots have decided on for themselves."""
    for name, slot, wanted in wishes:
        if name in state.faults.stopped or slot >= state.slots:
            continue
        query = state.queries[name]
        target = state.target(query, plan_query(query.plan.query, wanted["plan"], query.emit_every))
        try:
            begin_migration(state, Wish(name, target, wanted["strategy"], wanted["reason"], slots=[slot]), observed)
        except MigrationError as error:
            log.warning("slot %d of query %s stays with its plan: %s", slot, name, error)


def _require_not_migrating(state: JobState, query: RunningQuery) -> None:
    if query.migration is not None:
        raise MigrationError(
            f"query {query.name} is migrating already, to {query.migration.target.plan.text}",
            hint="wait for the end of that migration",
        )
    known = state.verifications.by_query.get(query.name)
    if known is not None and not known.passed:
        state.verifications.require_rest(query.name)


def _begin_with_copy(
    state: JobState, query: RunningQuery, wish: Wish, verify: int, observed: Callable[[str], Statistics | None]
) -> None:
    """Starts a migration of a copy of a query, which is compared with the query."""
    name, copy, before = query.name, copy_name(query.name), state.manifest
    _require_not_migrating(state, query)
    if wish.slots is not None:
        raise MigrationError("a migration of some slots is not verified", hint="leave slots or verify out")
    if query.local:
        raise MigrationError(f"query {name} runs by other plans in some slots, which is not verified")
    since = BEGINNING if before is None else before.released.get(name, BEGINNING)
    wanted = Verification(wish.target.plan.text, wish.strategy, wish.trigger, wish.part, since, since, Stretch(verify))
    made = replace(state.target(query, query.plan), name=copy, share=False, core=query.core)
    # The copy has all that the query has, so that its migration is decided as the query's would be.
    state.manifest = before if before is None or name not in before.queries else with_copy(before, name)
    target = replace(wish.target, name=copy, share=False)
    try:
        made.migration = _decided(state, made, replace(wish, target=target), observed)
    except MigrationError:
        state.manifest = before
        raise
    state.queries[copy] = made
    state.verifications.begin(name, wanted)


def begin_verified(state: JobState, observed: Callable[[str], Statistics | None]) -> None:
    """Starts the migrations that were verified and that queries have to go through themselves."""
    for name, known in state.verifications.by_query.items():
        if moves_doubled(state.manifest, None):
            return
        query = state.queries[name]
        if not known.passed or query.migration is not None or name in state.faults.stopped:
            continue
        target = state.target(query, plan_query(query.plan.query, known.plan, query.emit_every))
        begin_migration(state, Wish(name, target, known.strategy, known.trigger, known.part), observed)
        assert query.migration is not None
        query.migration.decision["verified"] = known.found().to_json()


def require_untried(state: JobState, name: str, plan: Plan) -> None:
    """Fails while a migration of a query is verified, and if a verification has found the plan to differ."""
    state.verifications.require_rest(name)
    history = () if state.manifest is None else state.manifest.account(name).history
    if any(told["status"] in (DIFFERS, FAILED) and told["new_plan"] == plan.text for told in history):
        raise MigrationError(f"a verification has found {plan.text} to differ from the plan that ran")


def _decided(
    state: JobState, query: RunningQuery, wish: Wish, observed: Callable[[str], Statistics | None]
) -> MigrationUnderWay:
    """A migration as it was decided, before it begins."""
    chosen, apart = legal_strategy(query, wish.target, wish.strategy, wish.part)
    known = replace(state.situation(query), old=query.plan, new=wish.target.plan, functions=query.functions)
    if apart:
        known = replace(known, shipped=shipped_rows(query, wish.target, state.manifest, state.routing))
    decision = decide(chosen, apart, known, observed(query.name))
    if state.by_group:
        decision[BY_GROUP] = True
    name = decision["strategy"] if apart else chosen.name
    return MigrationUnderWay(wish.target, name, decision, None, False, wish.trigger, apart)


def _begin_locally(
    state: JobState, query: RunningQuery, wish: Wish, observed: Callable[[str], Statistics | None]
) -> None:
    """Starts a migration of each of some slots, or of all, that runs by another plan than the target."""
    asked = sorted(set(range(state.slots) if wish.slots is None else wish.slots))
    require_slots_of(query, wish.target, asked, state.slots)
    begun = {}
    for slot in asked:
        own = query.in_slot(slot)
        if own.plan.text != wish.target.plan.text:
            begun[slot] = replace(own, local={}, migration=_decided(state, own, wish, observed))
    query.local = {**query.local, **begun}


def cancel_migration(state: JobState, name: str) -> None:
    """Goes back to the old plan with the next batch."""
    query = state.queries[name]
    require_at_work(state, name)
    verified = state.verifications.forget(name, state.queries)
    if verified is not None:
        state.cancelled.setdefault(name, []).append(verified)
        return
    migrating = [own for own in query.local.values() if own.migration is not None] or [query]
    for migration in [require_cancellable(own) for own in migrating]:
        migration.cancelling = migration.begun is not None
    for own in migrating:
        if own.migration is not None and own.migration.begun is None:
            record = own.migration.record(own.plan.text, None, "cancelled")
            state.cancelled.setdefault(name, []).append(record)
            own.migration = None


def require_at_work(state: JobState, name: str) -> None:
    """Fails if a query is in quarantine."""
    fault = state.faults.stopped.get(name)
    if fault is not None:
        raise MigrationError(
            f"query {name} is in quarantine since batch {fault.batch}",
            detail=fault.reason,
            hint="resume it first, or replace it",
        )
