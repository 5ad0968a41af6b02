"""A node of a physical plan, and what every node can say of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import pyarrow as pa

from midstream.algebra.expressions import Expression
from midstream.algebra.plan.base import draw, walk
from midstream.algebra.time import TimeDomain


@dataclass(frozen=True, slots=True)
class Conjunction:
    """Pairs of columns that are equal, pairs that are equal or both null, and other conditions, all of which hold."""

    equal: tuple[tuple[str, str], ...] = ()
    alike: tuple[tuple[str, str], ...] = ()
    conditions: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class PhysicalNode:
    """A node of a physical plan.

    What others must know of an operator are properties that its node states here: nobody lists the kinds of nodes.
    """

    schema: pa.Schema

    stateful: ClassVar[bool] = True
    """Whether its operator remembers anything between two batches."""
    keeps_intervals: ClassVar[bool] = False
    """Whether it only intersects intervals, so that its results have one form in every plan."""
    waits_for_frontier: ClassVar[bool] = False
    """Whether its answers wait for a frontier."""
    keeps_valid_input: ClassVar[bool] = False
    """Whether it remembers its input for as long as that is valid."""
    outlives_windows: ClassVar[bool] = False
    """Whether it remembers tuples for longer than the windows of their streams say."""

    @property
    def inputs(self) -> tuple[PhysicalNode, ...]:
        """The nodes that feed this one."""
        return ()

    @property
    def label(self) -> str:
        """What the node does, in one line."""
        raise NotImplementedError

    @property
    def stands_for(self) -> PhysicalNode:
        """The node whose output this is: itself, unless it only brings what another gives elsewhere."""
        return self

    @property
    def conjunction(self) -> Conjunction | None:
        """The conditions under which it is one inner join of its inputs, if it is: selections join one input."""
        return None

    @property
    def content(self) -> str:
        """What the node's output is, whatever plan computes it; see `identities` for what other texts are for."""
        return f"{self.label}({'; '.join(child.content for child in self.inputs)}){columns_text(self.schema)}"

    @property
    def longest(self) -> int | None:
        """The longest validity of its elements; None if there is no bound."""
        spans = [child.longest for child in self.inputs]
        return None if None in spans else max((s for s in spans if s is not None), default=1)

    @property
    def domain(self) -> TimeDomain:
        """What its ticks mean."""
        return self.inputs[0].domain

    def __str__(self) -> str:
        return render_physical(self)


@dataclass(frozen=True, slots=True)
class Unary(PhysicalNode):
    """A node with one input."""

    input: PhysicalNode

    @property
    def inputs(self) -> tuple[PhysicalNode, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class OrderedRows(Unary):
    """Looks at the rows of a partition in the order of their times, also at those that are no longer valid."""

    waits_for_frontier: ClassVar[bool] = True
    outlives_windows: ClassVar[bool] = True

    partition_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Binary(PhysicalNode):
    """A node with two inputs."""

    left: PhysicalNode
    right: PhysicalNode

    @property
    def inputs(self) -> tuple[PhysicalNode, ...]:
        return (self.left, self.right)


def walk_physical(plan: PhysicalNode) -> Iterator[PhysicalNode]:
    """The node and everything below it, parents first."""
    return walk(plan)


def render_physical(plan: PhysicalNode) -> str:
    """The plan as an indented tree."""
    return draw(plan, lambda _: "")


def with_inputs(node: PhysicalNode, change: Callable[[PhysicalNode], PhysicalNode]) -> PhysicalNode:
    """A node over changed inputs, first to last; the node itself if none has changed."""
    changes: dict[str, Any] = {}
    for part in fields(node):
        value = getattr(node, part.name)
        if isinstance(value, PhysicalNode):
            new: Any = change(value)
            if new is not value:
                changes[part.name] = new
        elif isinstance(value, tuple) and value and isinstance(value[0], PhysicalNode):
            new = tuple(change(v) for v in value)
            if any(a is not b for a, b in zip(new, value, strict=True)):
                changes[part.name] = new
    return replace(node, **changes) if changes else node


def replaced(node: PhysicalNode, change: Callable[[PhysicalNode], PhysicalNode | None]) -> PhysicalNode:
    """A plan with nodes exchanged from the top down; below an exchanged node nothing is looked at."""
    new = change(node)
    return with_inputs(node, lambda child: replaced(child, change)) if new is None else new


def grids_of(plan: PhysicalNode) -> set[str]:
    """The grids on which operators of a plan answer."""
    return {str(grid) for node in walk_physical(plan) if (grid := getattr(node, "grid", None)) is not None}


def columns_text(schema: pa.Schema) -> str:
    """The names of columns, in whatever order they come."""
    return "[" + ", ".join(sorted(schema.names)) + "]"
