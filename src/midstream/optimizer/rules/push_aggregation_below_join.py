"""Aggregation before the join: groups are joined instead of tuples (eager aggregation, Yan and Larson 1995)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from midstream.algebra.expressions import (
    AggregateCall,
    Call,
    Case,
    Cast,
    Column,
    Expression,
    Literal,
    Named,
    NamedAggregate,
    call,
    columns_of,
)
from midstream.algebra.plan import Aggregate, Join, Relation, walk_plan

PARTIAL = "#"
"""How the names of partial aggregates start: no stream and no user has such columns."""


def push_aggregation_below_join(plan: Relation) -> Relation:
    """Aggregates the left input of a join, else the right one, by its join and group columns before it is joined.

    Its sums, counts and extremes are combined above; what is added up over the other input counts once per tuple of
    the group, so it is multiplied with the group's size. Averages, deviations and DISTINCT are left alone.

    >>> from midstream.optimizer.rules.examples import show
    >>> show(push_aggregation_below_join,
    ...      "SELECT sum(A.v) AS s, count(*) AS n FROM A [TUMBLE 9] JOIN B [TUMBLE 9] ON A.k = B.k GROUP BY B.v", 1)
    Aggregate sum(A.v), count(*) by B.v
    └─ Join on A.k = B.k
       ├─ Window [TUMBLE 9]
       │  └─ Stream A
       └─ Window [TUMBLE 9]
          └─ Stream B
    becomes
    Aggregate sum(#sum(A.v)) AS sum(A.v), sum(#count of A) AS count(*) by B.v
    └─ Join on A.k = B.k
       ├─ Aggregate count(*) AS #count of A, sum(A.v) AS #sum(A.v) by A.k
       │  └─ Window [TUMBLE 9]
       │     └─ Stream A
       └─ Window [TUMBLE 9]
          └─ Stream B
    """
    match plan:
        case Aggregate(Join(left, right, on, "inner"), keys):
            read = columns_of(on) | frozenset(n for k in keys for n in columns_of(k.expression))
            for side in (left, right):
                split = None if is_partial(side) else pre_aggregated(plan.aggregates, side, read)
                if split is not None:
                    grouped, aggregates = split
                    joined = Join(grouped, right, on) if side is left else Join(left, grouped, on)
                    return Aggregate(joined, keys, aggregates)
            return plan
        case _:
            return plan


def is_partial(relation: Relation) -> bool:
    """Whether a relation holds partial aggregates."""
    return any(
        isinstance(n, Aggregate) and any(a.name.startswith(PARTIAL) for a in n.aggregates) for n in walk_plan(relation)
    )


def pre_aggregated(
    aggregates: tuple[NamedAggregate, ...], side: Relation, read: frozenset[str]
) -> tuple[Aggregate, tuple[NamedAggregate, ...]] | None:
    """One input grouped by the columns that others read, and the aggregates over it; None if one cannot be split."""
    names = frozenset(side.schema.names)
    keys = tuple(Named(f.name, Column(f.name, f.type)) for f in side.schema if f.name in read)
    count = NamedAggregate(_count_name(side), AggregateCall("count", (), pa.int64()))
    size = Column(count.name, pa.int64())
    partials: dict[str, NamedAggregate] = {count.name: count}
    above = []
    for aggregate in aggregates:
        inside = _reads(aggregate.call)
        if not aggregate.call.args and aggregate.call.where is None and aggregate.call.function == "count":
            combined: AggregateCall | None = AggregateCall("sum", (size,), pa.int64())
        elif inside and inside <= names:
            combined = _combined(aggregate.call, partials)
        elif not inside & names:
            combined = _repeated(aggregate.call, size)
        else:
            combined = None
        if combined is None or not pa.types.is_null(combined.type) and combined.type != aggregate.call.type:
            return None
        above.append(NamedAggregate(aggregate.name, combined))
    return Aggregate(side, keys, tuple(partials.values())), tuple(above)


def _count_name(side: Relation) -> str:
    prefixes = sorted({name.partition(".")[0] for name in side.schema.names})
    return f"{PARTIAL}count of {'+'.join(prefixes)}"


def _reads(aggregate: AggregateCall) -> frozenset[str]:
    parts: Iterable[Expression] = (*aggregate.args, *filter(None, [aggregate.where]))
    return frozenset(name for part in parts for name in columns_of(part))


def _combined(aggregate: AggregateCall, partials: dict[str, NamedAggregate]) -> AggregateCall | None:
    """An aggregate over the grouped input: computed in part there, put together above."""
    outer = {"sum": "sum", "count": "sum", "min": "min", "max": "max"}.get(aggregate.function)
    if outer is None or (aggregate.distinct and outer == "sum"):
        return None
    name = f"{PARTIAL}{aggregate}"
    partials[name] = NamedAggregate(name, aggregate)
    return AggregateCall(outer, (Column(name, aggregate.type),), aggregate.type)


def _repeated(aggregate: AggregateCall, size: Column) -> AggregateCall | None:
    """An aggregate over the other input, each of whose tuples stands for `size` of the joined ones."""
    if aggregate.function in ("min", "max") or aggregate.distinct:
        return aggregate if aggregate.function in ("min", "max", "count", "sum") else None
    if aggregate.function == "count" and aggregate.args:
        none = Literal(0, pa.int64())
        counted = Case(((call("is_null", aggregate.args[0]), none),), size)
        return AggregateCall("sum", (counted,), pa.int64(), where=aggregate.where) if aggregate.where is None else None
    if aggregate.function == "sum":
        times = _times(aggregate.args[0], size)
        return None if times is None else replace(aggregate, args=(times,))
    return None


def _times(value: Expression, size: Column) -> Expression | None:
    if pa.types.is_floating(value.type):
        return Call("*", (_as(value, pa.float64()), Cast(size, pa.float64())), pa.float64())
    if pa.types.is_integer(value.type):
        return Call("*", (_as(value, pa.int64()), size), pa.int64())
    return None


def _as(value: Expression, kind: pa.DataType) -> Expression:
    return value if value.type == kind else Cast(value, kind)
