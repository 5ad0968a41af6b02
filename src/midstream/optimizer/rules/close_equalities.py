"""Equalities that follow from others are written out."""

from __future__ import annotations

from midstream.algebra.expressions import conjunction, conjuncts
from midstream.algebra.plan import Join, Relation, Select
from midstream.optimizer.equalities import closure
from midstream.optimizer.join_graph import join_graph


def close_equalities(plan: Relation) -> Relation:
    """A selection of joins gets the equalities that its conditions imply, so that any two inputs may be joined first.

    >>> from midstream.optimizer.rules.examples import example
    >>> before = example("SELECT A.v FROM A [NOW], B [NOW], C [NOW] WHERE A.k = B.k AND B.k = C.k AND C.k = 7", at=1)
    >>> print(close_equalities(before).label)
    Select (A.k = B.k) AND (A.k = C.k) AND (B.k = C.k) AND (A.k = 7) AND (B.k = 7) AND (C.k = 7)
    """
    match plan:
        case Select(Join(kind="inner") as join, predicate):
            known = closure(conjuncts(predicate))
            below = join_graph(join).conditions
            wanted = [c for c in closure((*known, *below)) if c not in below]
            if set(wanted) == set(conjuncts(predicate)):
                return plan
            return Select(join, conjunction(wanted)) if wanted else join
        case _:
            return plan
