"""Duplicates are removed before they are joined."""

from __future__ import annotations

from midstream.algebra.expressions import columns_of
from midstream.algebra.plan import Distinct, Join, Project, Relation
from midstream.optimizer.rules.push_projection_down import narrowed


def push_distinct_below_join(plan: Relation) -> Relation:
    """A join without duplicates is the join of its inputs without duplicates.

    Above a projection the distinct stays, but the inputs lose what the projection does not read, and their duplicates.

    >>> from midstream.optimizer.rules.examples import show
    >>> show(push_distinct_below_join, "SELECT DISTINCT A.v FROM A [NOW] JOIN B [NOW] ON A.k = B.k")
    Distinct
    └─ Project A.v AS v
       └─ Join on A.k = B.k
          ├─ Window [NOW]
          │  └─ Stream A
          └─ Window [NOW]
             └─ Stream B
    becomes
    Distinct
    └─ Project A.v AS v
       └─ Join on A.k = B.k
          ├─ Distinct
          │  └─ Project A.k, A.v
          │     └─ Window [NOW]
          │        └─ Stream A
          └─ Distinct
             └─ Project B.k
                └─ Window [NOW]
                   └─ Stream B
    """
    match plan:
        case Distinct(Join(left, right, on, "inner")):
            return Join(Distinct(left), Distinct(right), on)
        case Distinct(Project(Join(left, right, on, "inner"), columns)):
            wanted = columns_of(on).union(*(columns_of(c.expression) for c in columns))
            below = Join(once(narrowed(left, wanted)), once(narrowed(right, wanted)), on)
            return Distinct(Project(below, columns))
        case _:
            return plan


def once(relation: Relation) -> Relation:
    """A relation without duplicates."""
    return relation if isinstance(relation, Distinct) else Distinct(relation)
