"""The sides of a join change places."""

from __future__ import annotations

from midstream.algebra.plan import Join, Relation


def commute_join(plan: Relation) -> Relation:
    """An inner join is the same from both sides; only the order of its columns differs, which go by name.

    >>> from midstream.optimizer.rules.examples import show
    >>> show(commute_join, "SELECT A.v FROM A [NOW] JOIN B [NOW] ON A.k = B.k", at=1)
    Join on A.k = B.k
    ├─ Window [NOW]
    │  └─ Stream A
    └─ Window [NOW]
       └─ Stream B
    becomes
    Join on A.k = B.k
    ├─ Window [NOW]
    │  └─ Stream B
    └─ Window [NOW]
       └─ Stream A
    """
    match plan:
        case Join(left, right, on, "inner"):
            return Join(right, left, on)
        case _:
            return plan
