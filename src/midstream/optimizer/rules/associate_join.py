"""A join of a join is regrouped."""

from __future__ import annotations

from midstream.algebra.plan import Join, Relation
from midstream.optimizer.join_graph import join_graph


def associate_join(plan: Relation) -> Relation:
    """`(a b) c` becomes `a (b c)` if something links b and c, perhaps by way of a: conditions follow their columns.

    >>> from midstream.optimizer.rules.examples import show
    >>> show(associate_join,
    ...      "SELECT A.v FROM A [NOW] JOIN B [NOW] ON A.k = B.k JOIN C [NOW] ON A.k = C.k AND A.v = C.v", at=1)
    Join on (A.k = C.k) AND (A.v = C.v)
    ├─ Join on A.k = B.k
    │  ├─ Window [NOW]
    │  │  └─ Stream A
    │  └─ Window [NOW]
    │     └─ Stream B
    └─ Window [NOW]
       └─ Stream C
    becomes
    Join on (A.k = B.k) AND (A.v = C.v)
    ├─ Window [NOW]
    │  └─ Stream A
    └─ Join on B.k = C.k
       ├─ Window [NOW]
       │  └─ Stream B
       └─ Window [NOW]
          └─ Stream C
    """
    match plan:
        case Join(Join(left, middle, kind="inner"), right, kind="inner"):
            cuts = [len(join_graph(part).inputs) for part in (left, middle, right)]
            if sum(cuts) != 3:
                return plan
            graph = join_graph(plan)
            return graph.tree((0, (1, 2))) if graph.linked(0b010, 0b100) else plan
        case _:
            return plan
