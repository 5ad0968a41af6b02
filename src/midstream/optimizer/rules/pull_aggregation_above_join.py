"""Aggregation after the join: the way back from eager aggregation."""

from __future__ import annotations

from dataclasses import replace

from midstream.algebra.expressions import AggregateCall, Call, Case, Cast, Column, NamedAggregate, columns_of
from midstream.algebra.plan import Aggregate, Join, Relation


def pull_aggregation_above_join(plan: Relation) -> Relation:
    """Aggregates over groups that were aggregated before a join become aggregates over the joined tuples.

    >>> from midstream.optimizer.rules.examples import example
    >>> from midstream.optimizer.rules.push_aggregation_below_join import push_aggregation_below_join
    >>> whole = example("SELECT sum(A.v), min(B.k), count(*) FROM A [NOW] JOIN B [NOW] ON A.k = B.k GROUP BY B.v", 1)
    >>> pull_aggregation_above_join(push_aggregation_below_join(whole)) == whole
    True
    """
    match plan:
        case Aggregate(Join(Aggregate() as grouped, right, on, "inner"), keys):
            below = Join(grouped.input, right, on)
        case Aggregate(Join(left, Aggregate() as grouped, on, "inner"), keys):
            below = Join(left, grouped.input, on)
        case _:
            return plan
    partials = {a.name: a.call for a in grouped.aggregates}
    renamed = any(k.name != str(k.expression) for k in grouped.keys)
    read = columns_of(on) | frozenset(n for k in keys for n in columns_of(k.expression))
    if renamed or read & partials.keys():
        return plan
    whole = [_whole(a, partials) for a in plan.aggregates]
    if any(a is None for a in whole):
        return plan
    return Aggregate(below, keys, tuple(a for a in whole if a is not None))


def _whole(aggregate: NamedAggregate, partials: dict[str, AggregateCall]) -> NamedAggregate | None:
    call = aggregate.call
    sizes = {name for name, c in partials.items() if c.function == "count" and not c.args and c.where is None}
    match call:
        case AggregateCall(args=(Column(name),)) if name in partials:
            part = partials[name]
            fits = (call.function, part.function) in (("sum", "sum"), ("sum", "count"), ("min", "min"), ("max", "max"))
            return NamedAggregate(aggregate.name, part) if fits and not call.distinct and call.where is None else None
        case AggregateCall("sum", (Call("*", (value, Column(name) | Cast(Column(name)))),)) if name in sizes:
            value = value.input if isinstance(value, Cast) and value.input.type != value.type else value
            return NamedAggregate(aggregate.name, replace(call, args=(value,)))
        case AggregateCall("sum", (Case(((Call("is_null", (value,)), _),), Column(name)),)) if name in sizes:
            return NamedAggregate(aggregate.name, replace(call, function="count", args=(value,)))
        case AggregateCall("min" | "max") if not any(columns_of(a) & partials.keys() for a in call.args):
            return aggregate
    return None
