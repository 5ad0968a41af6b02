"""Windows that change nothing disappear."""

from __future__ import annotations

from midstream.algebra.plan import Relation, Stream, Window, instants, is_monotone
from midstream.algebra.windows import NOW


def fold_windows(plan: Relation) -> Relation:
    """`[NOW]` over a relation that is looked at in every instant is that relation.

    Only where the relation has to wait for time anyway: what a query may emit early is no business of a rule.

    >>> from midstream.optimizer.rules.examples import show
    >>> show(fold_windows, "SELECT k FROM (SELECT k, count(*) AS n FROM A [RANGE 5] GROUP BY k) [NOW] AS x", at=1)
    Window [NOW]
    └─ Project A.k AS x.k, count(*) AS x.n
       └─ Aggregate count(*) by A.k
          └─ Window [RANGE 5]
             └─ Stream A
    becomes
    Project A.k AS x.k, count(*) AS x.n
    └─ Aggregate count(*) by A.k
       └─ Window [RANGE 5]
          └─ Stream A
    """
    match plan:
        case Window(inner, spec) if spec == NOW and not isinstance(inner, Stream):
            return inner if instants(inner) == NOW and not is_monotone(inner) else plan
        case _:
            return plan
