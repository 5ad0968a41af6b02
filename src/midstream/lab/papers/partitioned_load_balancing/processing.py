"""A processor's machine: a box over its groups, fed from the queues of split operators.

All of a step's changes are written to its disk with it. Segments never change, so what is written is only which there
are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from midstream.algebra.physical import PhysicalNode
from midstream.algebra.time import BEGINNING
from midstream.distribution.fragments import Key
from midstream.lab.papers.partitioned_load_balancing.delivery import Packet, Queues, Received
from midstream.lab.papers.partitioned_load_balancing.group_states import GroupStates, Shipped, filled, group_of_rows
from midstream.lab.papers.partitioned_load_balancing.old_track import OldTrack
from midstream.lab.papers.partitioned_load_balancing.protocols import processor
from midstream.lab.papers.partitioned_load_balancing.protocols.messages import (
    Flag,
    Message,
    ReceivePartitions,
    Send,
    StartOfDuplicates,
)
from midstream.lab.papers.partitioned_load_balancing.protocols.processor import (
    Drop,
    Facts,
    Install,
    ProcessorState,
    Ship,
)
from midstream.lab.papers.partitioned_load_balancing.rows import Batch, ChangePlan, Results
from midstream.lab.papers.partitioned_load_balancing.splitting import AGAIN
from midstream.lab.papers.partitioned_load_balancing.tracks import (
    Apart,
    Limited,
    Marked,
    Meter,
    RowMeter,
    all_of,
    box_of,
    limited,
    nothing_of,
)
from midstream.lab.simulated_cluster.machines import Disk, MachineStep
from midstream.migration.execution import SingleBox
from midstream.operators.elements import Elements


@dataclass(frozen=True, slots=True)
class Setup:
    """What a processor starts with; `by_intervals` as `OldTrack` has it, `sure` as queues have it."""

    name: str
    manager: str
    sink: str
    splits: Sequence[str]
    plan: PhysicalNode
    keys: dict[str, Key]
    groups: int
    by_intervals: bool = True
    sure: bool = False


@dataclass(frozen=True, slots=True)
class Pending:
    """States that wait until this machine stands where they were taken."""

    move: int
    groups: tuple[int, ...]
    shipped: Shipped


class Processing:
    """The program of a processor."""

    def __init__(self, disk: Disk, setup: Setup, meter: Meter | None = None) -> None:
        self.setup, self.meter = setup, meter or RowMeter()
        self.results: list[Elements] = []
        self.apart: dict[int, Apart] = {}
        self.promised = BEGINNING
        self.frontiers = dict.fromkeys(setup.splits, BEGINNING)
        self.pending: tuple[Pending, ...] = ()
        self.state = ProcessorState(setup.name, setup.manager)
        main, ends = nothing_of(setup.plan, BEGINNING), None
        written = disk.get("processor")
        if written is not None:
            self.state, frontiers, self.pending, main, apart, self.promised, ends = written
            self.frontiers = dict(frontiers)
            self.apart = {move: self._restored(*saved) for move, saved in apart.items()}
        self.main = SingleBox(box_of(main), self.results.append, self.meter.schedule)
        self.queues = Queues(setup.sure, ends)

    def start(self, step: MachineStep) -> None:
        """Sends again what was not answered."""
        self.queues.again(step)
        self._set_timer(step)

    def wake(self, step: MachineStep, timer: str) -> None:
        """Sends again what was not answered."""
        self.queues.again(step)
        self._set_timer(step)

    def receive(self, step: MachineStep, sender: str, message: Any) -> None:
        """Takes a packet of a queue, a message of a protocol, or another plan."""
        match message:
            case Received():
                self.queues.acknowledged(sender, message)
            case Packet():
                for payload in self.queues.take(step, sender, message):
                    self._take(step, sender, payload)
            case Message():
                self._go_on(step, processor.receive(self.state, message))
            case ChangePlan(plan=plan):
                self._change_plan(plan)
        self._end(step)

    def _take(self, step: MachineStep, sender: str, payload: Batch | Flag) -> None:
        if isinstance(payload, Flag):
            if isinstance(payload, StartOfDuplicates) and not self._started(payload.move):
                self._set_apart(payload)
            self._go_on(step, processor.flag(self.state, sender, payload))
            return
        for rows in payload.rows:
            self._feed(rows.alias, rows.elements, rows.new)
        self.frontiers[sender] = max(self.frontiers[sender], payload.frontier)
        frontier = min(self.frontiers.values())
        if frontier > self.main.box.frontier:
            for execution in self._executions():
                execution.advance(frontier)

    def _started(self, move: int) -> bool:
        part = self.state.parts.get(move)
        return part is not None and bool(part.started)

    def _set_apart(self, flag: StartOfDuplicates) -> None:
        """Takes groups that start to move out of the box, or makes room for those that come."""
        sending = flag.sender == self.setup.name
        if flag.marked and not sending:
            return
        states = GroupStates(self.main.box, self.setup.groups)
        shipped = states.take(flag.groups) if sending else nothing_of(self.main.box.plan, self.main.box.frontier)
        if sending:
            states.drop(flag.groups)
        if flag.marked:
            track = OldTrack(shipped, self.results.append, self.setup.by_intervals, self.meter.schedule)
            self.apart[flag.move] = Marked(flag.groups, track)
        else:
            self.apart[flag.move] = limited(flag.groups, shipped, "before" if sending else "after", self.meter.schedule)

    def _feed(self, alias: str, elements: Elements, new: bool) -> None:
        if isinstance(self.meter, RowMeter):
            self.meter.fed(len(elements))
        if self.apart:
            groups = group_of_rows(elements, self.setup.keys[alias], alias, self.setup.groups)
            left = np.ones(len(elements), bool)
            for track in self.apart.values():
                mask = np.isin(groups, track.groups)
                left &= ~mask
                if mask.any():
                    track.feed(alias, elements.where(mask), new)
            elements = elements.where(left)
        if len(elements):
            self.main.feed(alias, elements)

    def _executions(self) -> list[SingleBox]:
        return [self.main, *(track.execution for track in self.apart.values())]

    def _go_on(self, step: MachineStep, result: tuple[ProcessorState, tuple[processor.Action, ...]]) -> None:
        self.state, actions = result
        for action in actions:
            match action:
                case Send(to=to, message=message):
                    step.send(to, message, urgent=True)
                case Drop(move=move, groups=groups):
                    self._drop(move, groups)
                case Ship(move=move, groups=groups, receiver=receiver):
                    shipped = GroupStates(self.main.box, self.setup.groups).take(groups)
                    step.send(receiver, ReceivePartitions(move, groups, shipped), shipped.rows, urgent=True)
                case Install(move=move, groups=groups, contents=contents):
                    self.pending = (*self.pending, Pending(move, groups, contents))

    def _drop(self, move: int, groups: tuple[int, ...]) -> None:
        if self.apart.pop(move, None) is None:
            GroupStates(self.main.box, self.setup.groups).drop(groups)

    def _install(self, step: MachineStep) -> None:
        """Puts states in place that were taken where this machine stands now."""
        for pending in self.pending:
            if self.main.box.frontier >= pending.shipped.frontier:
                arrived = GroupStates(self.main.box, self.setup.groups).put(pending.shipped)
                self.meter.moved(pending.shipped, arrived)
                self.pending = tuple(p for p in self.pending if p is not pending)
                self._go_on(step, processor.installed(self.state, pending.move))

    def _change_plan(self, plan: PhysicalNode) -> None:
        """A local optimisation: the box goes on with another plan, its states matched or recomputed."""
        shipped = all_of(self.main.box)
        box = filled(shipped, plan)
        self.meter.moved(shipped, box)
        self.main = SingleBox(box, self.results.append, self.meter.schedule)

    def _merge(self) -> None:
        """Groups that have come for good join the others."""
        for move, track in list(self.apart.items()):
            part = self.state.parts.get(move)
            if isinstance(track, Limited) and part is not None:
                track.split_at = part.split_at
                self.results += track.given()
                if part.over and track.side == "after":
                    GroupStates(self.main.box, self.setup.groups).put(track.taken())
                    del self.apart[move]

    def _facts(self) -> Facts:
        choosing = any(part.until == "chosen" for part in self.state.parts.values())
        frontier = self.main.box.frontier
        states = GroupStates(self.main.box, self.setup.groups) if choosing else None
        loads = {} if states is None else {g: float(rows) for g, rows in states.rows(frontier).items()}
        watched = self.state.watched
        old = {
            group
            for track in self.apart.values()
            if isinstance(track, Marked) and watched.intersection(track.groups) and track.track.holds_old
            for group in track.groups
        }
        return Facts(loads, frozenset(old), self._passed, frontier)

    @property
    def _passed(self) -> int:
        return min([self.main.passed, *(track.passed for track in self.apart.values())])

    def _end(self, step: MachineStep) -> None:
        self._install(step)
        self._merge()
        self._go_on(step, processor.observe(self.state, self._facts()))
        self._merge()
        passed = max(self.promised, self._passed)
        if self.results or passed > self.promised:
            results = Results(tuple(self.results), passed)
            self.queues.put(step, self.setup.sink, results, results.size)
            self.results.clear()
            self.promised = passed
        step.work(self.meter.taken())
        self._set_timer(step)
        if not self.setup.sure:
            step.write("processor", self._written())

    def _written(self) -> tuple[Any, ...]:
        apart = {
            move: (track.groups, track.taken(), None)
            if isinstance(track, Marked)
            else (track.groups, track.taken(), (track.side, track.split_at, track.since, tuple(track.waiting)))
            for move, track in self.apart.items()
        }
        main, ends = all_of(self.main.box), self.queues.ends()
        return self.state, dict(self.frontiers), self.pending, main, apart, self.promised, ends

    def _restored(self, groups: tuple[int, ...], shipped: Shipped, limits: Any) -> Apart:
        if limits is None:
            sink, by_intervals = self.results.append, self.setup.by_intervals
            return Marked(groups, OldTrack(shipped, sink, by_intervals, self.meter.schedule, marked=True))
        side, split_at, since, waiting = limits
        track = limited(groups, shipped, side, self.meter.schedule)
        track.split_at, track.since = split_at, since
        track.waiting.extend(waiting)
        return track

    def _set_timer(self, step: MachineStep) -> None:
        if self.queues.pending:
            step.set_timer("again", AGAIN)
