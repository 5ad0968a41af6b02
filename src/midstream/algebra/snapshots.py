"""Comparing results: two relations are equal if all their snapshots are, however their rows are cut into intervals.

Count +1 where a row of x starts and −1 where it ends, the other way round for y: the snapshots agree up to the first
instant at which some row's counts do not cancel. A stream (`ts` instead of an interval) is compared as a multiset per
instant. Floats are equal within a relative 1e-9 or an absolute 1e-12, through a chain of values if there is one; NaN
is equal to NaN, and 0.0 to -0.0.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_type

from midstream.algebra.time import INFINITY
from midstream.errors import InputError

RELATIVE_TOLERANCE = 1e-9
ABSOLUTE_TOLERANCE = 1e-12
ROWS_SHOWN = 5

Integers = npt.NDArray[np.int64]
Instant = int | dt.datetime


@dataclass(frozen=True, slots=True)
class SnapshotComparison:
    """True if equal; otherwise it says why, at which instant first, and which rows only one side has there."""

    reason: str | None = None
    instant: Instant | None = None
    only_in_x: tuple[dict[str, Any], ...] = ()
    only_in_y: tuple[dict[str, Any], ...] = ()

    def __bool__(self) -> bool:
        return self.reason is None

    def __str__(self) -> str:
        if self.reason is None:
            return "equal"
        sides = (("x", self.only_in_x), ("y", self.only_in_y))
        return "\n".join([self.reason, *(_listing(f"only in {side}", rows) for side, rows in sides if rows)])


EQUAL = SnapshotComparison()


def snapshot_equal(x: Any, y: Any) -> SnapshotComparison:
    """Whether two results have the same snapshots.

    >>> whole = pa.table({"k": ["a"], "valid_from": [1], "valid_to": [9]})
    >>> pieces = pa.table({"k": ["a", "a"], "valid_from": [1, 4], "valid_to": [4, 9]})
    >>> bool(snapshot_equal(whole, pieces))
    True
    >>> print(snapshot_equal(whole, pieces.slice(0, 1)))
    snapshots differ first at 4
      only in x: {'k': 'a'}
    """
    return _compare(x, y, _first_differing_snapshot)


def multiset_equal(x: Any, y: Any) -> SnapshotComparison:
    """Whether two results have the same elements: the same rows over the same intervals, equally often.

    >>> whole = pa.table({"k": ["a"], "valid_from": [1], "valid_to": [9]})
    >>> pieces = pa.table({"k": ["a", "a"], "valid_from": [1, 4], "valid_to": [4, 9]})
    >>> bool(multiset_equal(whole, pieces))
    False
    """
    return _compare(x, y, _first_differing_element)


@dataclass(frozen=True, slots=True)
class _Result:
    """A result taken apart: payload columns, and start and end of each row in ticks."""

    payload: pa.Table
    start: Integers
    end: Integers
    time_type: pa.DataType
    is_stream: bool


def _compare(x: Any, y: Any, first_difference: Any) -> SnapshotComparison:
    left, right = _result(x, "x"), _result(y, "y")
    reason = _mismatch(left, right)
    if reason:
        return SnapshotComparison(reason)
    aligned = _aligned(left, right)
    if isinstance(aligned, str):
        return SnapshotComparison(aligned)
    left, right = aligned
    exact = first_difference(left, right, _row_numbers(left, right, tolerant=False))
    has_floats = any(is_type.is_floating(t) for t in left.payload.schema.types)
    if exact or not has_floats:
        return exact  # type: ignore[no-any-return]
    return first_difference(left, right, _row_numbers(left, right, tolerant=True))  # type: ignore[no-any-return]


def _result(value: Any, side: str) -> _Result:
    table = _table(value, side)
    names = table.column_names
    if "valid_from" in names and "valid_to" in names:
        starts, ends = (table.column(_last(names, name)) for name in ("valid_from", "valid_to"))
        payload = _without(table, _last(names, "valid_from"), _last(names, "valid_to"))
        start, end = _ticks(starts, side), _ticks(ends, side, null=INFINITY)
        return _Result(payload, start, end, starts.type, is_stream=False)
    if "ts" in names:
        times = table.column(_last(names, "ts"))
        start = _ticks(times, side)
        return _Result(_without(table, _last(names, "ts")), start, start + 1, times.type, is_stream=True)
    raise InputError(
        f"{side} is not a result: it has neither valid_from and valid_to nor ts",
        detail=f"its columns are {', '.join(names) or 'none'}",
    )


def _table(value: Any, side: str) -> pa.Table:
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if type(value).__module__.startswith("pandas"):
        return pa.Table.from_pandas(value, preserve_index=False)
    if hasattr(value, "__arrow_c_stream__"):
        return pa.table(value)
    raise InputError(f"{side} is not a table but a {type(value).__name__}", hint="give an Arrow table or a data frame")


def _last(names: list[str], name: str) -> int:
    # A selected column may bear the same name: the result's own time columns stand at the end.
    return len(names) - 1 - names[::-1].index(name)


def _without(table: pa.Table, *positions: int) -> pa.Table:
    return table.select([i for i in range(table.num_columns) if i not in positions])


def _ticks(column: pa.ChunkedArray, side: str, null: int | None = None) -> Integers:
    if null is None and column.null_count:
        raise InputError(f"{side} has a null where a time must be")
    try:
        if is_type.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz))
        column = column.cast(pa.int64())
    except pa.ArrowInvalid as problem:
        raise InputError(f"{side} has times that cannot be read", detail=str(problem)) from None
    if null is not None:
        column = pc.fill_null(column, null)
    return np.asarray(column, dtype=np.int64)


def _mismatch(left: _Result, right: _Result) -> str | None:
    if left.is_stream != right.is_stream:
        stream, relation = ("x", "y") if left.is_stream else ("y", "x")
        return f"{stream} is a stream (ts) and {relation} a relation (valid_from, valid_to)"
    if is_type.is_timestamp(left.time_type) != is_type.is_timestamp(right.time_type):
        return f"time is {left.time_type} in x and {right.time_type} in y"
    if sorted(left.payload.column_names) != sorted(right.payload.column_names):
        shown = [", ".join(result.payload.column_names) or "none" for result in (left, right)]
        return f"columns differ: x has {shown[0]}; y has {shown[1]}"
    return None


def _aligned(left: _Result, right: _Result) -> tuple[_Result, _Result] | str:
    """Both with the same columns in the same order and of the same types; or why that cannot be."""
    names = left.payload.column_names
    ordered = right.payload if right.payload.column_names == names else right.payload.select(names)
    columns: tuple[list[pa.ChunkedArray], list[pa.ChunkedArray]] = ([], [])
    for name, x, y in zip(names, left.payload.columns, ordered.columns, strict=True):
        shared = _comparable_type(x.type, y.type)
        if shared is None:
            return f"column {name} is {x.type} in x and {y.type} in y"
        columns[0].append(x.cast(shared))
        columns[1].append(y.cast(shared))
    tables = [pa.table(side, names=names) if names else pa.table({}) for side in columns]
    return replace(left, payload=tables[0]), replace(right, payload=tables[1])


def _comparable_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    a, b = _plain(a), _plain(b)
    if a == b or is_type.is_null(b):
        return a
    if is_type.is_null(a):
        return b
    both = (a, b)
    if all(map(is_type.is_integer, both)):
        return pa.int64()
    if all(map(_is_number, both)):
        scale = max(getattr(t, "scale", 0) for t in both)
        return pa.float64() if any(map(is_type.is_floating, both)) else pa.decimal128(38, scale)
    if all(map(is_type.is_timestamp, both)):
        return pa.timestamp("ns" if "ns" in (a.unit, b.unit) else "us", a.tz) if bool(a.tz) == bool(b.tz) else None
    return pa.duration("us") if all(map(is_type.is_duration, both)) else None


def _plain(data_type: pa.DataType) -> pa.DataType:
    """The type without its way of storage."""
    if is_type.is_dictionary(data_type):
        return _plain(data_type.value_type)
    if is_type.is_large_string(data_type) or is_type.is_string_view(data_type):
        return pa.string()
    if is_type.is_large_binary(data_type) or is_type.is_binary_view(data_type):
        return pa.binary()
    if is_type.is_floating(data_type):
        return pa.float64()
    return pa.date32() if is_type.is_date64(data_type) else data_type


def _is_number(data_type: pa.DataType) -> bool:
    return bool(is_type.is_integer(data_type) or is_type.is_floating(data_type) or is_type.is_decimal(data_type))


def _row_numbers(left: _Result, right: _Result, tolerant: bool) -> Integers:
    """A number per row of x, then of y: equal for equal rows."""
    numbers = np.zeros(len(left.start) + len(right.start), dtype=np.int64)
    for x, y in zip(left.payload.columns, right.payload.columns, strict=True):
        codes = _codes(pa.concat_arrays([*x.chunks, *y.chunks]) if x.num_chunks + y.num_chunks else x, tolerant)
        if len(codes):
            numbers = _renumbered(numbers * (int(codes.max()) + 1) + codes)
    return numbers


def _renumbered(numbers: Integers) -> Integers:
    return np.unique(numbers, return_inverse=True)[1].astype(np.int64)


def _codes(column: pa.Array, tolerant: bool) -> Integers:
    """A small number per value: equal for equal values."""
    if len(column) == 0 or is_type.is_null(column.type):
        return np.zeros(len(column), dtype=np.int64)
    if is_type.is_floating(column.type):
        return _float_codes(column, tolerant)
    if is_type.is_nested(column.type):
        column = pa.array([repr(value) for value in column.to_pylist()])
    indices = column.dictionary_encode(null_encoding="encode").indices
    return np.asarray(indices, dtype=np.int64)


def _float_codes(column: pa.Array, tolerant: bool) -> Integers:
    values = np.asarray(column.fill_null(0.0), dtype=np.float64)
    distinct, codes = np.unique(values, return_inverse=True)
    codes = codes.astype(np.int64)
    if tolerant and len(distinct) > 1:
        codes = np.concatenate([[0], np.cumsum(~_close(distinct[:-1], distinct[1:]))]).astype(np.int64)[codes]
    return np.where(np.asarray(column.is_null()), 0, codes + 1)


def _close(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    with np.errstate(invalid="ignore", over="ignore"):
        allowed = np.maximum(ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE * np.maximum(np.abs(a), np.abs(b)))
        return (b - a <= allowed) & np.isfinite(a) & np.isfinite(b)


def _first_differing_snapshot(left: _Result, right: _Result, rows: Integers) -> SnapshotComparison:
    start, end = np.concatenate([left.start, right.start]), np.concatenate([left.end, right.end])
    sign = np.repeat(np.array([1, -1]), [len(left.start), len(right.start)])
    alive = np.flatnonzero(start < end)
    row = np.concatenate([rows[alive], rows[alive]])
    moment = np.concatenate([start[alive], end[alive]])
    change = np.concatenate([sign[alive], -sign[alive]])
    groups, net = _summed([row, moment], change)
    wrong = np.flatnonzero(net)
    if not len(wrong):
        return EQUAL
    first = moment[groups[wrong]].min()
    at_first = wrong[moment[groups[wrong]] == first]
    excess = {int(row[groups[i]]): int(net[i]) for i in at_first}
    both = _stacked(left.payload, right.payload)
    return _difference("snapshots differ first", first, left, excess, _examples(rows, excess, both))


def _first_differing_element(left: _Result, right: _Result, rows: Integers) -> SnapshotComparison:
    start, end = np.concatenate([left.start, right.start]), np.concatenate([left.end, right.end])
    sign = np.repeat(np.array([1, -1]), [len(left.start), len(right.start)])
    groups, net = _summed([rows, start, end], sign)
    wrong = np.flatnonzero(net)
    if not len(wrong):
        return EQUAL
    first = start[groups[wrong]].min()
    at_first = wrong[start[groups[wrong]] == first]
    excess = {int(groups[i]): int(net[i]) for i in at_first}
    payload = _stacked(left.payload, right.payload).take(pa.array(list(excess), pa.int64())).to_pylist()
    examples = {
        place: record if left.is_stream else record | {"until": _shown(int(end[place]), left.time_type)}
        for place, record in zip(excess, payload or [{} for _ in excess], strict=True)
    }
    return _difference("elements differ first", first, left, excess, examples)


def _summed(keys: Sequence[Integers], amounts: Integers) -> tuple[Integers, Integers]:
    """The place of one member of each group of equal keys, and the sum of the group's amounts."""
    by_key = np.lexsort(tuple(reversed(keys)))
    if not len(by_key):
        return by_key, amounts
    new = np.zeros(len(by_key), dtype=bool)
    new[0] = True
    for key in keys:
        ordered = key[by_key]
        new[1:] |= ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(new)
    return by_key[starts], np.add.reduceat(amounts[by_key], starts)


