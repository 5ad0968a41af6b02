"""Inner joins of the oracle: what is joined, by which conditions, and the pairs for which they hold.

A pair is asked for every condition, in their order. Those that share no instant, or differ in columns which the first
conditions equate, would be refused anyway and are passed over.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import takewhile

import pyarrow as pa

from midstream.algebra.expressions import Call, Column, Expression, columns_of, conjuncts
from midstream.algebra.plan import Join, MultiJoin, Relation, Select
from midstream.algebra.semantics.scalars import Evaluator
from midstream.algebra.semantics.values import Row
from midstream.algebra.semantics.windows import Element


def is_inner_join(plan: Relation) -> bool:
    """Whether a plan joins without keeping rows that find no partner."""
    return isinstance(plan, MultiJoin) or (isinstance(plan, Join) and plan.kind == "inner")


def joined_inputs(plan: Relation) -> tuple[list[Relation], list[Expression]]:
    """What a tree of inner joins and selections over them joins, left to right, and all its conditions."""
    match plan:
        case Select(inner, predicate) if is_inner_join(inner):
            inputs, conditions = joined_inputs(inner)
            return inputs, [*conditions, *conjuncts(predicate)]
        case Join(on=on) | MultiJoin(on=on) if is_inner_join(plan):
            parts = [joined_inputs(part) for part in plan.inputs]
            inputs = [relation for relations, _ in parts for relation in relations]
            return inputs, [*(c for _, conditions in parts for c in conditions), *conjuncts(on)]
        case _:
            return [plan], []


def equated_columns(conditions: list[Expression], names: list[str], width: int) -> list[tuple[int, int]]:
    """Which columns of the rows so far must equal which of the last `width` before anything else is asked."""
    first, found = len(names) - width, []
    for condition in takewhile(_is_plain_equality, conditions):
        before, new = sorted(names.index(name) for name in columns_of(condition))
        if before < first <= new:
            found.append((before, new - first))
    return found


def _is_plain_equality(condition: Expression) -> bool:
    """Whether it compares two columns whose values are equal only where their hashes are."""
    match condition:
        case Call("=", (Column(one, type_), Column(other, other_type))):
            return one != other and not pa.types.is_nested(type_) and not pa.types.is_nested(other_type)
        case _:
            return False


def pairs(
    left: list[Element], right: list[Element], holds: list[Evaluator], equated: list[tuple[int, int]]
) -> list[Element]:
    """The pairs for which all conditions hold, each valid while both its parts are.

    Only those with equal values in the columns `equated`, and that start near enough, can be among them.
    """
    longest = max((b.end - b.start for b in right), default=0)
    alike: dict[Row, list[int]] = {}
    for i in sorted(range(len(right)), key=lambda i: right[i].start):
        alike.setdefault(tuple(right[i].row[new] for _, new in equated), []).append(i)
    starts = {key: [right[i].start for i in order] for key, order in alike.items()}
    result = []
    for a in left:
        key = tuple(a.row[before] for before, _ in equated)
        if key not in alike:
            continue
        near = alike[key][bisect_right(starts[key], a.start - longest) : bisect_left(starts[key], a.end)]
        for b in (right[i] for i in sorted(near)):
            row, start, end = a.row + b.row, max(a.start, b.start), min(a.end, b.end)
            if start < end and all(condition(row) is True for condition in holds):
                result.append(Element(row, start, end))
    return result
