"""Duplicates are removed after they are joined."""

from __future__ import annotations

from midstream.algebra.plan import Distinct, Join, Project, Relation


def pull_distinct_above_join(plan: Relation) -> Relation:
    """A join of inputs without duplicates is the join of the inputs, without duplicates.

    A distinct below only one side, or above a projection, can go only where a distinct above takes its place.

    >>> from midstream.optimizer.rules.examples import example
    >>> from midstream.optimizer.rules.push_distinct_below_join import push_distinct_below_join
    >>> whole = Distinct(example("SELECT A.v FROM A [NOW] JOIN B [NOW] ON A.k = B.k", at=1))
    >>> print(push_distinct_below_join(whole))
    Join on A.k = B.k
    ├─ Distinct
    │  └─ Window [NOW]
    │     └─ Stream A
    └─ Distinct
       └─ Window [NOW]
          └─ Stream B
    >>> pull_distinct_above_join(push_distinct_below_join(whole)) == whole
    True
    """
    match plan:
        case Join(Distinct(left), Distinct(right), on, "inner"):
            return Distinct(Join(left, right, on))
        case Distinct(Join(left, right, on, "inner")) if isinstance(left, Distinct) or isinstance(right, Distinct):
            return Distinct(Join(_many(left), _many(right), on))
        case Distinct(Project(Join(left, right, on, "inner"), columns)) if isinstance(left, Distinct) or isinstance(
            right, Distinct
        ):
            return Distinct(Project(Join(_many(left), _many(right), on), columns))
        case _:
            return plan


def _many(relation: Relation) -> Relation:
    return relation.input if isinstance(relation, Distinct) else relation
