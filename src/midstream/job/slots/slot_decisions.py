"""What a job decides about its slots by itself: which groups move, and how many slots there are.

After each batch that brought rows, the load of slots (processor seconds, `Report.processor`) and the state that they
keep are measured, and parted among the groups of each slot by the rows that came for them. How many slots there are is
decided by the clock instead, because batches fall behind by the clock.

Decisions are taken before the batch is committed and are part of its manifest, with what the deciders remember: a
process that continues from it decides as if nothing had happened. Where plans are to change too, both are weighed
together, and what goes second waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.adaptation.balance import BalanceController, BalanceDecision, BalancePolicy, GroupLoad
from midstream.adaptation.hot_groups import HotController, HotDecision
from midstream.adaptation.scaling import ScaleController, ScalePolicy, SlotRange
from midstream.adaptation.weighing import SlotChange, Weighed
from midstream.checkpoint.manifest import Manifest
from midstream.distribution.key_classes import in_words
from midstream.distribution.routing import Routing
from midstream.job.batch import Batch
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.both_at_once import SHARED
from midstream.job.slots.doubled_moves import MSLB
from midstream.job.slots.hot_decisions import carry_out, decide, rows_of
from midstream.job.slots.measuring import Measure, Measured, measured
from midstream.job.slots.protocol_choice import Terms
from midstream.job.slots.relocation import groups_moved
from midstream.job.slots.spreading import SpreadGroups
from midstream.job.slots.weighed_moves import PlansDecided, PutOff, moved_groups, shared_group
from midstream.job.task.exchange import default_routing

WINDOW = 60.0
"""How many seconds a window is taken for, as long as nothing says how fast time goes."""

REMEMBERED = 32
"""How many decisions manifests remember."""


@dataclass(slots=True)
class SlotDecisions:
    """The deciders of a job: `balance` where groups move by themselves, `scaling` where slots come and go.

    `hot` divides groups that are hotter than a slot between several.
    """

    balance: BalanceController | None = None
    scaling: ScaleController | None = None
    hot: HotController | None = None
    measure: Measure = measured
    decisions: list[dict[str, Any]] = field(default_factory=list)
    last_started: float | None = None
    as_of: int | None = None
    """The batch that was seen last."""
    put_off: PutOff | None = None
    """What waits for another change since it was weighed."""
    weighed: Weighed | None = None
    """How the move that was decided last was weighed against changes of plans, if it was."""

    def go_on(self, manifest: Manifest | None) -> None:
        """Goes on from what a manifest says, if another batch was seen last."""
        if self.as_of == (None if manifest is None else manifest.batch_id):
            return
        self.decisions, self.last_started, record = [], None, dict[str, Any]()
        self.put_off = None
        if manifest is not None:
            self.decisions, record = [dict(d) for d in manifest.slots.decisions], dict(manifest.slots.deciding)
        if self.scaling is not None:
            self.scaling.recall(record.get("scaling", {}))
        if self.hot is not None:
            self.hot.recall(record.get("hot", {}))
        if (waits := record.get("put_off")) is not None:
            self.put_off = PutOff.from_json(waits)
        if self.balance is not None:
            self.balance.recall(record.get("balance", {}))

    def to_json(self) -> dict[str, Any]:
        """What a manifest says of what the deciders remember."""
        kept = {"balance": self.balance, "scaling": self.scaling, "hot": self.hot, "put_off": self.put_off}
        return {name: one.to_json() for name, one in kept.items() if one is not None}

    def after(
        self,
        batch: Batch,
        waiting: bool,
        spread: SpreadGroups | None = None,
        plans: PlansDecided | None = None,
    ) -> Routing | None:
        """How groups are to be dealt after a batch; None to leave them, or while a change is `waiting`.

        `spread` records which groups several slots are to share. `plans` are to change after the same batch.
        """
        self.go_on(batch.before)
        waiting = waiting or batch.slots.doubling is not None
        began, self.last_started, self.as_of = self.last_started, batch.started, batch.batch_id
        self.weighed = None
        self._wait_less(batch, waiting)
        if not batch.incoming.has_rows:
            return None
        interval = max(1e-6, batch.job_seconds if began is None else batch.started - began)
        seen = self.measure(batch, interval)
        if self.scaling is not None and not waiting:
            decision = self.scaling.consider(seen.busy, batch.slots.count)
            self._remember(batch, decision.as_dict())
            if decision.action != "stay":
                routing = tuple(default_routing(decision.slots, len(batch.slots.routing)))
                return Routing(routing, decision.slots, decision.reason)
        if self.hot is not None and spread is not None and not waiting and not self.awaited:
            hot = self._shared(self.hot, batch, seen, spread, plans)
            if hot.action != "stay":
                carry_out(hot, batch.queries, spread)
                return None
        return None if self.balance is None else self._balanced(self.balance, batch, seen, waiting, plans)

    @property
    def awaited(self) -> str:
        """Why groups do not move although they might: a plan changes first."""
        return self.put_off.reason if self.put_off is not None and self.put_off.first == "plan" else ""

    def _wait_less(self, batch: Batch, moving: bool) -> None:
        """Stops waiting once the first change is over; decisions about groups then start from new evidence."""
        waits = self.put_off
        if waits is None:
            return
        if waits.first == "move":
            self.put_off = waits if moving or batch.batch_id <= waits.since else None
        elif not waits.plan_still_changes(batch):
            self.put_off = None
            if self.balance is not None:
                self.balance.start_anew()
            if self.hot is not None:
                self.hot.start_anew()

    def _shared(
        self, hot: HotController, batch: Batch, seen: Measured, spread: SpreadGroups, plans: PlansDecided | None
    ) -> HotDecision:
        before = hot if plans is None else deepcopy(hot)
        decision = decide(hot, batch, seen, spread)
        arriving = decision.group is not None and not decision.key_class
        if decision.action == "spread" and arriving and decision.group is not None and plans is not None:
            rows, loads = rows_of(batch.reports, decision.group), _loads(seen)
            change = shared_group(loads, decision, rows, batch.slots.count)
            weighed = self._weigh(batch, seen, change, SHARED, plans)
            decision = replace(decision, reason=f"{decision.reason} {weighed.reason}")
            if weighed.order == "plan":
                self.hot, decision = before, replace(decision, action="wait")
        self._remember(batch, decision.as_dict())
        return decision

    def _balanced(
        self, balance: BalanceController, batch: Batch, seen: Measured, waiting: bool, plans: PlansDecided | None
    ) -> Routing | None:
        balance.window = _window(batch.queries, seen.ticks_per_second) or balance.window
        slots, before = batch.slots, balance if plans is None else deepcopy(balance)
        names = [str(slot) for slot in range(slots.count)]
        moving = frozenset(range(len(slots.routing))) if waiting else frozenset[int]()
        fixed = {*range(len(seen.groups), len(seen.groups) + len(seen.shared)), *(group for group, _ in seen.shared)}
        terms = Terms.of(batch.queries)
        # Groups of later stages move by naming their state alone.
        protocols = terms.protocols if len(seen.classes) == 1 else (MSLB,)
        decision = balance.consider(
            _loads(seen),
            names,
            protocols,
            moving,
            fixed=fixed,
            carried=terms.carried,
            doubled=terms.doubled,
            awaited=self.awaited,
        )
        protocol = decision.requests[0].protocol if decision.requests else ""
        if decision.action == "move" and plans is not None:
            change = moved_groups(_loads(seen), _places(seen, decision), decision.forecast.cost)
            weighed = self._weigh(batch, seen, change, protocol, plans)
            decision = replace(decision, reason=f"{decision.reason} {weighed.reason}")
            if weighed.order == "plan":
                self.balance, decision = before, replace(decision, action="wait")
        moves = _moves(slots.dealing, seen, decision)
        self._remember(batch, {"kind": "groups", **decision.as_dict(), **moves})
        if decision.action != "move":
            return None
        dealt = seen.dealt(slots.dealing, _places(seen, decision))
        return replace(dealt, trigger=decision.reason, protocol=protocol)

    def _weigh(self, batch: Batch, seen: Measured, change: SlotChange, protocol: str, plans: PlansDecided) -> Weighed:
        """Weighs a move against changes of plans; what goes second is put off."""
        policy = BalancePolicy() if self.balance is None else self.balance.policy
        window = WINDOW if self.balance is None else self.balance.window
        weighed = plans.against(batch, _loads(seen), change, protocol, window, policy.horizon, seen.ticks_per_second)
        if weighed.order != "both":
            self.put_off = PutOff(weighed.order, tuple(plans.queries), batch.batch_id)
        self.weighed = weighed
        return weighed

    def _remember(self, batch: Batch, record: dict[str, Any]) -> None:
        """Keeps a decision, and of a run of equal decisions to stay only the last."""
        weighed = {"weighed": self.weighed.as_dict()} if self.weighed is not None and record["action"] != "stay" else {}
        record = {"batch": batch.batch_id, **record, **weighed}
        alike = [i for i, past in enumerate(self.decisions) if past["kind"] == record["kind"]]
        if record["action"] == "stay" and alike and self.decisions[alike[-1]]["action"] == "stay":
            del self.decisions[alike[-1]]
        self.decisions = [*self.decisions, record][-REMEMBERED:]


def _loads(seen: Measured) -> list[GroupLoad]:
    """The loads of groups, and then of what slots share of some besides their homes."""
    return [*seen.groups, *(load for _, load in seen.shared)]


def _places(seen: Measured, decision: BalanceDecision) -> list[int]:
    """The slots of all groups of all classes as is decided."""
    places = [int(group.owner) for group in seen.groups]
    for request in decision.requests:
        for group in request.groups:
            places[group] = int(request.receiver)
    return places


def _moves(old: Routing, seen: Measured, decision: BalanceDecision) -> dict[str, Any]:
    """What a decision says of key classes: how many groups move of each, and the groups by their own numbers."""
    changed = groups_moved(old, seen.dealt(old, _places(seen, decision)))
    if not any(changed):
        return {}
    size, record = len(old.groups), decision.as_dict()
    moves = [{**move, "groups": [group % size for group in move["groups"]]} for move in record["moves"]]
    words = ", ".join(f"{count} {in_words(name)}" for name, count in changed.items())
    return {"classes": changed, "moves": moves, "reason": f"{record['reason']} Groups: {words}."}


def _window(queries: Mapping[str, RunningQuery], ticks_per_second: float) -> float | None:
    """The longest window of all queries in seconds; None if it never ends, or nothing says how fast time goes."""
    longest = [source.longest for query in queries.values() for source in query.sources]
    known = [ticks for ticks in longest if ticks is not None]
    if not known or not ticks_per_second:
        return None
    return max(known) / ticks_per_second


def deciders(rebalancing: bool, slots: SlotRange | None) -> SlotDecisions | None:
    """Those who decide about a job's slots; None if nobody does."""
    if not rebalancing and slots is None:
        return None
    return SlotDecisions(
        BalanceController(WINDOW, together=True) if rebalancing else None,
        None if slots is None else ScaleController(slots, ScalePolicy()),
        HotController() if rebalancing else None,
    )
