"""Runs a box of several plans by a schedule: what one operator gives goes to all who read it.

Where a batch is several tuples and the schedule has a choice to make, the graph's forks deliver them: one buffer with a
cursor per reader. A single tuple, and plain depth-first, go in compiled form, branch after branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from midstream.operators.box import ROOT, Wire
from midstream.operators.elements import Elements
from midstream.operators.shared_box import SharedBox
from midstream.scheduling import box_scheduler
from midstream.scheduling.box_scheduler import cut
from midstream.scheduling.executor import Executor
from midstream.scheduling.graph import Eager, Node, QueryGraph
from midstream.scheduling.schedule import Schedule, schedule_of
from midstream.scheduling.tables import DEPTH_FIRST


class SharedScheduler:
    """The graph of a box of several plans, and what runs it."""

    def __init__(self, box: SharedBox, schedule: str | Schedule = "dfs", trace: list[str] | None = None) -> None:
        self.box = box
        chosen = schedule_of(schedule)
        plain = chosen.table is DEPTH_FIRST and not (chosen.parts or chosen.breaks or chosen.chain)
        self.traced = trace is not None
        self.tuple_rows = chosen.rows or box_scheduler.TUPLE_ROWS
        self.executor: Executor | None = None
        if not plain or trace is not None:
            self.graph = QueryGraph()
            self.nodes = self._build()
            self.executor = Executor(self.graph, Schedule(chosen.table, chosen.parts, chosen.breaks), trace)

    def feed(self, source: int, batch: Elements) -> None:
        """Takes elements of a source."""
        if not len(batch):
            return
        _, wires = self.box.sources[source]
        if self.executor is None or (len(batch) <= self.tuple_rows and not self.traced):
            self.send(wires, batch)
            return
        for wire in wires:
            if wire.operator == ROOT:
                self.box.sinks[wire.port](batch)
        buffer = self.graph.sources.get(str(source))
        if buffer is not None:
            for piece in cut(batch, self.tuple_rows):
                buffer.push(piece)
            self.executor.run()

    def send(self, wires: Sequence[Wire], batch: Elements | None) -> None:
        """Sends a batch along wires and whatever follows from it onwards, one branch after the other."""
        if batch is None or not len(batch):
            return
        for wire in wires:
            if wire.operator == ROOT:
                self.box.sinks[wire.port](batch)
            else:
                for given in self.box.operators[wire.operator].pieces(wire.port, batch):
                    self.send(self.box.wires[wire.operator], given)

    def advance(self, frontier: int) -> None:
        """Carries a frontier from the sources to all roots."""
        box = self.box
        box.frontier = max(box.frontier, frontier)
        for i, operator in enumerate(box.operators):
            incoming = box.incoming(i, frontier)
            if incoming > operator.frontier:
                self._emit(i, operator.advance(incoming))

    def _emit(self, operator: int, batch: Elements | None) -> None:
        if self.executor is None or not self.traced:
            self.send(self.box.wires[operator], batch)
        elif batch is not None and len(batch):
            self.nodes[operator].emit(batch)
            self.executor.run()

    def _build(self) -> list[Node]:
        nodes: list[Node] = []
        for i, operator in enumerate(self.box.operators):
            inputs: list[Node | str] = [nodes[p] if p >= 0 else str(~p) for p in self.box.inputs[i]]
            nodes.append(self.graph.add(f"{i} {operator.name}", Eager(_step_of(self.box, i)), inputs, self._sink(i)))
        return nodes

    def _sink(self, operator: int) -> Callable[[Elements], None] | None:
        sinks = [self.box.sinks[wire.port] for wire in self.box.wires[operator] if wire.operator == ROOT]

        def give(batch: Elements) -> None:
            for sink in sinks:
                sink(batch)

        return give if sinks else None


def _step_of(box: SharedBox, number: int) -> Callable[[int, Elements], Elements | None]:
    def step(port: int, batch: Elements) -> Elements | None:
        result = box.operators[number].process(port, batch)
        return result if result is not None and len(result) else None

    return step
