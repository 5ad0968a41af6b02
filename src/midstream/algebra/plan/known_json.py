"""Columns that are known to hold JSON, which to the language is a text."""

from __future__ import annotations

from midstream.algebra.borrowed import json_type
from midstream.algebra.borrowed_aggregates import GIVE_JSON, GIVE_ONE
from midstream.algebra.expressions import Column, Expression
from midstream.algebra.plan.base import Relation
from midstream.algebra.plan.relations import Aggregate, Project, Union


def holds_json(plan: Relation, name: str) -> bool:
    """Whether a column of a relation was made as JSON."""
    match plan:
        case Project(inner, columns):
            return _is_json(inner, next(c.expression for c in columns if c.name == name))
        case Union(united):
            place = plan.schema.names.index(name)
            return all(holds_json(one, one.schema.names[place]) for one in united)
        case Aggregate(inner, keys, calls):
            given = {one.name: one.call for one in calls}
            if name not in given:
                return _is_json(inner, next(key.expression for key in keys if key.name == name))
            one = given[name].function in GIVE_ONE and _is_json(inner, given[name].args[0])
            return one or given[name].function in GIVE_JSON
    return any(holds_json(one, name) for one in plan.inputs if name in one.schema.names)


def _is_json(plan: Relation, value: Expression) -> bool:
    return holds_json(plan, value.name) if isinstance(value, Column) else json_type(value) == "JSON"
