"""Plans as trees, walked and drawn; nodes of logical ones: what each must say, and what every plan is read by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal as OneOf
from typing import Protocol, Self, TypeVar

import pyarrow as pa

from midstream.algebra.expressions import (
    Expression,
    columns_of,
)
from midstream.algebra.time import TimeDomain
from midstream.algebra.windows import Hop, Rows, SessionGap, Until, WindowSpec
from midstream.errors import InternalError


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


JoinKind = OneOf["inner", "left", "right", "full", "semi", "anti"]

StreamKind = OneOf["istream", "dstream", "rstream", "keep"]
"""What becomes of a relation: what enters it, what leaves it, every snapshot, or nothing, but that it is kept."""

SequenceMode = OneOf["recent", "chronicle", "all", "none"]

TimeOrder = OneOf["<=", "<", ">=", ">"]


class _Hashed:
    """Computes its hash once: plans are looked up again and again, and a hash goes down the whole tree."""

    __slots__ = ("_hash",)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        compute = cls.__dict__.get("__hash__")
        if compute is None:
            return

        def remembered(self: _Hashed) -> int:
            try:
                return self._hash  # type: ignore[attr-defined,no-any-return]
            except AttributeError:
                found: int = compute(self)
                object.__setattr__(self, "_hash", found)
                return found

        cls.__hash__ = remembered  # type: ignore[method-assign,assignment]


@dataclass(frozen=True, slots=True)
class Relation(_Hashed):
    """A node of a logical plan."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, with unique names."""
        raise NotImplementedError

    @property
    def inputs(self) -> tuple[Relation, ...]:
        """The relations this one is computed from."""
        raise NotImplementedError

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        """The same node over other inputs."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """What the node does, in one line, without its inputs."""
        raise NotImplementedError

    @property
    def domain(self) -> TimeDomain:
        """What its ticks mean."""
        return self.inputs[0].domain

    def __str__(self) -> str:
        return render(self)


@dataclass(frozen=True, slots=True)
class UnaryRelation(Relation):
    """A relation computed from one other; its columns are those of its input unless it says otherwise."""

    input: Relation

    @property
    def schema(self) -> pa.Schema:
        return self.input.schema

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, slots=True)
class BinaryRelation(Relation):
    """A relation computed from two others; its columns are those of the left one unless it says otherwise."""

    left: Relation
    right: Relation

    @property
    def schema(self) -> pa.Schema:
        return self.left.schema

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.left, self.right)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, left=inputs[0], right=inputs[1])


@dataclass(frozen=True, slots=True)
class Stream(Relation):
    """A stream as it comes in: a tuple at `t` is valid over `[t, t+1)`. `columns` are the stream's own, unqualified.

    Its `site` is where its rows come in; that says nothing of what they mean.
    """

    name: str
    alias: str
    columns: pa.Schema
    time: str
    site: str | None = None

    def __post_init__(self) -> None:
        require(self.time in self.columns.names, f"stream {self.name} has no time column {self.time}")

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([f.with_name(f"{self.alias}.{f.name}") for f in self.columns])

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return ()

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return self

    @property
    def domain(self) -> TimeDomain:
        return TimeDomain(self.columns.field(self.time).type)

    @property
    def label(self) -> str:
        return f"Stream {self.name}" + ("" if self.alias == self.name else f" AS {self.alias}")


@dataclass(frozen=True, slots=True)
class Window(UnaryRelation):
    """Sets the validity of its input's tuples; over anything but a stream, one element per instant of its input.

    `bounds` are the names of two more columns: when the window that a tuple is valid in begins, and when it ends. Hops
    and sessions have them. A tuple that is valid in several windows is valid in each with other bounds.
    """

    spec: WindowSpec
    bounds: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        require(self.bounds is None or isinstance(self.spec, Hop | SessionGap), "only hops and sessions have bounds")
        require_unique(self.schema.names)
        read = self.spec.partition_by if isinstance(self.spec, Rows | SessionGap) else ()
        order = self.spec.order if isinstance(self.spec, Rows) else ()
        until = (self.spec.column,) if isinstance(self.spec, Until) else ()
        for name in (*read, *(column.name for column in order), *until):
            require(name in self.input.schema.names, f"a window reads no column {name}")

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.input.schema, *(pa.field(n, self.domain.output_type) for n in self.bounds or ())])

    @property
    def label(self) -> str:
        bounds = "" if self.bounds is None else f" with {', '.join(self.bounds)}"
        return f"Window {self.spec.show(self.domain)}{bounds}"


def walk_plan(plan: Relation) -> Iterator[Relation]:
    """The node and everything below it, parents first, left to right."""
    return walk(plan)


def rewrite_plan(plan: Relation, change: Callable[[Relation], Relation]) -> Relation:
    """The plan with `change` applied to every node, children first."""
    children = tuple(rewrite_plan(child, change) for child in plan.inputs)
    return change(plan if children == plan.inputs else plan.with_inputs(children))


def streams_of(plan: Relation) -> tuple[Stream, ...]:
    """The streams a plan reads, left to right; one entry per alias."""
    return tuple(node for node in walk_plan(plan) if isinstance(node, Stream))


def aliases(plan: Relation) -> frozenset[str]:
    """The aliases of the streams below a node."""
    return frozenset(s.alias for s in streams_of(plan))


def render(plan: Relation, annotate: Callable[[Relation], str] = lambda _: "") -> str:
    """The plan as an indented tree, one node per line."""
    return draw(plan, annotate)


def bare(expression: Expression) -> str:
    """An expression without its outermost parentheses."""
    text = str(expression)
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and i < len(text) - 1:
            return text
    return text[1:-1]


def require(condition: bool, message: str) -> None:
    """Refuses a node that is not valid."""
    if not condition:
        raise InternalError(message)


def require_unique(names: list[str]) -> None:
    """Refuses names that repeat."""
    repeated = {n for n in names if names.count(n) > 1}
    require(not repeated, f"column names repeat: {', '.join(sorted(repeated))}")


def require_readable(expression: Expression, schema: pa.Schema) -> None:
    """Refuses an expression that reads what is not there."""
    missing = columns_of(expression) - set(schema.names)
    require(not missing, f"{expression} reads columns that are not there: {', '.join(sorted(missing))}")


def require_same_types(left: pa.Schema, right: pa.Schema) -> None:
    """Refuses inputs of different types."""
    require(left.types == right.types, f"inputs differ in type: {left.types} and {right.types}")
