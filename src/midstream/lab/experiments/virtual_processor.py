"""A processor whose time is charged by counting, so that figures hold on any machine.

The papers' joins are nested loops: a row that comes in is compared with every row that is alive on the other side, and
is then inserted. So a batch costs `compare` per compared pair and `insert` per row, whatever the engine's own joins
really look at. A box runs on the processor through the scheduler that `schedule` gives; two boxes on one processor add
up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from midstream.operators.base import Operator
from midstream.operators.box import ROOT, Box, Wire
from midstream.operators.elements import Elements
from midstream.operators.state.sorted_state import SortedState
from midstream.scheduling.scheduler import Scheduler, Sink


@dataclass(frozen=True, slots=True)
class Costs:
    """Virtual milliseconds: Tj for a compared pair, Ts for an inserted row."""

    compare: float
    insert: float

    def of(self, counts: Counts) -> float:
        """What some counts cost."""
        return self.compare * counts.pairs + self.insert * counts.inserts


@dataclass(frozen=True, slots=True)
class Counts:
    """Compared pairs and inserted rows."""

    pairs: int = 0
    inserts: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.pairs + other.pairs, self.inserts + other.inserts)


class VirtualProcessor:
    """A clock that moves by what is charged, or to the next arrival if there is nothing to do."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.now = 0.0
        self.counts = Counts()

    def charge(self, counts: Counts) -> None:
        """Spends time on some work."""
        self.counts += counts
        self.now += self.costs.of(counts)

    def idle_until(self, moment: float) -> None:
        """Waits, if there is anything to wait for."""
        self.now = max(self.now, moment)

    def schedule(self, box: Box, sink: Sink) -> Scheduler:
        """Runs a box at this processor's expense."""
        return ChargedScheduler(box, sink, self)


class ChargedScheduler(Scheduler):
    """Depth-first execution that charges every join for its nested loop."""

    def __init__(self, box: Box, sink: Sink, processor: VirtualProcessor) -> None:
        super().__init__(box, sink)
        self.processor = processor

    def send(self, wires: Sequence[Wire], batch: Elements | None) -> None:
        """Sends a batch along a wire and whatever follows from it onwards."""
        while batch is not None and len(batch):
            (wire,) = wires
            if wire.operator == ROOT:
                self.sinks[wire.port](batch)
                return
            operator = self.box.operators[wire.operator]
            self.processor.charge(nested_loop(operator, wire.port, len(batch)))
            batch = operator.process(wire.port, batch)
            wires = self.box.wires[wire.operator]


def nested_loop(operator: Operator, port: int, rows: int) -> Counts:
    """What a nested-loop join does with some rows; other operators are free."""
    if operator.ports != 2 or len(operator.states) != 2:
        return Counts()
    return Counts(rows * alive(operator.states[1 - port], operator.frontier), rows)


def moved(operator: Operator, port: int, rows: int, joins: bool) -> Counts:
    """What a nested-loop join does with rows that only fill its states, or a copy of it that only joins them."""
    whole = nested_loop(operator, port, rows)
    return whole if joins else Counts(inserts=whole.inserts)


def recomputation(old: Box, new: Box, frontier: int) -> Counts:
    """What CAPE's Algorithm 1 does: each state that the old box lacks is joined from the two states below it."""
    known = {state.id for state in old.states()}
    total = Counts()
    for i, operator in enumerate(new.operators):
        for port, state in enumerate(operator.states):
            if state.id not in known:
                left, right = new.operators[new.before(Wire(i, port))].states
                total += Counts(alive(left, frontier) * alive(right, frontier), alive(state, frontier))
    return total


def alive(state: SortedState, frontier: int) -> int:
    """How many rows of a state still count: all of a buffer's, of a window's those that end after the frontier."""
    if state.longest is None:
        return state.rows
    return sum(
        len(segment) if segment.earliest_to > frontier else int(np.count_nonzero(segment.elements.valid_to > frontier))
        for segment in state.segments
        if segment.latest_to > frontier
    )


def values(states: Iterable[SortedState], frontier: int) -> int:
    """How many values some states hold: rows times columns, without marks and timestamps."""
    return sum(alive(state, frontier) * len(payload(state)) for state in states)


def payload(state: SortedState) -> list[str]:
    """The columns of a state that a query has put there."""
    return [name for name in state.schema.names if "#" not in name]


def combined(states: Iterable[SortedState], frontier: int) -> int:
    """How many intermediate results some states hold: rows made of more than one stream's."""
    return sum(alive(state, frontier) for state in states if len(_streams(state)) > 1)


def _streams(state: SortedState) -> set[str]:
    return {name.partition(".")[0] for name in state.schema.names}
