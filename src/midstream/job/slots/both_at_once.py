"""Plans that change while groups move to two slots: what may go on at once.

A query's lanes are a sequence in time, so a migration between plans in different slots and a move of groups open their
lanes one after the other. A migration inside tasks happens in each lane: a lane is an execution over the rows of its
groups, and every strategy takes an execution to another plan without a change in its results. So all lanes migrate
alike, by one decision, and each still answers for its own time. A lane that is opened meanwhile begins the migration
with nothing in its states.

What leaves by PTLB has marks in its states. It needs no other plan, because it is forgotten when nothing old is left,
so it stays with the one it has, and the migration of the other lanes ends after the move. A migration that has begun
before such a move has states without a place for marks: the move waits for its end. A move also waits for a migration
inside the tasks of several stages, and for one that moves state bit by bit.

The states of a migration inside tasks are sorted by partition group as those of a plan are. Between slots that run by
the same plans and migrate in the same way, a group therefore also moves by naming its ranges of all these states, and
the receiver goes on where the sender was. What is not sorted by group (halves of results that wait for each other) has
to be gone first; until then the move waits.
"""

from __future__ import annotations

import json

from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.packs import StateKey, Stored, joined, within
from midstream.checkpoint.records import DoubledMove
from midstream.distribution.fragments import Routing
from midstream.distribution.move_legality import DOUBLED, PTLB
from midstream.errors import MigrationError
from midstream.job.lanes import Filled
from midstream.job.plans.migration_choice import fit_tasks
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.segment_reuse import MOST_RANGES, ranges_of_groups
from midstream.migration.execution import SingleBox
from midstream.migration.in_part import way_decided
from midstream.migration.legality import keeps_intervals
from midstream.migration.registry import strategy_named
from midstream.operators.box import Box

SHARED = "spread"
"""What stands for a protocol where several slots come to share a group."""


def holds_up(protocol: str, query: RunningQuery) -> str:
    """Why groups of a query cannot begin to move by a protocol as long as it migrates; empty if they can."""
    migration = query.migration
    if migration is not None and migration.apart:
        waits = protocol == PTLB or migration.moves or migration.replays
        return f"query {query.name} migrates between plans that lie in different slots" if waits else ""
    if query.migrates and len(query.staged.fragments) > 1:
        return f"query {query.name} migrates, and its plan has several stages"
    if any(not _same_form(own, own.migration.target) for own in query.plans if own.migration is not None):
        return f"query {query.name} migrates between plans of which one keeps the intervals of rows"
    if protocol == PTLB and in_tasks(query):
        return f"query {query.name} migrates, and its states have no place for marks"
    return ""


def not_together(protocol: str, query: RunningQuery, target: RunningQuery) -> str:
    """Why a query cannot begin to migrate in the batch in which groups begin to move by a protocol; empty if it can."""
    if protocol == SHARED:
        return "slots share no group while a query migrates"
    if len(query.staged.fragments) > 1 or not fit_tasks(query, target):
        return f"the plans of query {query.name} have several stages, or need rows in other slots"
    if protocol in DOUBLED and not _same_form(query, target):
        return f"query {query.name} migrates between plans of which one keeps the intervals of rows"
    return ""


def move_of(manifest: Manifest | None, query: str) -> DoubledMove | None:
    """The move of groups of a query to two slots, if there is one."""
    move = None if manifest is None else manifest.slots.doubled
    return move if move is not None and query in move.queries else None


def keeps_from(manifest: Manifest | None, query: RunningQuery, target: RunningQuery) -> str:
    """Why a query cannot go over to a plan before groups have moved; empty if it can."""
    if move_of(manifest, query.name) is None or not fit_tasks(query, target) or _same_form(query, target):
        return ""
    return "one of its plans keeps the intervals of rows, and the other does not"


def require_both(manifest: Manifest | None, query: RunningQuery, target: RunningQuery) -> None:
    """Raises a MigrationError if a query cannot go over to a plan while its groups move."""
    reason, move = keeps_from(manifest, query, target), move_of(manifest, query.name)
    if reason and move is not None:
        raise MigrationError(
            f"query {query.name} cannot go over to {target.plan.text or 'another plan'} while groups move "
            f"by {move.target.protocol}, since batch {move.begun}",
            detail=reason,
            hint="ask again once the groups have moved, as status says, or cancel the move",
        )


def _same_form(query: RunningQuery, target: RunningQuery) -> bool:
    """Whether results of both plans are cut at the split time in one way: whole, or not."""
    return keeps_intervals(query.plan.physical) == keeps_intervals(target.plan.physical)


def in_tasks(query: RunningQuery) -> bool:
    """Whether a migration inside tasks has begun, in any slot."""
    migrations = (own.migration for own in query.plans)
    return any(m is not None and m.begun is not None and not m.apart for m in migrations)


def moved_by_name(query: RunningQuery, stored: Stored, old: Routing, new: Routing) -> Filled | None:
    """The segments of a query that migrates inside tasks in other slots; None if its groups cannot move now."""
    if len(query.staged.fragments) > 1 or any(not route.key for route in query.staged.routes.values()):
        return None
    moved = {(a, b) for a, b in zip(old.groups, new.groups, strict=True) if a != b}
    if any(_form(query.in_slot(sender)) != _form(query.in_slot(receiver)) for sender, receiver in moved):
        return None
    losing = {sender: grouped_states(query.in_slot(sender)) for sender, _ in moved}
    found: Filled = {}
    for number, slots in stored.items():
        for slot, entries in slots.items():
            if slot not in losing:
                found.setdefault(number, {}).setdefault(slot, []).extend(entries)
                continue
            ranges = ranges_of_groups(slot, old.groups, new.groups)
            if len(ranges) > MOST_RANGES or any(e.rows and (e.state, e.key) not in losing[slot] for e in entries):
                return None
            for target, hash_from, hash_to in ranges:
                found.setdefault(number, {}).setdefault(target, []).extend(within(entries, hash_from, hash_to))
    return {number: {slot: joined(entries) for slot, entries in slots.items()} for number, slots in found.items()}


def _form(query: RunningQuery) -> tuple[str, str]:
    """What slots must have in common for one to go on with the states of another."""
    migration = query.migration
    if migration is None or migration.begun is None:
        return query.plan.text, ""
    decided = [migration.plan, migration.strategy, migration.decision, migration.begun]
    return query.plan.text, json.dumps(decided, default=str)


def grouped_states(query: RunningQuery) -> set[StateKey]:
    """The states of a slot that are sorted by group, by the names they are stored under."""
    box, migration = Box(query.staged.root.plan, query.functions), query.migration
    if migration is None or migration.begun is None:
        return {(state.id, state.key) for state in box.states() if state.grouping is not None}
    # Boxes without state have the same states under the same names as those with state.
    strategy = way_decided(strategy_named(migration.strategy), dict(migration.decision))
    target = Box(migration.target.staged.root.plan, query.functions)
    execution = strategy.open(SingleBox(box, lambda _: None), target, dict(migration.decision))
    return {(name, state.key) for name, state in execution.named_states() if state.grouping is not None}
