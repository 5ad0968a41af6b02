"""Sequences, by their definition: which earlier tuples each later tuple is paired with.

A pair happens when its second part does. An earlier tuple at the same instant counts as before; among tuples of one
instant the order of all columns decides. The condition is asked of pairs once they are made.
"""

from __future__ import annotations

from collections.abc import Callable

from midstream.algebra.declarations import Catalog
from midstream.algebra.plan import Sequence
from midstream.algebra.semantics.scalars import evaluator
from midstream.algebra.semantics.values import Row
from midstream.algebra.semantics.windows import Tuple, in_order


def sequenced(plan: Sequence, first: list[Tuple], second: list[Tuple], catalog: Catalog) -> list[Tuple]:
    """The pairs of a sequence, at the times of their second parts."""
    follows = _follows(plan, catalog)
    holds = evaluator(plan.condition, plan.schema.names, catalog)
    padding = (None,) * len(plan.first.schema)
    unused = in_order(first)
    result = []
    for later in in_order(second):
        candidates = [earlier for earlier in unused if follows(earlier, later)]
        chosen = {"recent": candidates[-1:], "chronicle": candidates[:1], "all": candidates}[plan.mode]
        if plan.mode == "chronicle" and chosen:
            unused.remove(chosen[0])
        rows: list[Row] = [earlier.row + later.row for earlier in chosen]
        rows = [row for row in rows if holds(row) is True]
        if plan.outer and not rows:
            rows = [padding + later.row]
        result += [Tuple(later.time, row) for row in rows]
    return result


def _follows(plan: Sequence, catalog: Catalog) -> Callable[[Tuple, Tuple], bool]:
    keys = [
        (evaluator(a, plan.first.schema.names, catalog), evaluator(b, plan.second.schema.names, catalog))
        for a, b in plan.on
    ]

    def follows(earlier: Tuple, later: Tuple) -> bool:
        near = earlier.time <= later.time and (plan.within is None or later.time - earlier.time <= plan.within)
        return near and all(_equal(left(earlier.row), right(later.row)) for left, right in keys)

    return follows


def _equal(left: object, right: object) -> bool:
    return left is not None and right is not None and left == right
