"""Relations computed from others; all but sequences and streams mean, at every instant, their relational twin."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from midstream.algebra.expressions import (
    TRUE,
    Expression,
    Named,
    NamedAggregate,
    conjuncts,
)
from midstream.algebra.over import NEIGHBOURS, NamedOver, OrderKey, over_label
from midstream.algebra.placements import ARROWS, Placement
from midstream.algebra.plan.base import (
    BinaryRelation,
    JoinKind,
    Relation,
    SequenceMode,
    StreamKind,
    TimeOrder,
    UnaryRelation,
    aliases,
    bare,
    require,
    require_readable,
    require_same_types,
    require_unique,
)
from midstream.algebra.types import has_elements


@dataclass(frozen=True, slots=True)
class Select(UnaryRelation):
    """Keeps the tuples for which the predicate is true."""

    predicate: Expression

    def __post_init__(self) -> None:
        require(pa.types.is_boolean(self.predicate.type), f"{self.predicate} is not a condition")
        require_readable(self.predicate, self.input.schema)

    @property
    def label(self) -> str:
        return f"Select {bare(self.predicate)}"


@dataclass(frozen=True, slots=True)
class Project(UnaryRelation):
    """Computes columns from each tuple; duplicates stay."""

    columns: tuple[Named, ...]

    def __post_init__(self) -> None:
        require_unique([c.name for c in self.columns])
        for column in self.columns:
            require_readable(column.expression, self.input.schema)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.expression.type) for c in self.columns])

    @property
    def label(self) -> str:
        return "Project " + ", ".join(map(str, self.columns))


@dataclass(frozen=True, slots=True)
class Unnested(UnaryRelation):
    """A tuple for each element of a list, beside the tuple's own columns.

    Several lists are read side by side: the longest says how many tuples there are, and where another has ended it
    gives nulls.
    """

    lists: tuple[Named, ...]

    def __post_init__(self) -> None:
        require_unique(self.schema.names)
        for one in self.lists:
            require(has_elements(one.expression.type), f"{one.expression} is no list")
            require_readable(one.expression, self.input.schema)

    @property
    def schema(self) -> pa.Schema:
        elements = [pa.field(one.name, one.expression.type.value_type) for one in self.lists]
        return pa.schema([*self.input.schema, *elements])

    @property
    def label(self) -> str:
        return "Unnest " + ", ".join(map(str, self.lists))


@dataclass(frozen=True, slots=True)
class Join(BinaryRelation):
    """Pairs of tuples for which the condition is true; outer kinds pad with nulls, semi and anti keep left tuples."""

    on: Expression = TRUE
    kind: JoinKind = "inner"

    def __post_init__(self) -> None:
        both = pa.schema([*self.left.schema, *self.right.schema])
        require_unique(both.names)
        require(pa.types.is_boolean(self.on.type), f"{self.on} is not a condition")
        require_readable(self.on, both)

    @property
    def schema(self) -> pa.Schema:
        if self.kind in ("semi", "anti"):
            return self.left.schema
        return pa.schema([*self.left.schema, *self.right.schema])

    @property
    def label(self) -> str:
        word = {"inner": "Join", "semi": "SemiJoin", "anti": "AntiJoin"}.get(self.kind, f"{self.kind.title()}OuterJoin")
        return f"{word} on {bare(self.on)}" if conjuncts(self.on) else f"{word} (cross)"


@dataclass(frozen=True, slots=True)
class MultiJoin(Relation):
    """An inner join of several inputs without intermediate results; `orders[i]` is the probe order of input i."""

    joined: tuple[Relation, ...]
    on: Expression
    orders: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        require_unique(self.schema.names)
        require_readable(self.on, self.schema)
        everyone = set(range(len(self.joined)))
        require(len(self.orders) == len(self.joined), "every input needs a probe order")
        for i, order in enumerate(self.orders):
            once = set(order) == everyone - {i} and len(order) == len(everyone) - 1
            require(once, "a probe order visits all others once")

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
        return f"MultiJoin on {bare(self.on)} probing {orders}"


@dataclass(frozen=True, slots=True)
class RoutedJoins(MultiJoin):
    """A multi-way join of streams whose windows may be apart; `placements[i]` says where each probe takes place."""

    placements: tuple[tuple[Placement, ...], ...] = ()

    def __post_init__(self) -> None:
        MultiJoin.__post_init__(self)
        placed = [len(way) for way in self.placements] == [len(order) for order in self.orders]
        require(placed, "every probe needs a placement")

    @property
    def label(self) -> str:
        names = ["".join(sorted(aliases(r))) for r in self.joined]
        ways = []
        for i, order in enumerate(self.orders):
            steps = (f"{ARROWS[p]} {names[j]}" for j, p in zip(order, self.placements[i], strict=True))
            ways.append(f"{names[i]} {' '.join(steps)}")
        return f"RoutedJoin on {bare(self.on)} by {', '.join(ways)}"


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
        require_unique(self.schema.names)
        for key in self.keys:
            require_readable(key.expression, self.input.schema)
        for aggregate in self.aggregates:
            for argument in aggregate.call.args:
                require_readable(argument, self.input.schema)
            if aggregate.call.where is not None:
                require_readable(aggregate.call.where, self.input.schema)

    @property
    def schema(self) -> pa.Schema:
        keys = [pa.field(k.name, k.expression.type) for k in self.keys]
        return pa.schema([*keys, *(pa.field(a.name, a.call.type) for a in self.aggregates)])

    @property
    def label(self) -> str:
        parts = ["Aggregate", ", ".join(map(str, self.aggregates)), "by " + ", ".join(map(str, self.keys))]
        return " ".join(part for part in parts if part not in ("", "by "))


@dataclass(frozen=True, slots=True)
class RowFunctions(UnaryRelation):
    """Every tuple with functions of those that equal it in the keys, in an order.

    Tuples that the order holds equal follow one another by all columns of the input, ascending, nulls first.
    """

    keys: tuple[Expression, ...]
    order: tuple[OrderKey, ...]
    columns: tuple[NamedOver, ...]

    def __post_init__(self) -> None:
        require_unique(self.schema.names)
        for read in (*self.keys, *(o.key for o in self.order), *(e for c in self.columns for e in c.reads)):
            require_readable(read, self.input.schema)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.input.schema, *(pa.field(c.name, c.type) for c in self.columns)])

    @property
    def label(self) -> str:
        return over_label(self.columns, self.keys, self.order)


@dataclass(frozen=True, slots=True)
class Over(RowFunctions):
    """Functions of the tuples of a snapshot."""


@dataclass(frozen=True, slots=True)
class RowsOverStream(RowFunctions):
    """Functions of the tuples of a stream up to each of them, which happens at its own time.

    The order begins with the time, ascending, so a frame holds nothing that is still to come. Either all frames have a
    start, or none has and the value of a row follows from that of the row before it.
    """

    def __post_init__(self) -> None:
        RowFunctions.__post_init__(self)
        require(bool(self.order) and not self.order[0].descending, "a stream is looked at in the order of its time")

    @property
    def running(self) -> bool:
        """Whether the frames have no start."""
        return any(c.frame.start is None for c in self.columns if c.call.function not in NEIGHBOURS)

    @property
    def label(self) -> str:
        return f"{over_label(self.columns, self.keys, self.order)} of the stream"


@dataclass(frozen=True, slots=True)
class Union(Relation):
    """All tuples of all inputs (UNION ALL); columns by position, named and typed as the first input's."""

    united: tuple[Relation, ...]

    def __post_init__(self) -> None:
        require(len(self.united) >= 2, "a union needs two inputs")
        for relation in self.united[1:]:
            require_same_types(self.united[0].schema, relation.schema)

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
        require_same_types(self.left.schema, self.right.schema)

    @property
    def label(self) -> str:
        return "Difference"


