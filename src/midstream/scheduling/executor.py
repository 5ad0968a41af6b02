"""The execution cycle: execute the current operator, then let its table choose the next one.

All that is in flight lies in buffers, so a schedule may be exchanged between any two steps without losing a tuple.
When a table gives control back, the next fragment with something to do is started, in turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from midstream.errors import InternalError
from midstream.scheduling.buffers import Cursor
from midstream.scheduling.graph import GraphNode, QueryGraph
from midstream.scheduling.schedule import Schedule, apply_breaks
from midstream.scheduling.tables import Move, Rules, TablePosition


@dataclass(frozen=True, slots=True)
class Row:
    """A node's row: its rules at a source and inside, whether it is at a source (None: by input), its readers, and its
    only feeder.
    """

    at_source: Rules
    inside: Rules
    first: bool | None
    readers: tuple[tuple[GraphNode, Cursor], ...]
    feeder: GraphNode | None


def row_of(node: GraphNode, schedule: Schedule) -> Row:
    """The row for a node's position in its fragment."""
    rules = schedule.table_of(node).rules
    readers = tuple((reader, reader.inputs[port]) for reader, port in node.readers if not reader.broken[port])
    starts = {node.feeder(port) is None for port in range(len(node.inputs))}
    if not readers:
        positions = TablePosition.SOURCE_SINK, TablePosition.SINK
    elif node.is_fork:
        positions = TablePosition.SOURCE_FORK, TablePosition.FORK
    else:
        positions = TablePosition.SOURCE, TablePosition.INNER
    only = node.feeder(0) if len(node.inputs) == 1 else None
    return Row(rules[positions[0]], rules[positions[1]], starts.pop() if len(starts) == 1 else None, readers, only)


class Executor:
    """Runs a graph by a schedule; `trace` lists the operators executed, if it is wanted."""

    asks_only_tables = True
    """Whether nothing but waiting tuples makes an operator run."""

    def __init__(self, graph: QueryGraph, schedule: Schedule | None = None, trace: list[str] | None = None) -> None:
        self.graph = graph
        self.trace = trace
        self.current: GraphNode | None = None
        self.steps = 0
        self._in_a_row = 0
        self._idle = 0
        self._turn = 0
        self._priorities: dict[int, float] = {}
        self.schedule = schedule or Schedule()

    @property
    def schedule(self) -> Schedule:
        """How the graph runs; may be set at any time between steps."""
        return self._schedule

    @schedule.setter
    def schedule(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._version = -1
        apply_breaks(self.graph, schedule)

    def prefer(self, priorities: dict[int, float]) -> None:
        """Which fragments go first when control returns: by the id of the operator they start with, highest first."""
        self._priorities = priorities

    def start(self, node: GraphNode) -> None:
        """Goes on with a node that has just been fed, if nothing is under way."""
        if self.current is None:
            self.current, self._in_a_row = node, 0

    def run(self) -> None:
        """Runs until nothing is left to do."""
        if self.asks_only_tables:
            self._run()
        else:
            while self.step():
                pass

    def _run(self) -> None:
        """The same steps without the calls between them: most batches are a tuple or two, and each call counts."""
        trace, ledger = self.trace, self.graph.ledger
        while True:
            node = self.current
            if node is None:
                node, self._in_a_row = self._entry(), 0
                if node is None:
                    return
            self.steps += 1
            taken = node.execute()
            if trace is not None:
                trace.append(node.name)
            if not ledger.waiting:
                # Whatever the tables say, there is nothing to take anywhere: they end up giving control back.
                self.current, self._in_a_row, self._idle = None, 0, 0
                return
            self._in_a_row += taken
            self._idle = 0 if taken else self._idle + 1
            self.current = self._next(node)

    def step(self) -> bool:
        """One execution step and the choice that follows it; False if there is nothing to do."""
        node = self.current if self.current is not None else self._entry()
        if node is None:
            return False
        if self.current is None:
            self._in_a_row = 0
        self.steps += 1
        taken = self._execute(node)
        if self.trace is not None:
            self.trace.append(node.name)
        self._in_a_row += taken
        self._idle = 0 if taken else self._idle + 1
        self.current = self._next(node)
        return True

    def _execute(self, node: GraphNode) -> int:
        return node.execute()

    def _more(self, node: GraphNode) -> bool:
        return node.more()

    def _next(self, node: GraphNode) -> GraphNode | None:
        """Applies tables until they name the next operator or give control back."""
        if self._idle > len(self.graph.nodes):
            # A whole round without a tuple consumed: waiting longer here would help nobody.
            self._idle = 0
            return None
        start = node
        for _ in range(2 * len(self.graph.nodes) + 2):
            row = self._row(node)
            move = self._move(row, node)
            if move == "forward":
                self._in_a_row = 0
                return self._forward(row, node)
            if move == "encore":
                return node
            if move == "exit":
                return self._left(start, node)
            before = row.feeder
            if before is None:
                before = node.feeder(node.logic.starving(node.inputs))
                assert before is not None
            node, self._in_a_row = before, 0
        raise InternalError(f"the table {self.schedule.name} goes back and forth at {node.name}")

    def _left(self, start: GraphNode, node: GraphNode) -> GraphNode | None:
        """What follows when a table gives control back at a node."""
        return None

    def _move(self, row: Row, node: GraphNode) -> Move:
        """The move of the first rule that holds."""
        first = row.first if row.first is not None else node.feeder(node.logic.starving(node.inputs)) is None
        for rule in row.at_source if first else row.inside:
            when = rule.when
            if when == "yield":
                if self._yields(row, node):
                    return rule.move
            elif when == "always" or (rule.most is None or self._in_a_row < rule.most) and self._more(node):
                return rule.move
        raise InternalError(f"no rule for {node.name}")

    def _yields(self, row: Row, node: GraphNode) -> bool:
        for _, cursor in row.readers:  # noqa: SIM110 (a generator costs more than the question)
            if len(cursor):
                return True
        return False

    def _forward(self, row: Row, node: GraphNode) -> GraphNode:
        """The reader that has something of this node's; a fork takes its branches in turn."""
        count = len(row.readers)
        if count == 1:
            return row.readers[0][0]
        for offset in range(count):
            place = (node.turn + offset) % count
            if len(row.readers[place][1]):
                node.turn = place + 1
                return row.readers[place][0]
        raise InternalError(f"nothing waits behind {node.name}")

    def _row(self, node: GraphNode) -> Row:
        """The node's row of its table."""
        if self._version != self.graph.version:
            self._version = self.graph.version
            self._rows = {id(n): row_of(n, self.schedule) for n in self.graph.nodes}
        return self._rows[id(node)]

    def _entry(self) -> GraphNode | None:
        """Where to start: what was left in the middle of a fragment first, then the fragments in turn."""
        if not self.graph.ledger.waiting:
            return None
        nodes = self.graph.nodes
        ready = [i for i, node in enumerate(nodes) if self._more(node)]
        inside = [i for i in ready if self._row(nodes[i]).first is False]
        if inside:
            return nodes[inside[-1]]
        if not ready:
            return None
        if self._priorities:
            best = max(ready, key=lambda i: (self._priorities.get(id(nodes[i]), 0.0), i))
        else:
            best = next((i for i in ready if i >= self._turn), ready[0])
        self._turn = best + 1
        return nodes[best]
