"""Moving state between slots that run by different plans.

Inside a fragment all rows that meet are of one group, so the state of a group is fitted to another plan of the same
stages without that of other groups. What leaves a slot is therefore brought to the plan of the slot that gets it, pair
by pair of plans: what the receiver's plan holds too is taken as it is, by its id, what it alone holds is derived for
the moved groups. A slot then has the segments of all pairs together, each of groups of its own.

Where a plan's state does not follow from what another plan keeps, all slots first go over to one plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import lane_name
from midstream.distribution.fragments import Routing
from midstream.errors import MigrationError
from midstream.job.lanes import plan_lanes
from midstream.job.plans.local_plans import SlotPlans, plans_by_slot
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.moving import PlanMove


def state_moves(
    query: RunningQuery, target: RunningQuery, before: Manifest, old: Routing, new: Routing
) -> tuple[RunningQuery, list[PlanMove], dict[str, Any] | None]:
    """A query by the plans that its slots will run by, how its state comes to them, and what the history says of it.

    `target` has states in the order that they will have. The history tells of slots that have to come to one plan.
    """
    target = after_move(target, new.slots)
    try:
        return target, list(_moves(query, target, before, old, new)), None
    except MigrationError as error:
        if not query.local:
            raise
        return _unified(query, target, before, old, new, error)


def _moves(
    query: RunningQuery, target: RunningQuery, before: Manifest, old: Routing, new: Routing
) -> Iterator[PlanMove]:
    """How the state of each lane comes to other plans and slots, pair by pair of plans where slots have their own."""
    frontier, lanes = before.advanced_to.get(query.name, BEGINNING), {n: own for n, own, _ in plan_lanes(query)}
    for number, coming, _ in plan_lanes(target):
        lane = lane_name(query.name, number)
        stored = before.segments.get(lane, {})
        if not query.local:
            yield PlanMove(lane, lanes[number], coming, stored, frontier)
            continue
        going, pairs = _going(query, old, new), 0
        for sender, senders in _by_plan(query, old.slots):
            for receiver, receivers in _by_plan(coming, new.slots):
                from_slots = {slot for slot in senders if going[slot] & receivers}
                if not from_slots:
                    continue
                part = {n: {s: e for s, e in slots.items() if s in from_slots} for n, slots in stored.items()}
                several, into = len(receiver.staged.fragments) > 1, frozenset(receivers)
                yield PlanMove(lane, sender, receiver, part, frontier, pairs, into=into, within=several)
                pairs += 1


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


def _unified(
    query: RunningQuery, target: RunningQuery, before: Manifest, old: Routing, new: Routing, refusal: MigrationError
) -> tuple[RunningQuery, list[PlanMove], dict[str, Any]]:
    """The query by one plan in all slots, if there is one to which the states of all others come."""
    for plan, _ in [(target, set()), *_by_plan(target, old.slots)]:
        one = replace(plan, local={}, migration=None)
        with suppress(MigrationError):
            moves = list(_moves(query, one, before, old, new))
            return one, moves, _record(query, one, old.slots, before.batch_id + 1, refusal)
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
