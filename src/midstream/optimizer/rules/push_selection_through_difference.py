"""Selections move below differences and intersections."""

from __future__ import annotations

from midstream.algebra.plan import Difference, Intersect, Relation, Select
from midstream.optimizer.rules.push_selection_through_union import renamed


def push_selection_through_difference(plan: Relation) -> Relation:
    """A selection of a difference or an intersection is that of the selections: equal tuples answer a predicate alike.

    >>> from midstream.optimizer.rules.examples import example, where
    >>> before = where(example("SELECT k FROM A [NOW] EXCEPT ALL SELECT v FROM B [NOW]"), "k", 1)
    >>> print(push_selection_through_difference(before))
    Difference
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
        case Select(Difference(left, right) | Intersect(left, right) as node, predicate):
            names = left.schema.names
            return node.with_inputs(
                (Select(left, renamed(predicate, names, left)), Select(right, renamed(predicate, names, right)))
            )
        case _:
            return plan
