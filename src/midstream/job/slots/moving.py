"""Moving state at a batch boundary: to the slots and plans that the batch will run by.

A batch goes on from a manifest. Before it runs, the state that manifest names can be taken to other slots (another
number of them, other groups in each) and to other plans. Results are never given again: what has been given depends on
the input and the frontier alone. The batch then runs as if the manifest had always named the state as it is now. The
move counts when the batch's own manifest is committed; until then a crash leaves files that nobody names, and the next
attempt moves again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from midstream.checkpoint.packs import SegmentEntry, Stored, entries_in
from midstream.distribution.fragments import Routing
from midstream.distribution.moves import Address, FragmentFill, Shipment, plan_move, plan_move_within
from midstream.job.lanes import Filled, together
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.segment_reuse import SegmentReuse, reuse_of
from midstream.job.task.exchange import Layout
from midstream.job.task.memory import Memory
from midstream.job.task.move_steps import FillStep, Parcel, SendStep
from midstream.job.task.reports import Report
from midstream.job.task.state_store import FillWork

_GIVEN = "given"


@dataclass(slots=True)
class PlanMove:
    """The state of a lane on its way to another plan or other slots, or that of slots with a plan of their own."""

    lane: str
    old: RunningQuery
    new: RunningQuery
    stored: Stored
    advanced_to: int
    pair: int = 0
    feeds: bool = False
    """Whether what is sent for its streams goes through all stages of the plan, which stays."""
    into: frozenset[int] | None = None
    """The slots that run by the new plan, if others do not."""
    within: bool = False
    """Whether each fragment is filled from the same one of the old plan, which has the same stages."""
    fills: list[FragmentFill] = field(init=False)
    reused: dict[Address, SegmentReuse] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What tells it from all other moves before a batch."""
        return f"{self.lane}/{self.pair}" if self.pair else self.lane

    def __post_init__(self) -> None:
        old, new, functions = self.old.staged, self.new.staged, self.new.functions
        self.fills = (
            plan_move_within(old, new, functions)
            if self.within
            else plan_move(old, self.old.plan.physical, new, functions)
        )

    def decide_reuse(self, old: Routing, new: Routing) -> None:
        """Decides what is sent and what stays where it is."""
        for shipment in self.shipments():
            stored = {} if shipment.origin is None else self.stored.get(shipment.origin.fragment, {})
            self.reused[shipment.address] = reuse_of(shipment, stored, old, new).into(self.into)

    def entries(self) -> Iterator[SegmentEntry]:
        """All segments that were there before, whole or in the parts that new slots name."""
        named = (entry for reused in self.reused.values() for entries in reused.kept.values() for entry in entries)
        return chain(entries_in(self.stored), named)

    def shipments(self) -> Iterator[Shipment]:
        """All that new fragments ask for."""
        return (shipment for fill in self.fills for shipment in fill.shipments)

    def frontier_of(self, shipment: Shipment, frontiers: Mapping[int, int]) -> int:
        """Until when what a shipment holds must have ended not to be sent; `frontiers` are those of fragments."""
        return frontiers[shipment.fragment]

    def reuse(self, shipment: Shipment) -> SegmentReuse:
        """What becomes of the segments that a shipment is read from."""
        return self.reused[shipment.address]

    @property
    def in_place(self) -> bool:
        """Whether the new plan can have all it needs by naming it."""
        derived = self.feeds or any(fill.derives for fill in self.fills)
        return not derived and not any(reused.sent for reused in self.reused.values())

    def gives(self, fill: FragmentFill) -> bool:
        """Whether something of a fragment's output goes on to its reader."""
        return fill.gives or (self.feeds and fill.fragment.reader is not None)

    def named(self) -> dict[int, dict[int, list[SegmentEntry]]]:
        """The segments of a plan that has all it needs."""
        found: dict[int, dict[int, list[SegmentEntry]]] = {}
        for shipment in self.shipments():
            for slot, entries in self.reuse(shipment).kept.items():
                found.setdefault(shipment.fragment, {}).setdefault(slot, []).extend(entries)
        return found


