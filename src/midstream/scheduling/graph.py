"""The query graph: operators as nodes, buffers as arcs.

The graph knows who feeds whom and what waits where. It decides nothing: which operator runs next is the business of
next-operator tables. An arc may be a break node: it then ends the fragment before it and starts the one behind it, as
if the first wrote to a sink and the second read from a source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from midstream.scheduling.buffers import Buffer, BufferLedger, Cursor

Emit = Callable[[Any], None]


class Logic(Protocol):
    """What an operator does with its inputs, one tuple at a time."""

    def more(self, inputs: Sequence[Cursor]) -> bool:
        """Whether the operator could go on with the tuples it has."""

    def step(self, inputs: Sequence[Cursor], emit: Emit) -> int:
        """Takes one tuple, gives what follows from it, and says how many tuples it took."""

    def starving(self, inputs: Sequence[Cursor]) -> int:
        """The input that keeps `more` from holding."""


class Eager:
    """An operator that takes any tuple as soon as it comes, on whichever input."""

    def __init__(self, process: Callable[[int, Any], Any | None]) -> None:
        self.process = process

    def more(self, inputs: Sequence[Cursor]) -> bool:
        """Whether any input holds a tuple."""
        return any(map(len, inputs)) if len(inputs) > 1 else len(inputs[0]) > 0

    def step(self, inputs: Sequence[Cursor], emit: Emit) -> int:
        """Takes a tuple from the first input that has one."""
        for port, cursor in enumerate(inputs):
            if len(cursor):
                result = self.process(port, cursor.take())
                if result is not None:
                    emit(result)
                return 1
        return 0

    def starving(self, inputs: Sequence[Cursor]) -> int:
        """The first empty input; the first of all if none is empty."""
        return first_empty(inputs)


def first_empty(inputs: Sequence[Cursor]) -> int:
    """The lowest index of an empty input; 0 if there is none."""
    return next((port for port, cursor in enumerate(inputs) if not len(cursor)), 0)


class Fork:
    """Hands each tuple of its input to several readers of the same buffer, without copying it.

    Its own cursor is the limit of theirs: executing the fork delivers one more tuple.
    """

    def more(self, inputs: Sequence[Cursor]) -> bool:
        """Whether a tuple is still to be delivered."""
        return len(inputs[0]) > 0

    def step(self, inputs: Sequence[Cursor], emit: Emit) -> int:
        """Delivers one tuple."""
        if not len(inputs[0]):
            return 0
        inputs[0].take()
        return 1

    def starving(self, inputs: Sequence[Cursor]) -> int:
        """Its only input."""
        return 0


@dataclass(eq=False, slots=True)
class GraphNode:
    """An operator in the graph: what it reads, who feeds it, who reads it."""

    name: str
    logic: Logic
    inputs: list[Cursor] = field(default_factory=list)
    feeders: list[GraphNode | None] = field(default_factory=list)
    broken: list[bool] = field(default_factory=list)
    readers: list[tuple[GraphNode, int]] = field(default_factory=list)
    output: Buffer = field(default_factory=Buffer)
    sink: Emit | None = None
    turn: int = 0
    taken: int = 0
    given: int = 0
    steps: int = 0

    @property
    def is_fork(self) -> bool:
        """Whether it only delivers."""
        return isinstance(self.logic, Fork)

    def more(self) -> bool:
        """Whether it could go on with what it has."""
        return self.logic.more(self.inputs)

    def feeder(self, port: int) -> GraphNode | None:
        """The operator before an input; None for a source or a break node."""
        return None if self.broken[port] else self.feeders[port]

    def execute(self) -> int:
        """One execution step."""
        taken = self.logic.step(self.inputs, self.emit)
        self.steps += 1
        self.taken += taken
        return taken

    def emit(self, item: Any) -> None:
        """Gives a tuple to whoever reads this node."""
        self.given += 1
        if self.sink is not None:
            self.sink(item)
        if self.readers:
            self.output.push(item)


class QueryGraph:
    """Nodes in order, sources by name; `version` grows with every change of topology."""

    def __init__(self) -> None:
        self.nodes: list[GraphNode] = []
        self.sources: dict[str, Buffer] = {}
        self.ledger = BufferLedger()
        self.version = 0

    def add(self, name: str, logic: Logic, inputs: Iterable[GraphNode | str], sink: Emit | None = None) -> GraphNode:
        """A new operator behind other operators or sources; a second reader of anything gets a fork in between."""
        self.version += 1
        node = GraphNode(name, logic, output=Buffer(self.ledger), sink=sink)
        for port, before in enumerate(inputs):
            if isinstance(before, str):
                buffer = self.sources.setdefault(before, Buffer(self.ledger))
                self._connect(node, port, None, buffer)
            else:
                self._behind(node, port, before)
        self.nodes.append(node)
        return node

    def set_break(self, node: GraphNode, port: int = 0, broken: bool = True) -> None:
        """Turns the arc into a node's input into a break node, or back."""
        self.version += node.broken[port] != broken
        node.broken[port] = broken

    @property
    def breaks(self) -> list[tuple[GraphNode, int]]:
        """The arcs that are break nodes."""
        return [(node, port) for node in self.nodes for port, broken in enumerate(node.broken) if broken]

    def waiting(self) -> int:
        """How many tuples lie in buffers."""
        buffers = {id(c.buffer): c.buffer for node in self.nodes for c in node.inputs}
        return sum(map(len, buffers.values()))

    def _behind(self, node: GraphNode, port: int, before: GraphNode) -> None:
        if not before.readers and not before.is_fork:
            self._connect(node, port, before, before.output)
            return
        fork = before if before.is_fork else self._forked(before)
        buffer = fork.inputs[0].buffer
        self._wire(node, port, fork, buffer.reader(fork.inputs[0]))

    def _forked(self, before: GraphNode) -> GraphNode:
        """The fork behind a node, put there if it is missing."""
        reader, port = before.readers[0]
        if reader.is_fork:
            return reader
        fork = GraphNode(f"fork {before.name}", Fork(), output=Buffer(self.ledger))
        self.nodes.insert(self.nodes.index(before) + 1, fork)
        old = reader.inputs[port]
        before.readers.clear()
        self._connect(fork, 0, before, before.output)
        # The fork starts at the buffer's end: what the first reader has not taken yet counts as delivered.
        old.limit = fork.inputs[0]
        reader.feeders[port] = fork
        fork.readers.append((reader, port))
        return fork

    def _connect(self, node: GraphNode, port: int, before: GraphNode | None, buffer: Buffer) -> None:
        self._wire(node, port, before, buffer.reader())

    def _wire(self, node: GraphNode, port: int, before: GraphNode | None, cursor: Cursor) -> None:
        assert port == len(node.inputs)
        node.inputs.append(cursor)
        node.feeders.append(before)
        node.broken.append(False)
        if before is not None:
            before.readers.append((node, port))
