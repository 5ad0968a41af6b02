"""Virtual milliseconds of D-CAPE's joins: nested loops within partitions.

A row is compared with every row of its own group that is alive on the other side, then inserted. So a group's cost does
not depend on which other groups share its machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from midstream.lab.experiments.virtual_processor import Costs, Counts
from midstream.lab.papers.partitioned_load_balancing.group_states import Shipped
from midstream.operators.base import Operator
from midstream.operators.box import ROOT, Box, Wire
from midstream.operators.elements import Elements, Hashes
from midstream.operators.hashing import hash_columns
from midstream.operators.state.sorted_state import SortedState
from midstream.scheduling.scheduler import Scheduler, Sink

Histogram = npt.NDArray[np.int64]


class PartitionedLoops:
    """Charges a processor for nested loops within partitions, and for what it moves."""

    def __init__(self, costs: Costs, groups: int) -> None:
        self.costs, self.groups = costs, groups
        self.counts, self.charged = Counts(), Counts()
        self.results = 0

    def schedule(self, box: Box, sink: Sink) -> Scheduler:
        """Runs a box at this processor's expense."""
        return Charged(box, sink, self)

    def charge(self, counts: Counts) -> None:
        """Adds work."""
        self.counts += counts

    def taken(self) -> float:
        """Milliseconds since the last call."""
        new = Counts(self.counts.pairs - self.charged.pairs, self.counts.inserts - self.charged.inserts)
        self.charged = self.counts
        return self.costs.of(new)

    def moved(self, shipped: Shipped, box: Box) -> None:
        """Inserting every row of a box that was filled, and joining what had to be recomputed."""
        known = {state.id for state in Box(shipped.plan).states()}
        for i, operator in enumerate(box.operators):
            for port, state in enumerate(operator.states):
                self.charge(Counts(0, state.rows))
                if state.id not in known:
                    below = box.operators[box.before(Wire(i, port))]
                    left, right = below.states
                    self.charge(Counts(int(self.histogram(left, box.frontier) @ self.histogram(right, box.frontier))))

    def histogram(self, state: SortedState, frontier: int) -> Histogram:
        """How many rows of each group are alive in a state, which must be sorted by the key of the groups."""
        total = np.zeros(self.groups, np.int64)
        for segment in state.segments:
            if segment.latest_to > frontier:
                hashes = segment.hashes
                if segment.earliest_to <= frontier:
                    hashes = hashes[segment.elements.valid_to > frontier]
                total += self.of_hashes(hashes)
        return total

    def of_hashes(self, hashes: Hashes) -> Histogram:
        """How many of some hashes are of each group."""
        groups = ((hashes >> np.uint64(32)) * np.uint64(self.groups) >> np.uint64(32)).astype(np.int64)
        return np.bincount(groups, minlength=self.groups)

    def loops(self, operator: Operator, port: int, batch: Elements) -> Counts:
        """What a join does with a batch; other operators are free."""
        if operator.ports != 2 or len(operator.states) != 2:
            return Counts()
        key = operator.states[port].key
        hashes = batch.hashes if batch.hashes is not None and key in batch.hashed else None
        if hashes is None:
            hashes = hash_columns([batch.columns.column(name) for name in key])
        other = self.histogram(operator.states[1 - port], operator.frontier)
        return Counts(int(self.of_hashes(hashes) @ other), len(batch))


class Charged(Scheduler):
    """Depth-first execution that charges every join for its nested loops."""

    def __init__(self, box: Box, sink: Sink, meter: PartitionedLoops) -> None:
        super().__init__(box, sink)
        self.meter = meter

    def send(self, wires: Sequence[Wire], batch: Elements | None) -> None:
        """Sends a batch along a wire and whatever follows from it onwards."""
        while batch is not None and len(batch):
            (wire,) = wires
            if wire.operator == ROOT:
                self.meter.results += len(batch)
                self.sinks[wire.port](batch)
                return
            operator = self.box.operators[wire.operator]
            self.meter.charge(self.meter.loops(operator, wire.port, batch))
            batch = operator.process(wire.port, batch)
            wires = self.box.wires[wire.operator]