@dataclass(slots=True)
class Move:
    """All plans whose state moves before a batch."""

    checkpoint: str
    batch_id: int
    plans: list[PlanMove]
    old: Routing
    new: Routing
    memory: Memory = field(default_factory=Memory)
    rows_sent: int = 0
    bytes_written: int = 0
    working: list[PlanMove] = field(init=False)
    """The plans for which slots have something to do."""

    def __post_init__(self) -> None:
        for plan in self.plans:
            plan.decide_reuse(self.old, self.new)
        self.working = [plan for plan in self.plans if not plan.in_place]

    @property
    def stages(self) -> int:
        """How many stages the new plans need to be filled; none if nothing is sent or derived."""
        return max((plan.new.staged.stages for plan in self.working), default=0)

    def steps(self) -> tuple[SendStep, list[FillStep]]:
        """What old slots do, and what new slots do stage by stage."""
        ports = {name: port for port, name in enumerate(self._travelling())}
        layout = Layout.of({port: schema for port, schema in enumerate(self._travelling().values())})
        parcels = [parcel for plan in self.working for parcel in self._parcels(plan, ports)]
        sending = SendStep(self.checkpoint, layout, self.new, self.new.slots, tuple(parcels), self.memory)
        return sending, [
            FillStep(
                self.checkpoint,
                self.batch_id,
                stage,
                stage == self.stages - 1,
                layout,
                self.new,
                tuple(work for plan in self.working for work in self._work(plan, stage, ports)),
                self.new.slots,
                self.memory,
            )
            for stage in range(self.stages)
        ]

    def segments(self, reports: Sequence[Report]) -> dict[str, Filled]:
        """The segments of all lanes after the move."""
        found: dict[str, list[Filled]] = {plan.lane: [] for plan in self.plans}
        for plan in self.plans:
            found[plan.lane].append(plan.named() if plan.in_place else {})
        lanes = {plan.name: plan.lane for plan in self.working}
        known = {e.place for plan in self.plans for e in plan.entries()}
        for report in reports:
            self.rows_sent += sum(report.streams.rows.values())
            for (name, fragment), part in report.fragments.items():
                found[lanes[name]].append({fragment: {report.slot: part.entries}} if part.entries else {})
                self.bytes_written += sum(e.bytes for e in part.entries if e.place not in known)
        return {lane: together(*parts) for lane, parts in found.items()}

    def _travelling(self) -> dict[tuple[str, object], pa.Schema]:
        """What has a port: shipments that are sent, and the output of fragments that give it."""
        found: dict[tuple[str, object], pa.Schema] = {}
        for plan in self.working:
            for shipment in plan.shipments():
                if plan.reuse(shipment).sent:
                    found[plan.name, shipment.address] = shipment.schema
            for fill in plan.fills:
                if plan.gives(fill):
                    found[plan.name, (_GIVEN, fill.fragment.number)] = fill.fragment.plan.schema
        return found

    def _parcels(self, plan: PlanMove, ports: Mapping[tuple[str, object], int]) -> list[Parcel]:
        frontiers = plan.new.frontiers(plan.advanced_to)
        return [
            Parcel(
                plan.name,
                shipment,
                ports[plan.name, shipment.address],
                plan.frontier_of(shipment, frontiers),
                reused.sent,
                frozenset(reused.parted),
                plan.into,
            )
            for shipment in plan.shipments()
            if (reused := plan.reuse(shipment)).sent
        ]

    def _work(self, plan: PlanMove, stage: int, ports: Mapping[tuple[str, object], int]) -> Iterator[FillWork]:
        frontiers = plan.new.frontiers(plan.advanced_to)
        for fill in plan.fills:
            if fill.fragment.stage != stage:
                continue
            given = [f for f in fill.fragment.received if plan.feeds or f.fragment in fill.receives]
            yield FillWork(
                plan.name,
                fill,
                plan.new.functions,
                frontiers[fill.fragment.number],
                {ports[p]: s for s in fill.shipments if (p := (plan.name, s.address)) in ports},
                {(s.name, s.key): plan.reuse(s).kept for s in fill.shipments if s.what == "state"},
                {(s.name, s.key): plan.reuse(s).parted for s in fill.shipments if s.what == "state"},
                {ports[plan.name, (_GIVEN, f.fragment)]: f.stream.alias for f in given},
                ports.get((plan.name, (_GIVEN, fill.fragment.number)), -2),
                plan.feeds,
                plan.into,
            )