def _stacked(x: pa.Table, y: pa.Table) -> pa.Table:
    return pa.concat_tables([x, y])


def _examples(rows: Integers, wanted: dict[int, int], payload: pa.Table) -> dict[int, dict[str, Any]]:
    numbers, places = np.unique(rows, return_index=True)
    found = places[np.searchsorted(numbers, list(wanted))]
    records = payload.take(pa.array(found)).to_pylist() or [{} for _ in wanted]
    return dict(zip(wanted, records, strict=True))


def _difference(
    words: str, first: int, left: _Result, excess: dict[int, int], examples: dict[int, dict[str, Any]]
) -> SnapshotComparison:
    instant = _shown(int(first), left.time_type)
    only_in_x = [examples[key] for key, count in excess.items() for _ in range(count)]
    only_in_y = [examples[key] for key, count in excess.items() for _ in range(-count)]
    return SnapshotComparison(f"{words} at {instant}", instant, tuple(only_in_x), tuple(only_in_y))


def _shown(ticks: int, time_type: pa.DataType) -> Any:
    if ticks == INFINITY:
        return None
    if not is_type.is_timestamp(time_type):
        return ticks
    try:
        return pa.scalar(ticks, pa.timestamp("us", time_type.tz)).as_py()
    except (OverflowError, ValueError):
        return ticks


def _listing(title: str, rows: tuple[dict[str, Any], ...]) -> str:
    more = [f"… and {len(rows) - ROWS_SHOWN} more"] if len(rows) > ROWS_SHOWN else []
    return "\n".join(f"  {title}: {row}" for row in [*rows[:ROWS_SHOWN], *more])
