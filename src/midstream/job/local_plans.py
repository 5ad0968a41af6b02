"""Plans per slot: inside a fragment a slot may run its own plan, because all plans of a query give the same.

Rows meet in slots by the keys of the streams' routes, whatever plan a slot runs, and what a query has given depends on
the input and the frontier alone. So plans of one stage over the same routes may differ from slot to slot, and each
slot may go over to another one by itself. A query's own plan is that of all slots that have none of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from midstream.errors import MigrationError
from midstream.job.migration_account import Account
from midstream.job.migration_choice import fit_one_box
from midstream.job.running_query import MigrationUnderWay, RunningQuery
from midstream.optimizer.plans import Plan

if TYPE_CHECKING:
    from midstream.job.batch import Batch

LOCAL = "local_plans"
"""Under what a manifest's counters have the plans of slots that differ from their query's, by query and slot."""

Told = dict[str, Any]


def plans_by_slot(query: RunningQuery, slots: int) -> dict[int, Plan]:
    """The plan that each slot runs."""
    return {slot: query.in_slot(slot).plan for slot in range(slots)}


def at_work(query: RunningQuery, slots: int) -> list[tuple[RunningQuery, tuple[int, ...] | None]]:
    """The query by every plan that runs, with the slots that run it by that; None stands for all."""
    if not query.local:
        return [(query, None)]
    rest = tuple(slot for slot in range(slots) if slot not in query.local)
    return [*([(query, rest)] if rest else []), *((own, (slot,)) for slot, own in sorted(query.local.items()))]


def after(query: RunningQuery, slots: int) -> RunningQuery:
    """What runs after a batch in some slots; a plan that all of them have come to is the query's own."""
    if not query.local:
        return query.after_batch
    ended = {slot: own.after_batch for slot, own in query.local.items() if slot < slots}
    local = {s: own for s, own in ended.items() if own.migration is not None or own.plan.text != query.plan.text}
    plans = {local[slot].plan.text if slot in local else None for slot in range(slots)}
    if len(plans) == 1 and None not in plans and not any(own.migration for own in local.values()):
        return replace(local[0], local={})
    return replace(query, local=local)


def follow(query: RunningQuery, told: Mapping[str, Any], slots: int, idle: bool = False) -> RunningQuery:
    """The query as a manifest says that its slots go on; an `idle` one was not at work."""
    if idle:
        return replace(query, local={slot: own for slot, own in query.local.items() if slot < slots})
    query = after(query, slots)
    for slot, own in query.local.items():
        migration, known = own.migration, told.get(str(slot), {}).get("migration")
        if migration is not None and known is not None:
            migration.begun, migration.done = known["begun"], known["done"]
            migration.account = Account(**known["account"])
    return query


def resume(query: RunningQuery, told: Mapping[str, Any], by_plan: Callable[[str], RunningQuery]) -> None:
    """Gives slots the plans that a manifest tells of; `by_plan` gives the query by a plan's text."""
    for slot, known in told.items():
        own = replace(query, local={}) if known["plan"] == query.plan.text else by_plan(known["plan"])
        if known["migration"] is not None:
            own.migration = MigrationUnderWay.resumed(by_plan(known["migration"]["plan"]), known["migration"])
        query.local[int(slot)] = own


def require_slots_of(query: RunningQuery, target: RunningQuery, wanted: Sequence[int], slots: int) -> None:
    """Raises a MigrationError if some slots cannot go over to a plan by themselves."""
    if not wanted or not all(isinstance(slot, int) and 0 <= slot < slots for slot in wanted):
        raise MigrationError(
            f"query {query.name} cannot migrate in slots {list(wanted)}",
            detail=f"the slots are 0 to {slots - 1}",
            hint="leave slots out to migrate in all of them",
        )
    if query.migration is not None:
        raise MigrationError(
            f"query {query.name} is migrating already, to {query.migration.target.plan.text}",
            hint="wait for the end of that migration",
        )
    for slot in wanted:
        own = query.in_slot(slot)
        if own.migration is not None:
            raise MigrationError(
                f"query {query.name} is migrating already in slot {slot}, to {own.migration.target.plan.text}",
                hint="wait for the end of that migration",
            )
        if not fit_one_box(own, target):
            raise MigrationError(
                f"query {query.name} cannot run by different plans in its slots: its plans have several stages, "
                "or need rows in other slots",
                detail=str(target.staged),
                hint="migrate all slots at once",
            )


def local_after(batch: Batch) -> dict[str, dict[str, Told]]:
    """What a manifest says of the plans of slots after a batch, by query."""
    found: dict[str, dict[str, Told]] = {}
    for name, query in batch.queries.items():
        for slot, own in after(query, batch.slots).local.items():
            migration = None if own.migration is None else batch.migration_after(own, slot)
            found.setdefault(name, {})[str(slot)] = {"plan": own.plan.text, "migration": migration}
    return found


def ended_locally(batch: Batch, query: RunningQuery) -> list[Told]:
    """What the history says of the migrations of slots that a batch ends."""
    found = []
    for slot, own in sorted(query.local.items()):
        migration = own.migration
        if migration is not None and (migration.done or migration.cancelling):
            status = "cancelled" if migration.cancelling else "done"
            account = batch.account(own, migration, slot)
            found.append({**migration.record(own.plan.text, batch.batch_id, status, account), "slots": [slot]})
    return found


def under_way(query: RunningQuery) -> list[Told]:
    """What the history says of migrations of slots that wait or are under way."""
    return [
        {**own.migration.record(own.plan.text, None, status_of(own.migration)), "slots": [slot]}
        for slot, own in sorted(query.local.items())
        if own.migration is not None
    ]


def status_of(migration: MigrationUnderWay) -> str:
    """Whether a migration has begun."""
    return "waiting" if migration.begun is None else "under way"


def told_plans(plans: Mapping[int, str]) -> str:
    """The plans of slots in one line.

    >>> told_plans({0: "((A B) C)", 1: "((A B) C)"})
    '((A B) C)'
    >>> told_plans({0: "((A B) C)", 1: "(A (B C))", 2: "((A B) C)"})
    '((A B) C) in slots 0, 2; (A (B C)) in slot 1'
    """
    by_plan: dict[str, list[int]] = {}
    for slot, text in sorted(plans.items()):
        by_plan.setdefault(text, []).append(slot)
    if len(by_plan) == 1:
        return next(iter(by_plan))
    named = (
        f"{text} in slot{'s' * (len(slots) > 1)} {', '.join(map(str, slots))}" for text, slots in by_plan.items()
    )
    return "; ".join(named)
