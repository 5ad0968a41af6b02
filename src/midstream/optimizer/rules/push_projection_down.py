"""Columns that nobody reads are dropped early."""

from __future__ import annotations

import pyarrow as pa

from midstream.algebra.expressions import Column, Named, columns_of, substitute
from midstream.algebra.plan import Aggregate, Join, Project, Relation, Select, Union


def push_projection_down(plan: Relation) -> Relation:
    """Two projections become one, and a projection of a join or a union keeps only the columns it reads below.

    Duplicates stay, so no projection passes a distinct, a difference or an aggregate.

    >>> from midstream.optimizer.rules.examples import show
    >>> show(push_projection_down, "SELECT A.v FROM A [NOW] JOIN B [NOW] ON A.k = B.k")
    Project A.v AS v
    └─ Join on A.k = B.k
       ├─ Window [NOW]
       │  └─ Stream A
       └─ Window [NOW]
          └─ Stream B
    becomes
    Project A.v AS v
    └─ Join on A.k = B.k
       ├─ Project A.k, A.v
       │  └─ Window [NOW]
       │     └─ Stream A
       └─ Project B.k
          └─ Window [NOW]
             └─ Stream B
    """
    match plan:
        case Project(Project(inner, below), above):
            by_name = {c.name: c.expression for c in below}
            return Project(inner, tuple(Named(c.name, substitute(c.expression, by_name)) for c in above))
        case Project(Union(united), columns):
            return _through_union(united, columns)
        case Project(Join() as join, columns):
            read = frozenset(n for c in columns for n in columns_of(c.expression))
            return Project(_narrow_join(join, read), columns)
        case Aggregate(Join() as join, keys, aggregates):
            read = frozenset(n for k in keys for n in columns_of(k.expression))
            for aggregate in aggregates:
                for argument in (*aggregate.call.args, *filter(None, [aggregate.call.where])):
                    read |= columns_of(argument)
            return Aggregate(_narrow_join(join, read), keys, aggregates)
        case _:
            return plan


def _through_union(united: tuple[Relation, ...], columns: tuple[Named, ...]) -> Relation:
    names = united[0].schema.names
    parts = []
    for relation in united:
        places = {n: Column(f.name, f.type) for n, f in zip(names, relation.schema, strict=True)}
        parts.append(Project(relation, tuple(Named(c.name, substitute(c.expression, dict(places))) for c in columns)))
    return Union(tuple(parts))


def _narrow_join(join: Join, read: frozenset[str]) -> Relation:
    wanted = read | columns_of(join.on)
    return join.with_inputs(tuple(narrowed(side, wanted) for side in join.inputs))


def _weight(field: pa.Field) -> tuple[bool, str]:
    """Light columns first: the one that lowering keeps, too."""
    return not pa.types.is_primitive(field.type), field.name


def narrowed(relation: Relation, wanted: frozenset[str]) -> Relation:
    """A relation with its wanted columns alone; one is kept in any case, so that its tuples still count."""
    kept = [f for f in relation.schema if f.name in wanted] or [min(relation.schema, key=_weight)]
    if len(kept) == len(relation.schema):
        return relation
    columns = tuple(Named(f.name, Column(f.name, f.type)) for f in kept)
    if isinstance(relation, Select) and not columns_of(relation.predicate) <= {f.name for f in kept}:
        return Project(relation, columns)
    if isinstance(relation, Select):
        return Select(narrowed(relation.input, frozenset(f.name for f in kept)), relation.predicate)
    return Project(relation, columns)
