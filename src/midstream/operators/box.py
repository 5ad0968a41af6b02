"""A box: a physical plan brought to life, with its states. It is a shared graph with one member."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import count

from midstream.algebra.declarations import UserFunction
from midstream.algebra.physical import PhysicalNode, SourceNode, walk_physical
from midstream.algebra.physical.identities import part_key
from midstream.algebra.windows import Hop
from midstream.operators.base import Operator
from midstream.operators.elements import Elements
from midstream.operators.shared_graph import ROOT, NodeNames, SharedGraph, Wire

__all__ = ["ROOT", "Box", "BoxOutput", "Wire"]


class Box(SharedGraph):
    """The operators of one plan; each has one reader."""

    def __init__(self, plan: PhysicalNode, functions: Mapping[str, UserFunction] | None = None) -> None:
        super().__init__(functions)
        self.plan = plan
        self.add(plan, _apart(plan, count()))
        self.members[0].grid = next((grid for o in self.operators if (grid := grid_of(o)) is not None), None)

    @property
    def passed(self) -> int:
        """The frontier of the root's output."""
        return self.operators[-1].passed if self.operators else self.frontier

    @property
    def grid(self) -> Hop | None:
        """The grid of the box's slice operators; None if nothing in it waits for a grid."""
        return self.members[0].grid

    def wire(self, operator: int) -> Wire:
        """Where an operator's output goes."""
        return self.wires[operator][0]

    def before(self, wire: Wire) -> int:
        """The operator whose output goes along a wire."""
        return self.wires.index([wire])

    def place_of(self, node: PhysicalNode) -> int:
        """The operator that a node of the plan is."""
        return next(i for i, known in enumerate(self.nodes) if known is node)

    def inside(self, root: int) -> range:
        """The operators of a sub-plan, by the one at its root."""
        count = sum(1 for node in walk_physical(self.nodes[root]) if not isinstance(node, SourceNode))
        return range(root - count + 1, root + 1)

    @cached_property
    def parts(self) -> dict[str, int]:
        """The roots of sub-plans that remember something, by what these hold and when they answer."""
        return {part_key(node): i for i, node in enumerate(self.nodes) if node.stateful}

    def floor(self, frontier: int) -> int:
        """How far the box moves when the query's frontier is here: to its slices' grid, if it has slices.

        All states of a box are purged at one instant, the one up to which it has answered. Purged further, the inputs
        of one operator could no longer rebuild the states of another plan in which they meet a slice operator.
        """
        return self.members[0].floor(frontier)

    def below_root(self) -> Box:
        """A box of the same live operators without the root."""
        return self.running(self.plan.inputs[0], self.operators[:-1])

    def running(self, plan: PhysicalNode, operators: Iterable[Operator]) -> Box:
        """A box of a plan at this one's frontier that runs live operators, children first."""
        box = Box(plan, self.functions)
        box.operators = list(operators)
        box.frontier = self.frontier
        return box


class BoxOutput:
    """Collects what a box gives at its root."""

    def __init__(self) -> None:
        self.batches: list[Elements] = []

    def __call__(self, batch: Elements) -> None:
        """Takes one batch."""
        self.batches.append(batch)


def grid_of(operator: Operator) -> Hop | None:
    """The grid that an operator waits for, if it waits for one."""
    grid: Hop | None = getattr(operator, "grid", None)
    return grid


def _apart(node: PhysicalNode, numbers: Iterator[int]) -> NodeNames:
    """Names that no two nodes have in common."""
    return NodeNames(next(numbers), tuple(_apart(child, numbers) for child in node.inputs))
