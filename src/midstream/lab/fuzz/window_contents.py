"""What windows hold at an instant, straight from their descriptions: which rows of the input, not when each is valid.

This shares nothing with the oracle, which computes intervals.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from midstream.lab.fuzz.sources import Leaf, WindowChoice

KOLKATA = int(dt.timedelta(hours=5, minutes=30).total_seconds()) * 1_000_000


def content(leaf: Leaf, table: pa.Table, instant: int) -> pa.Table:
    """The rows in a leaf's window at an instant (in ticks)."""
    times = _ticks(table.column("ts"))
    rows = [i for i, time in enumerate(times) if time is not None]
    chosen = _chosen(leaf.window, rows, times, table, instant, leaf.stream.time.second)
    found = table.take(pa.array(chosen, pa.int64()))
    return _with_bounds(leaf, found, instant) if leaf.window.bounds else found


def _with_bounds(leaf: Leaf, found: pa.Table, instant: int) -> pa.Table:
    """The rows with when the windows that end at an instant, or ended last before it, begin and end."""
    window, second = leaf.window, leaf.stream.time.second
    if window.form == "session":
        times = [time for time in _ticks(found.column("ts")) if time is not None]
        keys = [tuple(row[name] for name in window.by) for row in found.to_pylist()]
        starts = [min(time for time, other in zip(times, keys, strict=True) if other == key) for key in keys]
        ends = [instant] * len(starts)
    else:
        end = _last_boundary(window, instant, second)
        starts, ends = [_beginning(window, end, second)] * len(found), [end] * len(found)
    kind = found.schema.field("ts").type
    kind = pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.int64()
    for name, ticks in (("window_start", starts), ("window_end", ends)):
        found = found.append_column(name, pa.array(ticks, pa.int64()).cast(kind))
    return found


def _ticks(column: pa.ChunkedArray) -> list[int | None]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return list(column.to_pylist())


def _chosen(
    window: WindowChoice, rows: list[int], times: Sequence[Any], table: pa.Table, instant: int, second: int
) -> list[int]:
    match window.form:
        case "raw" | "now":
            return [i for i in rows if times[i] == instant]
        case "range":
            return [i for i in rows if instant - window.size * second <= times[i] <= instant]
        case "valid_until":
            keys, size = table.column("k").to_pylist(), window.size * second
            return [i for i in rows if times[i] <= instant and (keys[i] is None or instant < times[i] + size)]
        case "unbounded":
            return [i for i in rows if times[i] <= instant]
        case "rows" | "partitioned_rows":
            return _last_rows(window, [i for i in rows if times[i] <= instant], times, table)
        case "session":
            return _ended(window, rows, times, table, instant, second)
        case "hop" | "tumble" | "cumulate":
            boundary = _last_boundary(window, instant, second)
            return [i for i in rows if _beginning(window, boundary, second) <= times[i] < boundary]
    raise ValueError(window.form)


def _last_boundary(window: WindowChoice, instant: int, second: int) -> int:
    shift = window.offset * second - (KOLKATA if window.zone else 0)
    return (instant - shift) // (window.slide * second) * (window.slide * second) + shift


def _beginning(window: WindowChoice, boundary: int, second: int) -> int:
    size = window.size * second
    if window.form != "cumulate":
        return boundary - size
    shift = window.offset * second - (KOLKATA if window.zone else 0)
    return (boundary - 1 - shift) // size * size + shift


def _ended(
    window: WindowChoice, rows: list[int], times: Sequence[Any], table: pa.Table, instant: int, second: int
) -> list[int]:
    """The rows of the sessions that end at an instant: back from there, row by row, while the gaps are no longer."""
    cells, gap = table.to_pylist(), window.size * second

    def key(i: int) -> tuple[Any, ...]:
        return tuple(cells[i][name] for name in window.by)

    found: list[int] = []
    for last in [i for i in rows if times[i] + gap == instant]:
        same = [i for i in rows if key(i) == key(last)]
        if last in found or any(instant - gap < times[i] <= instant for i in same):
            continue
        first = times[last]
        while earlier := [times[i] for i in same if first - gap <= times[i] < first]:
            first = min(earlier)
        found += [i for i in same if first <= times[i] <= times[last]]
    return found


def _last_rows(window: WindowChoice, rows: list[int], times: Sequence[Any], table: pa.Table) -> list[int]:
    """The newest rows: by time, and as they came."""
    cells = table.to_pylist()
    groups: dict[object, list[int]] = {}
    for i in sorted(rows, key=lambda i: times[i]):
        groups.setdefault(tuple(cells[i][name] for name in window.by), []).append(i)
    whole = [group[: len(group) // window.slide * window.slide] for group in groups.values()]
    return [i for group in whole for i in group[-window.count :]]
