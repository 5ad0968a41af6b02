"""Logical plans: immutable trees of relations that refuse to be invalid.

A relation maps every instant to a multiset of tuples. Column names are unique within a relation: a stream under alias
`A` has columns `A.k`, `A.v`, …; a projection gives the names it likes. Every node but windows, sequences and the
relation-to-stream operators means, at each instant, exactly its relational twin applied to its inputs' snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal as OneOf

import pyarrow as pa

from midstream.algebra.expressions import (
    TRUE,
    Expression,
    Named,
    NamedAggregate,
    columns_of,
    conjuncts,
)
from midstream.algebra.placements import ARROWS, Placement
from midstream.algebra.time import TimeDomain
from midstream.algebra.windows import Hop, Range, Rows, WindowSpec
from midstream.errors import InternalError

JoinKind = OneOf["inner", "left", "right", "full", "semi", "anti"]
StreamKind = OneOf["istream", "dstream", "rstream"]
SequenceMode = OneOf["recent", "chronicle", "all"]
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
    """A stream as it comes in: a tuple at `t` is valid over `[t, t+1)`. `columns` are the stream's own, unqualified."""

    name: str
    alias: str
    columns: pa.Schema
    time: str

    def __post_init__(self) -> None:
        _require(self.time in self.columns.names, f"stream {self.name} has no time column {self.time}")

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
    """Sets the validity of its input's tuples; over anything but a stream, one element per instant of its input."""

    spec: WindowSpec

    def __post_init__(self) -> None:
        if isinstance(self.spec, Rows):
            for name in self.spec.partition_by:
                _require(name in self.input.schema.names, f"no column {name} to partition by")

    @property
    def label(self) -> str:
        return f"Window {self.spec.show(self.domain)}"


@dataclass(frozen=True, slots=True)
class Select(UnaryRelation):
    """Keeps the tuples for which the predicate is true."""

    predicate: Expression

    def __post_init__(self) -> None:
        _require(pa.types.is_boolean(self.predicate.type), f"{self.predicate} is not a condition")
        _readable(self.predicate, self.input.schema)

    @property
    def label(self) -> str:
        return f"Select {_bare(self.predicate)}"


@dataclass(frozen=True, slots=True)
class Project(UnaryRelation):
    """Computes columns from each tuple; duplicates stay."""

    columns: tuple[Named, ...]

    def __post_init__(self) -> None:
        _unique([c.name for c in self.columns])
        for column in self.columns:
            _readable(column.expression, self.input.schema)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.expression.type) for c in self.columns])

    @property
    def label(self) -> str:
        return "Project " + ", ".join(map(str, self.columns))


@dataclass(frozen=True, slots=True)
class Join(BinaryRelation):
    """Pairs of tuples for which the condition is true; outer kinds pad with nulls, semi and anti keep left tuples."""

    on: Expression = TRUE
    kind: JoinKind = "inner"

    def __post_init__(self) -> None:
        both = pa.schema([*self.left.schema, *self.right.schema])
        _unique(both.names)
        _require(pa.types.is_boolean(self.on.type), f"{self.on} is not a condition")
        _readable(self.on, both)

    @property
    def schema(self) -> pa.Schema:
        if self.kind in ("semi", "anti"):
            return self.left.schema
        return pa.schema([*self.left.schema, *self.right.schema])

    @property
    def label(self) -> str:
        word = {"inner": "Join", "semi": "SemiJoin", "anti": "AntiJoin"}.get(self.kind, f"{self.kind.title()}OuterJoin")
        return f"{word} on {_bare(self.on)}" if conjuncts(self.on) else f"{word} (cross)"


@dataclass(frozen=True, slots=True)
class MultiJoin(Relation):
    """An inner join of several inputs without intermediate results; `orders[i]` is the probe order of input i."""

    joined: tuple[Relation, ...]
    on: Expression
    orders: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        _unique(self.schema.names)
        _readable(self.on, self.schema)
        everyone = set(range(len(self.joined)))
        _require(len(self.orders) == len(self.joined), "every input needs a probe order")
        for i, order in enumerate(self.orders):
            once = set(order) == everyone - {i} and len(order) == len(everyone) - 1
            _require(once, "a probe order visits all others once")

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([field for relation in self.joined for field in relation.schema])

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return self.joined

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, joined=inputs)

    @property
    def label(self) -> str:
        names = ["".join(sorted(aliases(r))) if len(aliases(r)) == 1 else f"#{i}" for i, r in enumerate(self.joined)]
        orders = ", ".join(f"{names[i]}: {' '.join(names[j] for j in order)}" for i, order in enumerate(self.orders))
        return f"MultiJoin on {_bare(self.on)} probing {orders}"


