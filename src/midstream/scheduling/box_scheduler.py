"""Runs a box by a schedule.

A batch is worked through before the next one is taken, so that between two calls nothing is in flight: a frontier may
pass, states may be taken away, the schedule may change. A tuple of the graph is a batch of rows; larger batches are cut
into several where the table has a choice to make. With a single tuple no table has one: each takes it forward to the
root, so it goes there in compiled form, which visits the same operators in the same order without asking. So does plain
depth-first, always; a trace is made by the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from midstream.operators.box import ROOT, Box, Wire
from midstream.operators.elements import Elements
from midstream.scheduling.break_points import chain
from midstream.scheduling.depth_first import DepthFirst
from midstream.scheduling.executor import Executor
from midstream.scheduling.graph import Eager, Node, QueryGraph
from midstream.scheduling.schedule import Schedule, schedule_of
from midstream.scheduling.tables import DEPTH_FIRST

Sink = Callable[[Elements], None]

TUPLE_ROWS = 10_000
"""How many rows a tuple has at most where the schedule has a choice to make and does not say it."""

RECHAIN_STEPS = 256
"""After how many steps the break nodes of a chain are chosen anew."""


class BoxScheduler:
    """A box's graph and the executor that runs it; `trace` lists the operators executed, if it is wanted."""

    def __init__(self, box: Box, sink: Sink, schedule: str | Schedule = "dfs", trace: list[str] | None = None) -> None:
        self.box = box
        self.sink = sink
        self.compiled = DepthFirst(box, sink)
        self.traced = trace is not None
        self.graph = QueryGraph()
        self.nodes = self._build()
        self.executor = Executor(self.graph, trace=trace)
        self.schedule = schedule_of(schedule)

    @property
    def schedule(self) -> Schedule:
        """How the box runs; may be changed between any two calls."""
        return self._schedule

    @schedule.setter
    def schedule(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._chained_at = self.executor.steps
        self.executor.prefer({})
        self.executor.schedule = schedule
        # Depth-first would take one piece after the other to its end: it may as well take the whole.
        plain = schedule.table is DEPTH_FIRST and not (schedule.parts or schedule.breaks or schedule.chain)
        self.by_table = not plain or self.traced
        self.tuple_rows = 0 if plain else schedule.rows or TUPLE_ROWS

    def feed(self, wire: Wire, batch: Elements | None) -> None:
        """Sends a batch along a wire and whatever follows from it onwards."""
        if batch is None or not len(batch):
            return
        whole = not 0 < self.tuple_rows < len(batch)
        if not self.by_table or (whole and not self.traced):
            self.compiled.feed(wire, batch)
            return
        if wire.operator == ROOT:
            self.sink(batch)
            return
        node = self.nodes[wire.operator]
        for piece in [batch] if whole else cut(batch, self.tuple_rows):
            node.inputs[wire.port].buffer.push(piece)
        self.executor.start(node)
        self.executor.run()
        if self.schedule.chain and self.executor.steps >= self._chained_at + RECHAIN_STEPS:
            self._chain()

    def _chain(self) -> None:
        """Chooses the break nodes from what the operators have done so far."""
        self._chained_at = self.executor.steps
        chosen = chain(self.graph)
        self.executor.schedule = Schedule(self.schedule.table, self.schedule.parts, chosen.breaks)
        self.executor.prefer(chosen.priorities)

    def advance(self, frontier: int) -> None:
        """Carries a frontier from the sources to the root; what an operator then gives is one tuple."""
        if not self.traced:
            self.compiled.advance(frontier)
            return
        self.box.frontier = max(self.box.frontier, frontier)
        for i, operator in enumerate(self.box.operators):
            incoming = self.box.incoming(i, frontier)
            if incoming > operator.frontier:
                given = operator.advance(incoming)
                if given is not None and len(given):
                    self.nodes[i].emit(given)
                    self.executor.run()

    def _build(self) -> list[Node]:
        nodes: list[Node] = []
        feeders: dict[tuple[int, int], Node | str] = {}
        for source, wire in self.box.sources:
            feeders[wire.operator, wire.port] = source.stream.alias
        for i, operator in enumerate(self.box.operators):
            inputs = [feeders[i, port] for port in range(operator.ports)]
            wire = self.box.wires[i]
            sink = self.sink if wire.operator == ROOT else None
            node = self.graph.add(f"{i} {operator.name}", Eager(_step_of(self.box, i)), inputs, sink)
            feeders[wire.operator, wire.port] = node
            nodes.append(node)
        return nodes


def cut(batch: Elements, rows: int) -> Iterator[Elements]:
    """A batch as runs of about equal length, of so many rows at most."""
    pieces = -(-len(batch) // rows)
    size = -(-len(batch) // pieces)
    for start in range(0, len(batch), size):
        yield batch.slice(start, min(size, len(batch) - start))


def _step_of(box: Box, number: int) -> Callable[[int, Elements], Elements | None]:
    # Looked up each time: an operator may be exchanged for another one with the same state.
    def step(port: int, batch: Elements) -> Elements | None:
        result = box.operators[number].process(port, batch)
        return result if result is not None and len(result) else None

    return step
