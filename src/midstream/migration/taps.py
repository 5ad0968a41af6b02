"""Listening to a box: the same live operators, with an ear at some wires."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from midstream.operators.base import Operator
from midstream.operators.box import Box, Wire
from midstream.operators.elements import Elements

Hear = Callable[[Wire, Elements], None]


class Tapped(Operator):
    """An operator whose inputs are heard before it takes them."""

    def __init__(self, operator: Operator, number: int, hear: Hear) -> None:
        super().__init__(operator.schema)
        self.operator, self.number, self.hear = operator, number, hear
        self.ports, self.name, self.states = operator.ports, operator.name, operator.states
        self.frontier, self.work = operator.frontier, operator.work

    @property
    def passed(self) -> int:
        return self.operator.passed

    def pieces(self, port: int, batch: Elements) -> Iterator[Elements]:
        self.hear(Wire(self.number, port), batch)
        return self.operator.pieces(port, batch)

    def advances(self, frontier: int) -> Iterator[Elements]:
        self.frontier = frontier
        return self.operator.advances(frontier)

    def restore(self, frontier: int) -> None:
        self.frontier = frontier
        self.operator.restore(frontier)


def tapped(box: Box, wires: Container[object], hear: Hear) -> Box:
    """A box that runs the same operators and tells what goes along the given wires."""
    operators = [
        Tapped(operator, i, hear) if any(Wire(i, port) in wires for port in range(operator.ports)) else operator
        for i, operator in enumerate(box.operators)
    ]
    return box.running(box.plan, operators)