@dataclass(frozen=True, slots=True)
class RoutedJoin(MultiJoin):
    """A multi-way join of streams whose windows may be apart; `placements[i]` says where each probe takes place."""

    placements: tuple[tuple[Placement, ...], ...] = ()

    def __post_init__(self) -> None:
        MultiJoin.__post_init__(self)
        placed = [len(way) for way in self.placements] == [len(order) for order in self.orders]
        _require(placed, "every probe needs a placement")

    @property
    def label(self) -> str:
        names = ["".join(sorted(aliases(r))) for r in self.joined]
        ways = []
        for i, order in enumerate(self.orders):
            steps = (f"{ARROWS[p]} {names[j]}" for j, p in zip(order, self.placements[i], strict=True))
            ways.append(f"{names[i]} {' '.join(steps)}")
        return f"RoutedJoin on {_bare(self.on)} by {', '.join(ways)}"


@dataclass(frozen=True, slots=True)
class Distinct(UnaryRelation):
    """Keeps one copy of each tuple per snapshot; nulls are equal to each other here."""

    @property
    def label(self) -> str:
        return "Distinct"


@dataclass(frozen=True, slots=True)
class Aggregate(UnaryRelation):
    """One tuple per group and snapshot. Without keys: one tuple at the instants at which the input is not empty."""

    keys: tuple[Named, ...]
    aggregates: tuple[NamedAggregate, ...]

    def __post_init__(self) -> None:
        _unique(self.schema.names)
        for key in self.keys:
            _readable(key.expression, self.input.schema)
        for aggregate in self.aggregates:
            for argument in aggregate.call.args:
                _readable(argument, self.input.schema)
            if aggregate.call.where is not None:
                _readable(aggregate.call.where, self.input.schema)

    @property
    def schema(self) -> pa.Schema:
        keys = [pa.field(k.name, k.expression.type) for k in self.keys]
        return pa.schema([*keys, *(pa.field(a.name, a.call.type) for a in self.aggregates)])

    @property
    def label(self) -> str:
        parts = ["Aggregate", ", ".join(map(str, self.aggregates)), "by " + ", ".join(map(str, self.keys))]
        return " ".join(part for part in parts if part not in ("", "by "))


@dataclass(frozen=True, slots=True)
class Union(Relation):
    """All tuples of all inputs (UNION ALL); columns by position, named and typed as the first input's."""

    united: tuple[Relation, ...]

    def __post_init__(self) -> None:
        _require(len(self.united) >= 2, "a union needs two inputs")
        for relation in self.united[1:]:
            _same_types(self.united[0].schema, relation.schema)

    @property
    def schema(self) -> pa.Schema:
        return self.united[0].schema

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return self.united

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, united=inputs)

    @property
    def label(self) -> str:
        return "Union"


@dataclass(frozen=True, slots=True)
class Difference(BinaryRelation):
    """Multiset difference per snapshot (EXCEPT ALL); the set form is the difference of distinct inputs."""

    def __post_init__(self) -> None:
        _same_types(self.left.schema, self.right.schema)

    @property
    def label(self) -> str:
        return "Difference"


@dataclass(frozen=True, slots=True)
class Intersect(BinaryRelation):
    """Multiset intersection per snapshot (INTERSECT ALL)."""

    def __post_init__(self) -> None:
        _same_types(self.left.schema, self.right.schema)

    @property
    def label(self) -> str:
        return "Intersect"