@dataclass(frozen=True, slots=True)
class Intersect(BinaryRelation):
    """Multiset intersection per snapshot (INTERSECT ALL)."""

    def __post_init__(self) -> None:
        require_same_types(self.left.schema, self.right.schema)

    @property
    def label(self) -> str:
        return "Intersect"


@dataclass(frozen=True, slots=True)
class Sequence(Relation):
    """Each tuple of `second` with tuples of `first` at or before it; both are streams (of raw tuples or of pairs).

    `recent`: the latest one; `chronicle`: the earliest unused one for which the condition holds, each used once; `all`:
    every one; `none`: a second alone, if the condition holds with no first. `on` partitions by key before pairing,
    `within` bounds the distance in ticks, `condition` filters pairs, `outer` pads a second that has no first (ASOF LEFT
    JOIN). `order` is what the time of a first is to the time of its second. Under `>=` and `>` a second waits for the
    earliest first at or after it: only `recent` and `none`, and padded only within a bound. A pair happens at the later
    of its two times, a padded second when it is known to have no first. The row at which a tuple of `first` happens is
    never the row at which the tuple of `second` does.
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
        require_unique(self.schema.names)
        require_readable(self.condition, self.schema)
        for left, right in self.on:
            require_readable(left, self.first.schema)
            require_readable(right, self.second.schema)
        require(self.mode != "none" or (self.waits and self.outer), "what has no later tuple is padded")
        if self.waits:
            require(self.mode in ("recent", "none"), "only the modes recent and none look for later tuples")
            require(not self.outer or self.within is not None, "a tuple cannot wait for ever to be padded")

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
            parts.append(f"where {bare(self.condition)}")
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
