"""What is decided after a batch: by those who watch queries about plans, and about slots, both weighed together.

Where a plan is to change and groups are to move after the same batch, `adaptation/weighing.py` says in which order.
What goes first begins with the next batch; what waits is decided about again once the other is over, from what is
measured then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from midstream.adaptation.controller import Decision
from midstream.adaptation.weighing import PlanChange, Weighed
from midstream.job.actions import Decided
from midstream.job.adaptivity import Watcher
from midstream.job.batch import Batch
from midstream.job.migrations.migrating import require_way
from midstream.job.slots.both_at_once import not_together
from midstream.job.slots.slot_decisions import SlotDecisions
from midstream.job.slots.weighed_moves import PlansDecided
from midstream.job.state import JobState
from midstream.job.watchers import Watchers


def decided(state: JobState, watchers: Watchers, slots: SlotDecisions | None, batch: Batch) -> Decided:
    """What those who watch queries and slots have decided after a batch."""
    incoming = batch.incoming
    carried = {d.name: incoming.layout.schemas[port].names for port, d in incoming.streams.items()}
    knowledge = watchers.after(batch, partial(require_way, state, carried=carried), state.settings.links)
    if slots is None:
        return Decided(knowledge)
    spread = state.spread.copy()
    seen = watchers.by_query if incoming.has_rows else {}
    wishing = {name: watcher for name, watcher in seen.items() if any(_deciders(watcher))}
    plans = PlansDecided(list(_changes(wishing.values())), partial(_apart, state, wishing)) if wishing else None
    routing = slots.after(batch, state.wanted is not None, spread, plans)
    for name, watcher in wishing.items():
        if slots.weighed is not None:
            _follow(watcher, slots.weighed)
        elif slots.put_off is not None and slots.put_off.first == "move" and name in slots.put_off.queries:
            _put_off(watcher, "Groups that move first, as was weighed, are still under way. The plan waits.")
        knowledge[name] = watcher.kept()
    return Decided(knowledge, routing, spread, tuple(slots.decisions), slots.to_json())


def _deciders(watcher: Watcher) -> Iterator[tuple[int | None, Watcher, Decision]]:
    """Those of a query that have decided to change the plan, with the slot that they decide for; None: for all."""
    if watcher.wishes.whole is not None and watcher.decided is not None:
        yield None, watcher, watcher.decided
    for slot in watcher.wishes.by_slot:
        own = watcher.slots.get(slot)
        if own is not None and own.decided is not None:
            yield slot, own, own.decided


def _changes(watchers: Iterable[Watcher]) -> Iterator[PlanChange]:
    for watcher in watchers:
        for slot, _, decision in _deciders(watcher):
            cost = max(decision.cost, 1e-12)
            yield PlanChange(watcher.name, slot, decision.target_cost / cost, decision.migration_cost / cost)


def _apart(state: JobState, watchers: Mapping[str, Watcher], protocol: str) -> str:
    """Why plans cannot begin to change in the batch in which groups begin to move by a protocol; empty if they can."""
    for name, watcher in watchers.items():
        for slot, _, decision in _deciders(watcher):
            query = state.queries[name]
            own = query if slot is None else query.in_slot(slot)
            if why := not_together(protocol, own, state.target(own, decision.target)):
                return why
    return ""


def _follow(watcher: Watcher, weighed: Weighed) -> None:
    """Adds to the decision about a query's plan how it was weighed; the plan waits where groups move first."""
    if weighed.order == "move":
        _put_off(watcher, weighed.reason)
        return
    for _, own, decision in list(_deciders(watcher)):
        reason = f"{decision.reason} {weighed.reason}"
        _correct(watcher, own, decision, replace(decision, reason=reason))
        assert own.wishes.whole is not None
        own.wishes.whole["reason"] = reason


def _put_off(watcher: Watcher, reason: str) -> None:
    """Keeps a query at its plan for now; a slot gathers evidence anew, for moved groups change what it sees."""
    for slot, own, decision in list(_deciders(watcher)):
        _correct(watcher, own, decision, replace(decision, action="wait", reason=f"{decision.reason} {reason}"))
        own.wishes.whole = None
        if slot is not None:
            own.adaptive.controller.called_off()
    watcher.wishes.by_slot = {}


def _correct(watcher: Watcher, own: Watcher, before: Decision, after: Decision) -> None:
    watcher.adaptive.correct(before, after)
    watcher.decided = after if watcher.decided is before else watcher.decided
    own.decided = after
