"""What a binder of values offers to those who bind a part of an expression for it."""

from __future__ import annotations

from typing import Protocol

from midstream.algebra.expressions import Call, Expression
from midstream.language.binding import Binding
from midstream.language.nodes import Node
from midstream.language.scope import Scope


class ValueBinder(Protocol):
    """Binds the values of one clause."""

    binding: Binding
    clause: str

    def bind(self, node: Node) -> Expression:
        """The meaning of a value."""

    def condition(self, node: Node, clause: str = "") -> Expression:
        """The meaning of a condition."""

    def call(self, function: str, arguments: list[Expression], nodes: list[Node], node: Node) -> Call:
        """A built-in function, its arguments cast to what it takes."""

    def borrowed(self, function: str, arguments: list[Expression], node: Node) -> Call:
        """A function that another engine computes."""

    def within(self, scope: Scope) -> ValueBinder:
        """A binder of values where names mean something else."""

    def coming(self) -> list[Expression]:
        """What tells in which order the rows came, if they are those of one stream."""

    def alike(self, values: list[Expression], nodes: list[Node]) -> list[Expression]:
        """Values in their common type."""
