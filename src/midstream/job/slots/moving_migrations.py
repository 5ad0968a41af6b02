"""Moving groups between slots that migrate: both go on at once.

The states of a migration under way are sorted by partition group as those of a plan are. Between slots that run by the
same plans and migrate in the same way, a group therefore moves by naming its ranges of all these states, and the
receiver goes on with its migration where the sender's was. What is not sorted by group (halves of results that wait for
each other, what a paced move has yet to send) has to be gone first; until then the move waits.
"""

from __future__ import annotations

import json

from midstream.checkpoint.packs import StateKey, joined
from midstream.distribution.routing import Routing
from midstream.job.lanes import Filled, Stored
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.segment_reuse import MOST_RANGES, ranges_of_groups
from midstream.migration.execution import SingleBox
from midstream.migration.in_part import way_decided
from midstream.migration.registry import strategy_named
from midstream.operators.box import Box


def in_tasks(query: RunningQuery) -> bool:
    """Whether a migration inside tasks has begun, in any slot."""
    migrations = (own.migration for own in (query, *query.local.values()))
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
                parts = (entry.part(hash_from, hash_to) for entry in entries)
                named = [part for part in parts if part.hash_from < part.hash_to]
                found.setdefault(number, {}).setdefault(target, []).extend(named)
    return {number: {slot: joined(entries) for slot, entries in slots.items()} for number, slots in found.items()}


def _form(query: RunningQuery) -> tuple[str, str]:
    """What slots must have in common for one to go on with the states of another."""
    migration = query.migration
    if migration is None or migration.begun is None:
        return query.plan.text, ""
    record = migration.to_json()
    return query.plan.text, json.dumps(
        [record[name] for name in ("plan", "strategy", "decision", "begun")], default=str
    )


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
