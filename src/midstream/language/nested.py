"""Lists, structs and maps that are compared, grouped by and joined by.

A nested value is told from others by its text in JSON, which is equal for equal values: nulls inside are equal to each
other, as in DuckDB. So keys are texts, and what runs has no nested keys. Which of two nested values is less is asked of
DuckDB itself.
"""

from __future__ import annotations

from midstream.algebra.borrowed_aggregates import borrow_aggregate
from midstream.algebra.expressions import AggregateCall, Call, Column, Expression, Named, NamedAggregate
from midstream.algebra.plan import Aggregate, Distinct, Project, Relation
from midstream.algebra.types import TEXT, is_nested

ORDERINGS = {"<": "nested_less", "<=": "nested_at_most", ">": "nested_greater", ">=": "nested_at_least"}


def told_apart(value: Expression) -> Expression:
    """What tells a value from others: its text if it is nested, else itself."""
    return Call("packed", (value,), TEXT) if is_nested(value.type) else value


def extreme(which: str, value: Expression) -> AggregateCall:
    """The least or the greatest of several values."""
    if is_nested(value.type):
        return borrow_aggregate(f"nested_{which}", [value], [], False)
    return AggregateCall(which, (value,), value.type)


def any_of(value: Expression) -> AggregateCall:
    """Any of several equal values."""
    return borrow_aggregate("any_value", [value], [], False)


def distinct(relation: Relation) -> Relation:
    """One copy of each tuple."""
    if not any(is_nested(f.type) for f in relation.schema):
        return Distinct(relation)
    columns = [Column(f.name, f.type) for f in relation.schema]
    keys = tuple(Named(f"#{c.name}" if is_nested(c.type) else c.name, told_apart(c)) for c in columns)
    carried = tuple(NamedAggregate(c.name, any_of(c)) for c in columns if is_nested(c.type))
    return Project(Aggregate(relation, keys, carried), tuple(Named(c.name, c) for c in columns))
