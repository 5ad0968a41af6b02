"""Sequences, by their definition: which tuples of the first stream each tuple of the second is paired with.

A pair happens when the later of its parts does. Among tuples of one instant the order of all columns decides. A row is
known by its stream and its number in that stream's order, so that equal rows are still different ones; what happens at
a row never pairs with what happens at the same row. The condition is asked of pairs once they are made, but CHRONICLE
and none look only at pairs for which it holds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import NamedTuple

from midstream.algebra.declarations import Catalog
from midstream.algebra.plan import Sequence
from midstream.algebra.semantics.scalars import evaluator
from midstream.algebra.semantics.values import Row, row_order

Origin = tuple[str, int]
"""A row of a stream: the stream's name, and the row's number in the stream's order."""

ORDERS: dict[str, Callable[[int, int], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
}


class Arrival(NamedTuple):
    """A tuple of a stream, and the row at which it happens; a padded one happens at none."""

    time: int
    row: Row
    origin: Origin | None


def sequenced(plan: Sequence, first: list[Arrival], second: list[Arrival], catalog: Catalog) -> list[Arrival]:
    """The pairs of a sequence, at the times of their later parts."""
    may_pair = _may_pair(plan, catalog)
    condition = evaluator(plan.condition, plan.schema.names, catalog)
    unused = _in_order(first)
    result = []
    for here in _in_order(second):
        candidates = [there for there in unused if may_pair(there, here)]
        if plan.mode in ("chronicle", "none"):
            candidates = [there for there in candidates if condition(there.row + here.row) is True]
        chosen = _chosen(plan, candidates)
        if plan.mode == "chronicle" and chosen:
            unused.remove(chosen[0])
        held = [there for there in chosen if condition(there.row + here.row) is True]
        result += [_pair(plan, there, here) for there in held if plan.mode != "none"]
        if plan.outer and not held:
            result.append(_padded(plan, chosen, here))
    return result


def _chosen(plan: Sequence, candidates: list[Arrival]) -> list[Arrival]:
    if plan.mode == "all":
        return candidates
    return candidates[-1:] if plan.mode == "recent" and not plan.waits else candidates[:1]


def _pair(plan: Sequence, there: Arrival, here: Arrival) -> Arrival:
    last = there if plan.waits else here
    return Arrival(last.time, there.row + here.row, last.origin)


def _padded(plan: Sequence, chosen: list[Arrival], here: Arrival) -> Arrival:
    """A second without a first, at the time at which it is known that it has none."""
    row = (None,) * len(plan.first.schema) + here.row
    if not plan.waits:
        return Arrival(here.time, row, here.origin)
    assert plan.within is not None
    return Arrival(chosen[0].time if chosen else here.time + plan.within, row, None)


def _may_pair(plan: Sequence, catalog: Catalog) -> Callable[[Arrival, Arrival], bool]:
    keys = [
        (evaluator(a, plan.first.schema.names, catalog), evaluator(b, plan.second.schema.names, catalog))
        for a, b in plan.on
    ]

    def may_pair(there: Arrival, here: Arrival) -> bool:
        if there.origin is not None and there.origin == here.origin:
            return False
        near = plan.within is None or abs(here.time - there.time) <= plan.within
        ordered = ORDERS[plan.order](there.time, here.time)
        return ordered and near and all(_equal(left(there.row), right(here.row)) for left, right in keys)

    return may_pair


def _in_order(stream: list[Arrival]) -> list[Arrival]:
    """The stream by time, ties by all columns."""
    return sorted(stream, key=lambda arrival: (arrival.time, row_order(arrival.row)))


def _equal(left: object, right: object) -> bool:
    return left is not None and right is not None and left == right
