"""A box of several plans: what they have in common is there once.

Every node of a plan comes with a name; nodes of equal name compute the same and hold the same, so they are one operator
with several readers. Operators are kept children first. All plans are at one frontier; each answers on its own grid. An
operator forgets no more than each of its plans would alone; what waits for a grid is shared on that grid only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from midstream.algebra.declarations import UserFunction
from midstream.algebra.physical import PhysicalNode, Source
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.algebra.windows import Hop
from midstream.operators.base import Operator
from midstream.operators.box import ROOT, Wire
from midstream.operators.build import build
from midstream.operators.elements import Elements
from midstream.operators.slices import SliceOperator, grid_floor

SOURCE = -1
"""Any place that is a source."""

Sink = Callable[[Elements], None]


@dataclass(frozen=True, slots=True)
class Named:
    """The names of a plan's nodes, as a tree of the plan's shape."""

    name: int
    inputs: tuple[Named, ...] = ()


class SharedBox:
    """Operators of several plans, who reads whom, and where each plan's results come out."""

    def __init__(self, functions: Mapping[str, UserFunction]) -> None:
        self.functions = dict(functions)
        self.operators: list[Operator] = []
        self.nodes: list[PhysicalNode] = []
        self.names: list[int] = []
        self.wires: list[list[Wire]] = []
        self.inputs: list[list[int]] = []
        self.sources: list[tuple[Source, list[Wire]]] = []
        self.sinks: list[Sink] = []
        self.roots: list[int] = []
        self.grids: list[Hop | None] = []
        self.limits: list[int] = []
        """How far each plan may be: what reads other fragments can be behind the streams."""
        self.joining: frozenset[int] = frozenset()
        """Plans that are new: how far what they share with others was is not for them to say."""
        self.users: list[list[int]] = []
        self.frontier = BEGINNING
        self._places: dict[int, int] = {}

    def add(self, plan: PhysicalNode, named: Named, sink: Sink, grid: Hop | None = None) -> list[int]:
        """One more plan, which answers on a grid; gives the numbers of its operators, in the order of its own box."""
        root = self._place(plan, named)
        self._wires_of(root).append(Wire(ROOT, len(self.sinks)))
        self.sinks.append(sink)
        self.roots.append(root)
        used = [self._places[name] for name in reversed(list(_operators(plan, named)))]
        self.grids.append(grid)
        self.limits.append(INFINITY)
        for i in dict.fromkeys(used):
            self.users[i].append(len(self.sinks) - 1)
        return used

    def _place(self, node: PhysicalNode, named: Named) -> int:
        """Where a node is: its operator's number, or for a source the complement of its number."""
        if isinstance(node, Source):
            if named.name not in self._places:
                self._places[named.name] = ~len(self.sources)
                self.sources.append((node, []))
            return self._places[named.name]
        below = [self._place(child, n) for child, n in zip(node.inputs, named.inputs, strict=True)]
        if named.name not in self._places:
            here = self._places[named.name] = len(self.operators)
            self.operators.append(build(node, self.functions))
            self.nodes.append(node)
            self.names.append(named.name)
            self.wires.append([])
            self.users.append([])
            self.inputs.append(below)
            for port, place in enumerate(below):
                self._wires_of(place).append(Wire(here, port))
        return self._places[named.name]

    def source_of(self, leaf: Named) -> int:
        """The number of the source that a leaf of a plan is."""
        return ~self._places[leaf.name]

    def _wires_of(self, place: int) -> list[Wire]:
        return self.wires[place] if place >= 0 else self.sources[~place][1]

    def incoming(self, operator: int, frontier: int) -> int:
        """The least frontier over an operator's inputs, of those that its plans would give it alone."""
        plans = self.users[operator]
        if self.joining:
            plans = [plan for plan in plans if plan not in self.joining] or plans
        floors = {self._floor(plan, frontier) for plan in plans}
        return min(self._reached(place, floor) for floor in floors for place in [*self.inputs[operator], SOURCE])

    def _floor(self, plan: int, frontier: int) -> int:
        return grid_floor(min(frontier, self.limits[plan]), self.grids[plan])

    def _reached(self, place: int, floor: int) -> int:
        """How far the output of a place is for a plan that is at a floor: only what waits can be behind it."""
        if place < 0:
            return floor
        operator = self.operators[place]
        if isinstance(operator, SliceOperator):
            return operator.passed
        return min([floor, *(self._reached(below, floor) for below in self.inputs[place])])

    def restore(self, frontier: int) -> None:
        """Sets every operator to a frontier that was reached earlier; states are put in by the caller."""
        self.frontier = frontier
        for i, operator in enumerate(self.operators):
            operator.restore(self.incoming(i, frontier))

    def passed(self, plan: int) -> int:
        """The frontier of a plan's results."""
        return self._reached(self.roots[plan], self._floor(plan, self.frontier))


def _operators(node: PhysicalNode, named: Named) -> Iterator[int]:
    """The names of a plan's operators, parents first."""
    if not isinstance(node, Source):
        yield named.name
        for child, below in zip(node.inputs, named.inputs, strict=True):
            yield from _operators(child, below)
