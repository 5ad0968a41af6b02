"""A box: a physical plan brought to life, with its states.

Operators are kept children first, so that one pass over them carries a frontier from the sources to the root. A box
does not decide what runs when; a scheduler does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from midstream.algebra.declarations import UserFunction
from midstream.algebra.physical import PhysicalNode, Source
from midstream.algebra.time import BEGINNING
from midstream.algebra.windows import Hop
from midstream.operators.base import Operator, Work
from midstream.operators.build import build
from midstream.operators.elements import Elements
from midstream.operators.slices import grid_floor
from midstream.operators.state.sorted_state import SortedState

ROOT = -1


@dataclass(frozen=True, slots=True)
class Wire:
    """Where a source's or an operator's output goes: a port of an operator, or the root's output."""

    operator: int
    port: int


class Box:
    """Operators, how they are wired, and which wire each source feeds."""

    def __init__(self, plan: PhysicalNode, functions: Mapping[str, UserFunction] | None = None) -> None:
        self.plan = plan
        self.operators: list[Operator] = []
        self.wires: list[Wire] = []
        self.nodes: list[PhysicalNode] = []
        self.sources: list[tuple[Source, Wire]] = []
        self.frontier = BEGINNING
        self.functions = dict(functions or {})
        self._add(plan, Wire(ROOT, 0), self.functions)
        self._turn_over()

    def _add(self, node: PhysicalNode, wire: Wire, functions: Mapping[str, UserFunction]) -> None:
        if isinstance(node, Source):
            self.sources.append((node, wire))
            return
        here = len(self.operators)
        self.operators.append(build(node, functions))
        self.nodes.append(node)
        self.wires.append(wire)
        for port, child in enumerate(node.inputs):
            self._add(child, Wire(here, port), functions)

    def _turn_over(self) -> None:
        """Numbers the operators children first."""
        last = len(self.operators) - 1

        def turned(wire: Wire) -> Wire:
            return wire if wire.operator == ROOT else Wire(last - wire.operator, wire.port)

        self.operators.reverse()
        self.nodes.reverse()
        self.wires = [turned(w) for w in reversed(self.wires)]
        self.sources = [(source, turned(w)) for source, w in self.sources]

    def states(self) -> Iterator[SortedState]:
        """All states, children first."""
        for operator in self.operators:
            yield from operator.states

    @property
    def passed(self) -> int:
        """The frontier of the root's output."""
        return self.operators[-1].passed if self.operators else self.frontier

    @property
    def work(self) -> Work:
        """What all operators did so far."""
        total = Work()
        for operator in self.operators:
            total.add(operator.work)
        return total

    def children(self, operator: int) -> list[int]:
        """The operators that feed an operator; sources are left out."""
        return [i for i, wire in enumerate(self.wires) if wire.operator == operator]

    def restore(self, frontier: int) -> None:
        """Sets every operator to a frontier that was reached earlier; states are put in by the caller."""
        self.frontier = frontier
        for i, operator in enumerate(self.operators):
            operator.restore(self.incoming(i, frontier))

    def floor(self, frontier: int) -> int:
        """How far the box moves when the query's frontier is here: to its slices' grid, if it has slices.

        All states of a box are purged at one instant, the one up to which it has answered. Purged further, the inputs
        of one operator could no longer rebuild the states of another plan in which they meet a slice operator.
        """
        return grid_floor(frontier, self.grid)

    @property
    def grid(self) -> Hop | None:
        """The grid of the box's slice operators; None if nothing in it waits for a grid."""
        return next((grid for o in self.operators if (grid := getattr(o, "grid", None)) is not None), None)

    def below_root(self) -> Box:
        """A box of the same live operators without the root."""
        box = Box.__new__(Box)
        root = len(self.operators) - 1

        def lowered(wire: Wire) -> Wire:
            return Wire(ROOT, 0) if wire.operator == root else wire

        box.plan = self.plan.inputs[0]
        box.operators, box.nodes = self.operators[:-1], self.nodes[:-1]
        box.wires = [lowered(w) for w in self.wires[:-1]]
        box.sources = [(source, lowered(w)) for source, w in self.sources]
        box.frontier, box.functions = self.frontier, self.functions
        return box

    def incoming(self, operator: int, frontier: int) -> int:
        """The least frontier over an operator's inputs; sources are at the query's frontier."""
        return min([self.floor(frontier), *(self.operators[c].passed for c in self.children(operator))])


class Output:
    """Collects what a box gives at its root."""

    def __init__(self) -> None:
        self.batches: list[Elements] = []

    def __call__(self, batch: Elements) -> None:
        """Takes one batch."""
        self.batches.append(batch)

    def drain(self) -> list[Elements]:
        """All batches so far, which are then gone from here."""
        batches, self.batches = self.batches, []
        return batches
