"""Moving state between slots that run by different plans.

Inside a fragment all rows that meet are of one group, so the state of a group is fitted to another plan of the same
stages without that of other groups. What leaves a slot is therefore brought to the plan of the slot that gets it, pair
by pair of plans: what the receiver's plan holds too is taken as it is, by its id, what it alone holds is derived for
the moved groups. A slot then has the segments of all pairs together, each of groups of its own.

Where a plan's state does not follow from what another plan keeps, all slots first go over to one plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.manifest import Manifest
from midstream.distribution.fragments import Routing
from midstream.errors import MigrationError
from midstream.job.plans.local_plans import SlotPlans, plans_by_slot
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.moving import PlanMove


def pair_moves(
    query: RunningQuery, target: RunningQuery, before: Manifest, old: Routing, new: Routing
) -> list[PlanMove]:
    """How the state of a query whose slots run by different plans comes to other slots; refuses what does not follow.

    `target` is the query by the plans that its slots will run by.
    """
    stored = before.segments.get(query.name, {})
    frontier = before.advanced_to.get(query.name, BEGINNING)
    going = _going(query, old, new)
    moves: list[PlanMove] = []
    for sender, senders in _by_plan(query, old.slots):
        for receiver, receivers in _by_plan(target, new.slots):
            from_slots = {slot for slot in senders if going[slot] & receivers}
            if not from_slots:
                continue
            part = {n: {s: e for s, e in slots.items() if s in from_slots} for n, slots in stored.items()}
            several = len(receiver.staged.fragments) > 1
            into = frozenset(receivers)
            pair = PlanMove(query.name, sender, receiver, part, frontier, len(moves), into=into, within=several)
            moves.append(pair)
    return moves


def _by_plan(query: RunningQuery, slots: int) -> Iterator[tuple[RunningQuery, set[int]]]:
    """The plans that run, with their slots."""
    plans: dict[str, tuple[RunningQuery, set[int]]] = {}
    for slot in range(slots):
        own = query.in_slot(slot)
        plans.setdefault(own.plan.text, (own, set()))[1].add(slot)
    yield from plans.values()


def _going(query: RunningQuery, old: Routing, new: Routing) -> dict[int, set[int]]:
    """To which slots rows of each slot go."""
    routes = [*query.staged.routes.values(), *(leaf.route for f in query.staged.fragments for leaf in f.received)]
    first = {0} if any(route.is_one_slot for route in routes) else set()
    anywhere = any(route.key is None for route in routes)
    found = {slot: first | ({slot % new.slots} if anywhere else set()) for slot in range(old.slots)}
    for _, lay, lie in old.beside(new):
        for owner, target in zip(lay, lie, strict=True):
            found[owner].add(target)
    return found


def after_move(query: RunningQuery, slots: int) -> RunningQuery:
    """The query in another number of slots: each goes on by its plan, new ones by the query's."""
    return replace(query, local={slot: own for slot, own in query.local.items() if slot < slots})


def unified(
    query: RunningQuery,
    sorted_query: RunningQuery,
    before: Manifest,
    old: Routing,
    new: Routing,
    refusal: MigrationError,
) -> tuple[RunningQuery, list[PlanMove], dict[str, Any]]:
    """The query by one plan in all slots, how its state comes to that, and what the history says of it.

    `sorted_query` is the query with states in the order that they will have.
    """
    for candidate, _ in [(sorted_query, set()), *_by_plan(sorted_query, old.slots)]:
        target = replace(candidate, local={}, migration=None)
        try:
            moves = pair_moves(query, target, before, old, new)
        except MigrationError:
            continue
        return target, moves, _record(query, target, old.slots, before.batch_id + 1, refusal)
    raise refusal


def _record(
    query: RunningQuery, target: RunningQuery, slots: int, batch_id: int, refusal: MigrationError
) -> dict[str, Any]:
    plans = plans_by_slot(query, slots)
    return {
        "trigger": f"groups move between slots whose plans cannot give each other their state: {refusal.message}",
        "old_plan": SlotPlans(plans).text,
        "new_plan": target.plan.text,
        "strategy": "moving_state",
        "slots": [slot for slot, plan in plans.items() if plan.text != target.plan.text],
        "start_batch": batch_id,
        "end_batch": batch_id,
        "status": "done",
    }