@dataclass(frozen=True, slots=True)
class Sequence(Relation):
    """Each tuple of `second` with tuples of `first` at or before it; both are streams (of raw tuples or of pairs).

    `recent`: the latest one; `chronicle`: the earliest unused one for which the condition holds, each used once; `all`:
    every one. `on` partitions by key before pairing, `within` bounds the distance in ticks, `condition` filters pairs,
    `outer` pads a second that has no first (ASOF LEFT JOIN). `order` is what the time of a first is to the time of its
    second. Under `>=` and `>` a second waits for the earliest first at or after it: only `recent`, and padded only
    within a bound. A pair happens at the later of its two times, a padded second when it is known to have no first. The
    row at which a tuple of `first` happens is never the row at which the tuple of `second` does.
    """

    first: Relation
    second: Relation
    mode: SequenceMode
    on: tuple[tuple[Expression, Expression], ...] = ()
    within: int | None = None
    condition: Expression = TRUE
    outer: bool = False
    order: TimeOrder = "<="

    def __post_init__(self) -> None:
        _unique(self.schema.names)
        _readable(self.condition, self.schema)
        for left, right in self.on:
            _readable(left, self.first.schema)
            _readable(right, self.second.schema)
        if self.waits:
            _require(self.mode == "recent", "only the mode recent looks for later tuples")
            _require(not self.outer or self.within is not None, "a tuple cannot wait for ever to be padded")

    @property
    def waits(self) -> bool:
        """Whether seconds wait for a first that comes after them."""
        return self.order in (">=", ">")

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.first.schema, *self.second.schema])

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.first, self.second)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, first=inputs[0], second=inputs[1])

    @property
    def label(self) -> str:
        parts = [f"Sequence {self.mode}{' outer' if self.outer else ''}"]
        if self.order != "<=":
            parts.append(f"first {self.order} second")
        if self.on:
            parts.append("on " + " and ".join(f"{a} = {b}" for a, b in self.on))
        if self.within is not None:
            parts.append(f"within {self.within}")
        if conjuncts(self.condition):
            parts.append(f"where {_bare(self.condition)}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class ToStream(UnaryRelation):
    """Turns a relation into a stream: what entered (ISTREAM), what left (DSTREAM), or all of it always (RSTREAM).

    The first two are multiset differences of neighbouring snapshots, never starts and ends of intervals.
    """

    kind: StreamKind

    @property
    def label(self) -> str:
        return self.kind.upper()


def walk_plan(plan: Relation) -> Iterator[Relation]:
    """The node and everything below it, parents first, left to right."""
    yield plan
    for child in plan.inputs:
        yield from walk_plan(child)


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


def is_monotone(plan: Relation) -> bool:
    """Whether more input only ever adds to the result, so that it can be emitted before time has passed it."""
    for node in walk_plan(plan):
        match node:
            case Aggregate() | Difference() | Intersect() | ToStream() | Sequence():
                return False
            case Join(kind="left" | "right" | "full" | "anti"):
                return False
            case Window(spec=Rows()):
                return False
            case Window(input=inner) if not isinstance(inner, Stream):
                return False
            case _:
                pass
    return True


def instants(plan: Relation) -> Range | Hop | None:
    """The instants at which a relation is looked at one by one (by a window over it, or by RSTREAM).

    `NOW` stands for every tick; a `Hop` for its boundaries; None means that there would be one element per
    microsecond, which nobody wants, unless no row lasts longer than that.
    """
    windows = {node.spec for node in walk_plan(plan) if isinstance(node, Window)}
    hops = {replace(w, size=w.slide) for w in windows if isinstance(w, Hop)}
    if windows and len(hops) == 1 and all(isinstance(w, Hop) for w in windows):
        return hops.pop()
    return Range(0) if plan.domain.is_integer or is_momentary(plan) else None


def is_momentary(plan: Relation) -> bool:
    """Whether every row comes of tuples that count for one tick, so that it counts for no longer (in one piece)."""
    match plan:
        case Stream() | Sequence():
            return True
        case Window(spec=spec):
            return spec == Range(0)
        case Join(kind="inner" | "semi") | MultiJoin() | Intersect():
            return any(map(is_momentary, plan.inputs))
        case Join(kind="left" | "anti") | Difference():
            return is_momentary(plan.inputs[0])
        case Join(kind="right"):
            return is_momentary(plan.inputs[1])
    return all(map(is_momentary, plan.inputs))


def render(plan: Relation, annotate: Callable[[Relation], str] = lambda _: "") -> str:
    """The plan as an indented tree, one node per line.

    Chains read downwards; inputs of a node are indented below it.
    """
    lines: list[str] = []

    def draw(node: Relation, lead: str, below: str) -> None:
        note = annotate(node)
        lines.append(lead + node.label + (f"  {note}" if note else ""))
        for i, child in enumerate(node.inputs):
            last = i == len(node.inputs) - 1
            draw(child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))

    draw(plan, "", "")
    return "\n".join(lines)


def _bare(expression: Expression) -> str:
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


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InternalError(message)


def _unique(names: list[str]) -> None:
    repeated = {n for n in names if names.count(n) > 1}
    _require(not repeated, f"column names repeat: {', '.join(sorted(repeated))}")


def _readable(expression: Expression, schema: pa.Schema) -> None:
    missing = columns_of(expression) - set(schema.names)
    _require(not missing, f"{expression} reads columns that are not there: {', '.join(sorted(missing))}")


def _same_types(left: pa.Schema, right: pa.Schema) -> None:
    _require(left.types == right.types, f"inputs differ in type: {left.types} and {right.types}")
