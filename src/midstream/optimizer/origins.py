"""Where a column comes from: the expression over a stream's own columns that it is, by which statistics know it."""

from __future__ import annotations

from midstream.algebra.expressions import Column, Expression, columns_of, substitute
from midstream.algebra.plan import (
    Aggregate,
    Difference,
    Intersect,
    Project,
    Relation,
    Sequence,
    Stream,
    Union,
)


def origin(plan: Relation, name: str) -> Expression | None:
    """The expression over a stream's columns that a column is."""
    match plan:
        case Stream():
            return Column(name, plan.schema.field(name).type)
        case Project(inner, columns):
            expression = next(c.expression for c in columns if c.name == name)
            return origin(inner, expression.name) if isinstance(expression, Column) else None
        case Aggregate(inner, keys):
            key = next((k.expression for k in keys if k.name == name), None)
            return origin(inner, key.name) if isinstance(key, Column) else None
        case Union() | Difference() | Intersect() | Sequence():
            return None
    for child in plan.inputs:
        if name in child.schema.names:
            return origin(child, name)
    return None


def origin_text(relation: Relation, term: Expression) -> str | None:
    """A term over a relation's columns in words of its streams' columns; None if it is about something computed."""
    by_name = {}
    for name in columns_of(term):
        found = origin(relation, name)
        if found is None:
            return None
        by_name[name] = found
    return str(substitute(term, by_name))
