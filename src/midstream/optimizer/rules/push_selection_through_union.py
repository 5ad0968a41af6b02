"""Selections move below unions."""

from __future__ import annotations

from midstream.algebra.expressions import Column, Expression, substitute
from midstream.algebra.plan import Relation, Select, Union


def push_selection_through_union(plan: Relation) -> Relation:
    """A selection of a union is the union of the selections.

    >>> from midstream.optimizer.rules.examples import example, where
    >>> before = where(example("SELECT k FROM A [NOW] UNION ALL SELECT v FROM B [NOW]"), "k", 1)
    >>> print(push_selection_through_union(before))
    Union
    ├─ Select k = 1
    │  └─ Project A.k AS k
    │     └─ Window [NOW]
    │        └─ Stream A
    └─ Select v = 1
       └─ Project B.v AS v
          └─ Window [NOW]
             └─ Stream B
    """
    match plan:
        case Select(Union(united), predicate):
            first = united[0].schema.names
            return Union(tuple(Select(r, renamed(predicate, first, r)) for r in united))
        case _:
            return plan


def renamed(predicate: Expression, names: list[str], relation: Relation) -> Expression:
    """A predicate over columns by position, for a relation that names them otherwise."""
    by_name: dict[str, Expression] = {
        name: Column(field.name, field.type) for name, field in zip(names, relation.schema, strict=True)
    }
    return substitute(predicate, by_name)
