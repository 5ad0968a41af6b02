"""The live operators of one or more plans, and how they are wired: what plans have in common is there once.

Every node of a plan comes with a name; nodes of equal name compute the same and hold the same, so they are one operator
with several readers. Operators are kept children first, so that one pass over them carries a frontier from the sources
to the roots. Plans may be at frontiers of their own, and each answers on its own grid. An operator forgets no more than
each of its plans would alone; what waits for a grid is shared on that grid only. A graph does not decide what runs
when; a scheduler does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from midstream.algebra.declarations import UserFunction
from midstream.algebra.physical import PhysicalNode, SourceNode
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.algebra.windows import Hop
from midstream.operators.base import Operator, Work
from midstream.operators.build import build
from midstream.operators.slices import SliceOperator, grid_floor
from midstream.operators.state.sorted_state import SortedState

ROOT = -1


@dataclass(frozen=True, slots=True)
class Wire:
    """Where a source's or an operator's output goes: a port of an operator, or the results of a member."""

    operator: int
    port: int


@dataclass(frozen=True, slots=True)
class NodeNames:
    """The names of a plan's nodes, as a tree of the plan's shape."""

    name: int
    inputs: tuple[NodeNames, ...] = ()


@dataclass(eq=False, slots=True)
class Membership:
    """A plan in a graph: where its results come out, the grid it answers on, and how far it may be.

    A plan that reads other fragments can be behind the streams. One that is `joining` does not constrain the frontiers
    of operators that it shares.
    """

    root: int
    grid: Hop | None
    limit: int = INFINITY
    joining: bool = False

    def floor(self, frontier: int) -> int:
        """How far the plan is when the graph's frontier is here: at its grid, if it has one."""
        frontier = min(frontier, self.limit)
        return frontier if self.grid is None else grid_floor(frontier, self.grid)


class SharedGraph:
    """Operators of some plans, who reads whom, and where each plan's results come out.

    A place is an operator's number, or the complement of a source's number.
    """

    def __init__(self, functions: Mapping[str, UserFunction] | None = None) -> None:
        self.functions = dict(functions or {})
        self.operators: list[Operator] = []
        self.nodes: list[PhysicalNode] = []
        self.names: list[int] = []
        self.wires: list[list[Wire]] = []
        self.inputs: list[list[int]] = []
        self.sources: list[tuple[SourceNode, list[Wire]]] = []
        self.members: list[Membership] = []
        self.frontier = BEGINNING
        self._places: dict[int, int] = {}
        self._users: list[list[Membership]] = []
        self._waiting: list[tuple[int, ...]] = []
        """Per operator, the nearest operators below it whose output can be behind their input."""

    def add(self, plan: PhysicalNode, named: NodeNames, grid: Hop | None = None) -> list[int]:
        """One more plan, which answers on a grid; gives the numbers of its operators, children first."""
        for leaf, name in named_leaves(plan, named):
            if isinstance(leaf, SourceNode) and name.name not in self._places:
                self._places[name.name] = ~len(self.sources)
                self.sources.append((leaf, []))
        root = self._place(plan, named)
        member = Membership(root, grid)
        self._wires_of(root).append(Wire(ROOT, len(self.members)))
        self.members.append(member)
        used = [self._places[name] for name in reversed(list(_operators(plan, named)))]
        for i in dict.fromkeys(used):
            self._users[i].append(member)
        return used

    def _place(self, node: PhysicalNode, named: NodeNames) -> int:
        if named.name not in self._places:
            pairs = zip(reversed(node.inputs), reversed(named.inputs), strict=True)
            below = [self._place(child, name) for child, name in pairs][::-1]
            here = self._places[named.name] = len(self.operators)
            self.operators.append(self._operator(node, named.name))
            self.nodes.append(node)
            self.names.append(named.name)
            self.wires.append([])
            self._users.append([])
            self.inputs.append(below)
            self._waiting.append(tuple({w: None for place in below for w in self._behind(place)}))
            for port, place in enumerate(below):
                self._wires_of(place).append(Wire(here, port))
        return self._places[named.name]

    def _operator(self, node: PhysicalNode, name: int) -> Operator:
        """What runs a node."""
        return build(node, self.functions)

    def _behind(self, place: int) -> tuple[int, ...]:
        if place < 0:
            return ()
        return (place,) if isinstance(self.operators[place], SliceOperator) else self._waiting[place]

    def _wires_of(self, place: int) -> list[Wire]:
        return self.wires[place] if place >= 0 else self.sources[~place][1]

    def source_of(self, leaf: NodeNames) -> int:
        """The number of the source that a leaf of a plan is."""
        return ~self._places[leaf.name]

    def states(self) -> Iterator[SortedState]:
        """All states, children first."""
        for operator in self.operators:
            yield from operator.states

    @property
    def work(self) -> Work:
        """What all operators did so far."""
        total = Work()
        for operator in self.operators:
            total.add(operator.work)
        return total

    def incoming(self, operator: int, frontier: int) -> int:
        """How far an operator's inputs are."""
        reached = self._reached(self._users[operator], frontier)
        for below in self._waiting[operator]:
            reached = min(reached, self.operators[below].passed)
        return reached

    def _reached(self, users: Sequence[Membership], frontier: int) -> int:
        """How far the plans are that have an operator in common: as far as the last of them."""
        if len(users) > 1:
            users = [user for user in users if not user.joining] or users
        return min(user.floor(frontier) for user in users)

    def restore(self, frontier: int) -> None:
        """Sets every operator to a frontier that was reached earlier; states are put in by the caller."""
        self.frontier = frontier
        for i, operator in enumerate(self.operators):
            operator.restore(self.incoming(i, frontier))

    def passed_by(self, member: int) -> int:
        """The frontier of a plan's results."""
        user = self.members[member]
        return min([user.floor(self.frontier), *(self.operators[i].passed for i in self._behind(user.root))])


def named_leaves(node: PhysicalNode, named: NodeNames) -> Iterator[tuple[PhysicalNode, NodeNames]]:
    """The leaves of a plan with their names."""
    if not node.inputs:
        yield node, named
    for child, below in zip(node.inputs, named.inputs, strict=True):
        yield from named_leaves(child, below)


def _operators(node: PhysicalNode, named: NodeNames) -> Iterator[int]:
    """The names of a plan's operators, parents first."""
    if not isinstance(node, SourceNode):
        yield named.name
        for child, below in zip(node.inputs, named.inputs, strict=True):
            yield from _operators(child, below)
