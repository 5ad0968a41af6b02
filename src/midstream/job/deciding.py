"""What is decided after a batch: by those who watch queries about plans, and then about slots.

What a plan would leave slots to do is known when it is decided, so that slots are decided about as if it ran already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from midstream.job.actions import Decided
from midstream.job.adaptivity import Watcher
from midstream.job.batch import Batch
from midstream.job.migrations.migrating import require_way
from midstream.job.slots.both_at_once import not_together
from midstream.job.slots.measuring import PlanChange, PlansDecided
from midstream.job.slots.slot_decisions import SlotDecisions
from midstream.job.state import JobState
from midstream.job.watchers import Watchers
from midstream.optimizer.plans import plan_query

Found = tuple[str, int | None, Mapping[str, Any]]
"""A query, the slot that is decided for (None: all), and what was decided."""


def decided(state: JobState, watchers: Watchers, slots: SlotDecisions | None, batch: Batch) -> Decided:
    """What those who watch queries and slots have decided after a batch."""
    incoming = batch.incoming
    carried = {d.name: incoming.layout.schemas[port].names for port, d in incoming.streams.items()}
    knowledge = watchers.after(batch, partial(require_way, state, carried=carried), state.settings.links)
    if slots is None:
        return Decided(knowledge)
    spread, changing = state.spread.copy(), list(_changing(watchers.by_query)) if incoming.has_rows else []
    changes = [PlanChange(name, slot, made["target_cost"] / max(made["cost"], 1e-12)) for name, slot, made in changing]
    plans = PlansDecided(changes, partial(_apart, state, changing))
    found = slots.after(batch, watchers.interval(batch), state.wanted is not None, spread, plans)
    return Decided(knowledge, found.routing, spread, found.decisions, found.remembered)


def _changing(watchers: Mapping[str, Watcher]) -> Iterator[Found]:
    """The plans that are to change, of whole queries and of slots."""
    for name, watcher in watchers.items():
        if watcher.wish is not None:
            yield name, None, watcher.wish
        yield from ((name, slot, wish) for slot, wish in watcher.slot_wishes.items())


def _apart(state: JobState, changing: list[Found], protocol: str) -> str:
    """Why groups cannot begin to move by a protocol in the batch in which plans begin to change; empty if they can."""
    for name, slot, wish in changing:
        query = state.queries[name] if slot is None else state.queries[name].in_slot(slot)
        target = plan_query(query.plan.query, wish["target"], query.emit_every)
        if why := not_together(protocol, query, state.target(query, target)):
            return f"The plan of query {name} changes first: {why}."
    return ""
