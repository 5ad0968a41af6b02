"""The enhanced query graph: arcs that carry timestamps past all operators that have no use for them.

An arc leads from a source, or from an operator that may wait idly, to the next such operator; what lies between passes
tuples on and promises nothing. A value travels along an arc only while no tuple is on the way below it, and never
past a break node that holds tuples. When nothing can go on and an operator waits idly, its starving input is followed
back to the source, which then says how far it is: timestamps on demand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from midstream.lab.mill.waiting import Tuple, Waiting
from midstream.scheduling.buffers import Cursor
from midstream.scheduling.executor import Executor, Row
from midstream.scheduling.graph import GraphNode, QueryGraph
from midstream.scheduling.schedule import Schedule

Demand = Literal["arcs", "punctuation", "none"]
Progress = Callable[[str], int | None]
"""How far a source is now, if it can say; it may also deliver what has just come."""


@dataclass(frozen=True, slots=True)
class Arc:
    """From a source (by name) or an operator to an input of the next operator with registers."""

    origin: GraphNode | str
    target: GraphNode
    port: int
    way: tuple[Cursor, ...]
    first: GraphNode

    @property
    def clear(self) -> bool:
        """Whether no tuple is on the way."""
        return not any(map(len, self.way))


def arcs_of(graph: QueryGraph) -> list[Arc]:
    """All arcs of a graph, in order of their targets."""
    names = {id(buffer): name for name, buffer in graph.sources.items()}
    return [
        _arc(node, port, names)
        for node in graph.nodes
        if isinstance(node.logic, Waiting)
        for port in range(len(node.inputs))
    ]


def _arc(target: GraphNode, port: int, names: dict[int, str]) -> Arc:
    way, first, at = [target.inputs[port]], target, port
    before = target.feeders[port]
    while before is not None and not isinstance(before.logic, Waiting):
        # What stands between has one input: an operator with several would have registers.
        first, at = before, 0
        way.append(before.inputs[0])
        before = before.feeders[0]
    origin: GraphNode | str = names[id(first.inputs[at].buffer)] if before is None else before
    return Arc(origin, target, port, tuple(way), first)


class EnhancedExecutor(Executor):
    """An executor that also passes registers on, and asks sources how far they are when something waits idly."""

    asks_only_tables = False

    def __init__(
        self,
        graph: QueryGraph,
        progress: Progress,
        schedule: Schedule | None = None,
        demand: Demand = "arcs",
        trace: list[str] | None = None,
    ) -> None:
        super().__init__(graph, schedule, trace)
        self.progress = progress
        self.demand = demand
        self.pending: deque[GraphNode] = deque()
        self.asked = 0
        self._arcs_version = -1

    @property
    def arcs(self) -> list[Arc]:
        """The graph's arcs."""
        if self._arcs_version != self.graph.version:
            self._arcs_version = self.graph.version
            self._arcs = arcs_of(self.graph)
            self._into = {(id(arc.target), arc.port): arc for arc in self._arcs}
            self._from: dict[int, list[Arc]] = {}
            for arc in self._arcs:
                if isinstance(arc.origin, GraphNode):
                    self._from.setdefault(id(arc.origin), []).append(arc)
        return self._arcs

    def _execute(self, node: GraphNode) -> int:
        logic = node.logic
        if not isinstance(logic, Waiting):
            return node.execute()
        had_more, consumed = node.more(), logic.consumed
        taken = node.execute()
        if logic.consumed > consumed:
            self.asked = 0
        if not had_more:
            self._pass_on(node, logic)
        return taken

    def _more(self, node: GraphNode) -> bool:
        return node.more() or self._can_pass_on(node)

    def _can_pass_on(self, node: GraphNode) -> bool:
        logic = node.logic
        if self.demand != "arcs" or not isinstance(logic, Waiting) or not any(logic.active):
            return False
        least = logic.least(node.inputs)
        return any(arc.clear and least > _raised(arc) for arc in self._arcs_from(node))

    def _pass_on(self, node: GraphNode, logic: Waiting) -> None:
        """Gives the least register on along the arcs, once; the flags fall when it is given."""
        if self.demand != "arcs" or not any(logic.active):
            return
        least = logic.least(node.inputs)
        arcs = [arc for arc in self._arcs_from(node) if arc.clear]
        for arc in arcs:
            self._raise(arc, least)
        if arcs:
            # What a register promises beyond the least is still to be passed on, once the others have risen.
            logic.active = [a and value > least for a, value in zip(logic.active, logic.raised, strict=True)]

    def _arcs_from(self, node: GraphNode) -> list[Arc]:
        return self._from.get(id(node), []) if self.arcs else []

    def _raise(self, arc: Arc, value: int) -> bool:
        assert isinstance(arc.target.logic, Waiting)
        if not arc.target.logic.raise_register(arc.port, value):
            return False
        if arc.target not in self.pending:
            self.pending.append(arc.target)
        return True

    def _yields(self, row: Row, node: GraphNode) -> bool:
        return super()._yields(row, node) or self._raised_behind(node) is not None

    def _forward(self, row: Row, node: GraphNode) -> GraphNode:
        if super()._yields(row, node):
            return super()._forward(row, node)
        target = self._raised_behind(node)
        assert target is not None
        self.pending.remove(target)
        return target

    def _raised_behind(self, node: GraphNode) -> GraphNode | None:
        """An operator whose register this node has raised and that has not run since."""
        if not self.pending:
            return None
        return next((arc.target for arc in self._arcs_from(node) if arc.target in self.pending), None)

    def _left(self, start: GraphNode, node: GraphNode) -> GraphNode | None:
        return self._demanded()

    def _entry(self) -> GraphNode | None:
        return super()._entry() or self._demanded()

    def _demanded(self) -> GraphNode | None:
        """What can go on because a register rises: one raised before, or one that a source raises now."""
        if self.pending:
            return self.pending.popleft()
        # Each source may be asked once without anything being consumed; asking again would not help.
        if self.demand == "none" or self.asked >= len(self.graph.sources):
            return None
        for node in self.graph.nodes:
            needed = node.logic.needs(node.inputs) if isinstance(node.logic, Waiting) else None
            found = None if needed is None else self._asked_for(node, needed)
            if found is not None:
                return found
        return None

    def _asked_for(self, node: GraphNode, needed: int) -> GraphNode | None:
        """Follows the starving input of an operator back to where its promise can rise to what is needed."""
        logic = node.logic
        assert isinstance(logic, Waiting) and self.arcs
        arc = self._into[id(node), logic.starving(node.inputs)]
        if isinstance(arc.origin, GraphNode):
            return arc.origin if self._more(arc.origin) else self._asked_for(arc.origin, needed)
        value = self.progress(arc.origin)
        if value is None or value < needed or not arc.clear or value <= _raised(arc):
            return None
        self.asked += 1
        if self.demand == "arcs":
            self._raise(arc, value)
            return self.pending.popleft()
        self.graph.sources[arc.origin].push(Tuple(value, value, punctuation=True))
        return arc.first


def _raised(arc: Arc) -> int:
    assert isinstance(arc.target.logic, Waiting)
    return arc.target.logic.raised[arc.port]
