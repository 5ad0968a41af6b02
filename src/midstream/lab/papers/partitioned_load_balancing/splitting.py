"""A machine with split operators: reads its streams tick by tick and routes rows by their groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from midstream.algebra.time import BEGINNING
from midstream.distribution.fragments import Key
from midstream.lab.papers.partitioned_load_balancing.delivery import Packet, Queues, Received
from midstream.lab.papers.partitioned_load_balancing.group_states import group_of_rows
from midstream.lab.papers.partitioned_load_balancing.protocols import split
from midstream.lab.papers.partitioned_load_balancing.protocols.messages import Message
from midstream.lab.papers.partitioned_load_balancing.protocols.split import Answer, PutFlag, Release, SplitState
from midstream.lab.papers.partitioned_load_balancing.rows import Batch, Rows
from midstream.lab.simulated_cluster.machines import Disk, MachineStep
from midstream.operators.elements import Elements, Indices

AGAIN = 25.0
"""After how long without an answer something is sent again."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Rows that arrive at a moment, and the instant before which nothing more arrives."""

    at: float
    rows: Mapping[str, Elements]
    frontier: int


@dataclass(frozen=True, slots=True)
class Streams:
    """What the split operators of a machine read: ticks, the key of each source, and how long rows matter."""

    ticks: Sequence[Tick]
    keys: Mapping[str, Key]
    groups: int
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """Rows that are held back, with their groups."""

    alias: str
    elements: Elements
    groups: Indices


class Splitting:
    """The program of a machine with split operators."""

    def __init__(
        self,
        disk: Disk,
        streams: Streams,
        start: SplitState,
        processors: Sequence[str],
        manager: str,
        sure: bool = False,
    ) -> None:
        self.streams, self.processors, self.manager = streams, tuple(processors), manager
        saved = disk.get("split", (start, 0, BEGINNING, BEGINNING, (), None))
        self.state: SplitState = saved[0]
        self.position: int = saved[1]
        self.frontier: int = saved[2]
        self.latest_end: int = saved[3]
        self.held: tuple[Held, ...] = saved[4]
        ends = saved[5]
        self.queues = Queues(sure, ends)
        self.sure = sure

    def start(self, step: MachineStep) -> None:
        """Goes on where it was."""
        self._set_timers(step)
        self.queues.again(step)

    def wake(self, step: MachineStep, timer: str) -> None:
        """Reads the next tick, or sends again what was not answered."""
        if timer == "again":
            self.queues.again(step)
        elif self._due(step.now):
            self._read(step, self.streams.ticks[self.position])
            self.position += 1
        self._end(step)

    def _due(self, now: float) -> bool:
        """Whether the next tick has come: a timer may have been set anew while it waited for its step."""
        return self.position < len(self.streams.ticks) and self.streams.ticks[self.position].at <= now

    def receive(self, step: MachineStep, sender: str, message: Any) -> None:
        """Takes a message of the manager."""
        if isinstance(message, Received):
            self.queues.acknowledged(sender, message)
        elif isinstance(message, Message):
            self.state, actions = split.receive(self.state, message, self.latest_end)
            for action in actions:
                self._do(step, action)
        elif isinstance(message, Packet):
            self.queues.take(step, sender, message)
        self._end(step)

    def _do(self, step: MachineStep, action: split.Action) -> None:
        match action:
            case PutFlag(processor=processor, flag=flag):
                self.queues.put(step, processor, flag)
            case Release(groups=groups, processor=processor):
                self._release(step, groups, processor)
            case Answer(message=message):
                step.send(self.manager, message, urgent=True)

    def _release(self, step: MachineStep, groups: Sequence[int], processor: str) -> None:
        wanted = np.isin(np.arange(self.streams.groups), list(groups))
        rows, kept = [], []
        for part in self.held:
            mask = wanted[part.groups]
            if mask.any():
                rows.append(Rows(part.alias, part.elements.where(mask)))
            if not mask.all():
                kept.append(Held(part.alias, part.elements.where(~mask), part.groups[~mask]))
        self.held = tuple(kept)
        for to in self.processors:
            own = tuple(rows) if to == processor else ()
            if own or not self.state.holds_back:
                batch = Batch(own, self._promise())
                self.queues.put(step, to, batch, batch.size)

    def _read(self, step: MachineStep, tick: Tick) -> None:
        outgoing: dict[str, list[Rows]] = {name: [] for name in self.processors}
        for alias, elements in tick.rows.items():
            if len(elements):
                last = int(elements.valid_from.max()) + self.streams.memory
                self.latest_end = max(self.latest_end, last)
                self._route(alias, elements, outgoing)
        if not self.state.holds_back:
            self.frontier = tick.frontier
        for processor, rows in outgoing.items():
            batch = Batch(tuple(rows), self.frontier)
            self.queues.put(step, processor, batch, batch.size)

    def _promise(self) -> int:
        """How far this machine promises that nothing more comes: not past rows that are held back."""
        if not self.state.holds_back and self.position:
            self.frontier = max(self.frontier, self.streams.ticks[self.position - 1].frontier)
        return self.frontier

    def _route(self, alias: str, elements: Elements, outgoing: dict[str, list[Rows]]) -> None:
        groups = group_of_rows(elements, self.streams.keys[alias], alias, self.streams.groups)
        entries = dict.fromkeys(self.state.table)
        numbers = {entry: i for i, entry in enumerate(entries)}
        routes = np.array([numbers[entry] for entry in self.state.table])[groups]
        for entry, number in numbers.items():
            mask = routes == number
            if not mask.any():
                continue
            part = elements.where(mask)
            if entry.held:
                self.held = (*self.held, Held(alias, part, groups[mask]))
                continue
            outgoing[entry.owner].append(Rows(alias, part, entry.marked))
            if entry.second is not None:
                outgoing[entry.second].append(Rows(alias, part))

    def _end(self, step: MachineStep) -> None:
        self._set_timers(step)
        if not self.sure:
            ends = self.queues.ends()
            saved = (self.state, self.position, self.frontier, self.latest_end, self.held, ends)
            step.write("split", saved)

    def _set_timers(self, step: MachineStep) -> None:
        if self.position < len(self.streams.ticks):
            step.set_timer("tick", max(0.0, self.streams.ticks[self.position].at - step.now))
        if self.queues.pending:
            step.set_timer("again", AGAIN)
