"""Trees of plan nodes, walked and drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, Self, TypeVar


class Node(Protocol):
    """A node of a logical or physical plan."""

    @property
    def inputs(self) -> tuple[Self, ...]:
        """The nodes that feed this one."""

    @property
    def label(self) -> str:
        """What the node does, in one line."""


T = TypeVar("T", bound=Node)


def walk(plan: T) -> Iterator[T]:
    """The node and everything below it, parents first, left to right."""
    yield plan
    for child in plan.inputs:
        yield from walk(child)


def draw(plan: T, annotate: Callable[[T], str]) -> str:
    """The plan as an indented tree, one node per line: chains read downwards, inputs are indented below their node."""
    lines: list[str] = []

    def node(top: T, lead: str, below: str) -> None:
        note = annotate(top)
        lines.append(lead + top.label + (f"  {note}" if note else ""))
        for i, child in enumerate(top.inputs):
            last = i == len(top.inputs) - 1
            node(child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))

    node(plan, "", "")
    return "\n".join(lines)
