"""OVER by its definition: every row of a snapshot looks at all rows of its partition."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from midstream.algebra.declarations import Catalog
from midstream.algebra.over import NEIGHBOURS, PICKS, RANKINGS, NamedOver
from midstream.algebra.plan import RowFunctions
from midstream.algebra.semantics.aggregates import aggregate_evaluator
from midstream.algebra.semantics.scalars import Evaluator, evaluator
from midstream.algebra.semantics.values import NANOSECONDS, Row, is_counted, order, row_identity, row_order

Value = Callable[["OrderedPartition", int], Any]


@dataclass(frozen=True, slots=True)
class OrderedPartition:
    """Rows in their order; `groups` numbers those that the order holds equal, `keys` are values of the first key."""

    rows: list[Row]
    groups: list[int]
    keys: list[Any]


def over_evaluator(plan: RowFunctions, catalog: Catalog) -> Callable[[list[Row]], list[Row]]:
    """What OVER makes of the rows of a snapshot; a row may have more values behind its columns."""
    names = plan.input.schema.names
    keys = [evaluator(key, names, catalog) for key in plan.keys]
    ordered = [(evaluator(o.key, names, catalog), o.descending, o.nulls == "FIRST") for o in plan.order]
    values = [_value(column, plan, names, catalog) for column in plan.columns]

    def twin(rows: list[Row]) -> list[Row]:
        partitions: dict[Hashable, list[Row]] = {}
        for row in rows:
            partitions.setdefault(row_identity(tuple(key(row) for key in keys)), []).append(row)
        found = [_partition(partition, ordered) for partition in partitions.values()]
        return [(*row, *(value(part, i) for value in values)) for part in found for i, row in enumerate(part.rows)]

    return twin


def _partition(rows: list[Row], ordered: list[tuple[Evaluator, bool, bool]]) -> OrderedPartition:
    # Sorting keeps the order of equal rows, so the last key comes first.
    rows = sorted(rows, key=row_order)
    for key, descending, nulls_first in reversed(ordered):
        rows.sort(key=lambda row: order(key(row)), reverse=descending)
        rows.sort(key=lambda row: (key(row) is None) != nulls_first)
    values = [tuple(key(row) for key, _, _ in ordered) for row in rows]
    groups = [0] * len(rows)
    for i in range(1, len(rows)):
        groups[i] = groups[i - 1] + (row_identity(values[i]) != row_identity(values[i - 1]))
    sign = -1 if ordered and ordered[0][1] else 1
    keys = [sign * v[0] if v and isinstance(v[0], int | float) and not _unknown(v[0]) else None for v in values]
    return OrderedPartition(rows, groups, keys)


def _unknown(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _value(column: NamedOver, plan: RowFunctions, names: list[str], catalog: Catalog) -> Value:
    function, arguments = column.call.function, column.call.args
    if function in RANKINGS:
        return lambda part, i: _ranking(function, part.groups, i, column.number or 1)
    if function not in NEIGHBOURS | PICKS:
        aggregate = aggregate_evaluator(column.call, names, catalog)
        return lambda part, i: aggregate([part.rows[j] for j in _frame(column, plan, part, i)])
    values = [evaluator(a, names, catalog) for a in arguments]
    told = values.pop() if column.number is None else lambda _: column.number

    def value(part: OrderedPartition, i: int) -> Any:
        if (number := told(part.rows[i])) is None:
            return None
        seen = range(len(part.rows)) if function in NEIGHBOURS else _frame(column, plan, part, i)
        known = [j for j in seen if not column.known or values[0](part.rows[j]) is not None]
        at = _chosen(function, known, i, number)
        if at is not None:
            return values[0](part.rows[at])
        return values[1](part.rows[i]) if len(values) > 1 else None

    return value


def _chosen(function: str, seen: list[int], i: int, number: int) -> int | None:
    """The place that a function looks at, among those it may look at."""
    if function in NEIGHBOURS and number == 0:
        return i
    if function in NEIGHBOURS and number < 0:
        function, number = ("lead" if function == "lag" else "lag"), -number
    places = {
        "lag": [j for j in reversed(seen) if j < i],
        "lead": [j for j in seen if j > i],
        "last_value": seen[::-1],
    }.get(function, seen)
    number = number if function in (*NEIGHBOURS, "nth_value") else 1
    return places[number - 1] if 1 <= number <= len(places) else None


def _ranking(function: str, groups: list[int], i: int, buckets: int) -> int | float:
    size, before = len(groups), sum(g < groups[i] for g in groups)
    match function:
        case "row_number":
            return i + 1
        case "rank":
            return before + 1
        case "dense_rank":
            return groups[i] + 1
        case "percent_rank":
            return before / (size - 1) if size > 1 else 0.0
        case "cume_dist":
            return sum(g <= groups[i] for g in groups) / size
    sizes = [size // buckets + (bucket < size % buckets) for bucket in range(buckets)]
    return next(bucket + 1 for bucket in range(buckets) if i < sum(sizes[: bucket + 1]))


def _frame(column: NamedOver, plan: RowFunctions, part: OrderedPartition, i: int) -> list[int]:
    """The places of the rows that count for a row."""
    frame = column.frame
    scale = 1
    if plan.order and is_counted(plan.order[0].key.type):
        scale = NANOSECONDS[plan.order[0].key.type.unit]

    def distance(j: int) -> int:
        return j - i if frame.unit == "rows" else part.groups[j] - part.groups[i]

    def reaches(j: int, bound: float | int | None, side: int) -> bool:
        """Whether a row is not before the frame's start (side 1), or not after its end (side -1)."""
        if bound is None:
            return True
        if frame.unit != "range" or bound == 0:
            return side * distance(j) >= side * bound
        if part.keys[i] is None or part.keys[j] is None:
            # A null is at no distance from others: it counts where the frame goes on to the end of the partition.
            return side * distance(j) >= (part.keys[i] is not None)
        return bool(side * part.keys[j] >= side * (part.keys[i] + scale * bound))

    def excludes(j: int) -> bool:
        equal = part.groups[j] == part.groups[i]
        return {"CURRENT ROW": j == i, "GROUP": equal, "TIES": equal and j != i}.get(frame.excluded, False)

    within = [j for j in range(len(part.rows)) if reaches(j, frame.start, 1) and reaches(j, frame.end, -1)]
    return [j for j in within if not excludes(j)]
