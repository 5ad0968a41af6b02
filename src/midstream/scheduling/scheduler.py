"""Runs a graph of one or more plans by a schedule: what one operator gives goes to all who read it.

A batch is worked through before the next one is taken, so that between two calls nothing is in flight: a frontier may
pass, states may be taken away, the schedule may change. A tuple of the graph is a batch of rows; larger batches are cut
into several where the table has a choice to make, and the graph's forks deliver them: one buffer with a cursor per
reader. With a single tuple no table has a choice: each takes it forward to the root, branch after branch, so it goes
there in compiled form, which visits the same operators in the same order without asking. So does plain depth-first,
always; a trace is made by the table.

Where many plans read what one operator gives, a scheduler may gather it: all that came since the last advance then goes
to all of them as one batch, right before they advance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from midstream.operators.elements import Elements, concatenate
from midstream.operators.shared_graph import ROOT, SharedGraph, Wire
from midstream.scheduling.break_points import chain
from midstream.scheduling.executor import Executor
from midstream.scheduling.graph import Eager, GraphNode, QueryGraph
from midstream.scheduling.schedule import Schedule, schedule_of
from midstream.scheduling.tables import DEPTH_FIRST

Sink = Callable[[Elements], None]

TUPLE_ROWS = 10_000
"""How many rows a tuple has at most where the schedule has a choice to make and does not say it."""

RECHAIN_STEPS = 256
"""After how many steps the break nodes of a chain are chosen anew."""


class Scheduler:
    """Runs a graph, each member of which has a sink; `trace` lists the operators executed, if it is wanted."""

    def __init__(
        self,
        box: SharedGraph,
        *sinks: Sink,
        schedule: str | Schedule = "dfs",
        trace: list[str] | None = None,
        gathers: bool = False,
    ) -> None:
        self.box = box
        self.sinks = sinks
        self.trace = trace
        self._tabled: Tabled | None = None
        self._gathered: dict[int, list[Elements]] = defaultdict(list)
        self._gathers = gathers
        self.schedule = schedule_of(schedule)

    @property
    def schedule(self) -> Schedule:
        """How the graph runs; may be changed between any two calls."""
        return self._schedule

    @schedule.setter
    def schedule(self, schedule: Schedule) -> None:
        self._schedule = schedule
        # Depth-first would take one piece after the other to its end: it may as well take the whole.
        plain = schedule.table is DEPTH_FIRST and not (schedule.parts or schedule.breaks or schedule.chain)
        self.by_table = not plain or self.trace is not None
        self.tuple_rows = 0 if plain else schedule.rows or TUPLE_ROWS
        if self._tabled is not None:
            self._tabled.follow(schedule)

    @property
    def tabled(self) -> Tabled:
        """The graph as nodes and buffers, for tables to run; made when it is first needed."""
        if self._tabled is None:
            self._tabled = Tabled(self.box, self.sinks, self.trace)
            self._tabled.follow(self._schedule)
        return self._tabled

    def restart(self) -> None:
        """Forgets what tables have chosen so far: the next batch is run as if it were the first."""
        self._tabled = None

    def feed(self, source: int, batch: Elements) -> None:
        """Takes elements of a source, given by its number, and runs whatever follows from them."""
        if not len(batch):
            return
        wires = self.box.sources[source][1]
        whole = not 0 < self.tuple_rows < len(batch)
        if not self.by_table or (whole and self.trace is None):
            self.send(wires, batch)
            return
        for wire in wires:
            if wire.operator == ROOT:
                self.sinks[wire.port](batch)
        self.tabled.feed(source, [batch] if whole else list(cut(batch, self.tuple_rows)))

    def send(self, wires: Sequence[Wire], batch: Elements | None) -> None:
        """Sends a batch along wires and whatever follows from it onwards, one branch after the other."""
        if batch is None or not len(batch):
            return
        for wire in wires:
            if wire.operator == ROOT:
                self.sinks[wire.port](batch)
            else:
                for piece in self.box.operators[wire.operator].pieces(wire.port, batch):
                    self._give(wire.operator, piece)

    def _give(self, operator: int, batch: Elements) -> None:
        """Takes what an operator gives to those who read it."""
        wires = self.box.wires[operator]
        if self._gathers and len(wires) > 1:
            self._gathered[operator].append(batch)
        else:
            self.send(wires, batch)

    def advance(self, frontier: int) -> None:
        """Carries a frontier from the sources to the roots; what an operator then gives at once is one tuple."""
        box = self.box
        box.frontier = max(box.frontier, frontier)
        for i, operator in enumerate(box.operators):
            incoming = box.incoming(i, frontier)
            if incoming > operator.frontier:
                for piece in operator.advances(incoming):
                    if self.trace is None:
                        self._give(i, piece)
                    elif len(piece):
                        self.tabled.emit(i, piece)
            if i in self._gathered:
                self.send(box.wires[i], concatenate(self._gathered.pop(i)))


class Tabled:
    """A graph's operators as nodes with buffers between them, and the executor that runs these by tables."""

    def __init__(self, box: SharedGraph, sinks: Sequence[Sink], trace: list[str] | None) -> None:
        self.graph = QueryGraph()
        self.nodes: list[GraphNode] = []
        for i, operator in enumerate(box.operators):
            inputs: list[GraphNode | str] = [self.nodes[p] if p >= 0 else str(~p) for p in box.inputs[i]]
            sink = _sink_of([sinks[wire.port] for wire in box.wires[i] if wire.operator == ROOT])
            self.nodes.append(self.graph.add(f"{i} {operator.name}", Eager(_step_of(box, i)), inputs, sink))
        self.starts = [[self.nodes[w.operator] for w in wires if w.operator != ROOT] for _, wires in box.sources]
        self.executor = Executor(self.graph, trace=trace)
        self.chaining = False

    def follow(self, schedule: Schedule) -> None:
        """Runs by another schedule from now on."""
        self.chaining = schedule.chain
        self.executor.prefer({})
        self.executor.schedule = schedule
        self._chained_at = self.executor.steps

    def feed(self, source: int, pieces: Sequence[Elements]) -> None:
        """Runs what follows from tuples of a source."""
        starts = self.starts[source]
        if not starts:
            return
        buffer = self.graph.sources[str(source)]
        for piece in pieces:
            buffer.push(piece)
        if len(starts) == 1:
            self.executor.start(starts[0])
        self.executor.run()
        if self.chaining and self.executor.steps >= self._chained_at + RECHAIN_STEPS:
            self._chain()

    def emit(self, operator: int, batch: Elements) -> None:
        """Runs what follows from a tuple that an operator has given."""
        self.nodes[operator].emit(batch)
        self.executor.run()

    def _chain(self) -> None:
        """Chooses the break nodes from what the operators have done so far."""
        self._chained_at = self.executor.steps
        chosen, schedule = chain(self.graph), self.executor.schedule
        self.executor.schedule = Schedule(schedule.table, schedule.parts, chosen.breaks)
        self.executor.prefer(chosen.priorities)


def cut(batch: Elements, rows: int) -> Iterator[Elements]:
    """A batch as runs of about equal length, of so many rows at most."""
    pieces = -(-len(batch) // rows)
    size = -(-len(batch) // pieces)
    for start in range(0, len(batch), size):
        yield batch.slice(start, min(size, len(batch) - start))


def _sink_of(sinks: Sequence[Sink]) -> Sink | None:
    def give(batch: Elements) -> None:
        for sink in sinks:
            sink(batch)

    return sinks[0] if len(sinks) == 1 else give if sinks else None


def _step_of(box: SharedGraph, number: int) -> Callable[[int, Elements], Elements | None]:
    # Looked up each time: an operator may be exchanged for another one with the same state.
    def step(port: int, batch: Elements) -> Elements | None:
        result = box.operators[number].process(port, batch)
        return result if result is not None and len(result) else None

    return step
