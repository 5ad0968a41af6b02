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
    return table.take(pa.array(chosen, pa.int64()))


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
        case "unbounded":
            return [i for i in rows if times[i] <= instant]
        case "rows" | "partitioned_rows":
            return _last_rows(window, [i for i in rows if times[i] <= instant], times, table)
        case "hop" | "tumble":
            boundary = _last_boundary(window, instant, second)
            return [i for i in rows if boundary - window.size * second <= times[i] < boundary]
    raise ValueError(window.form)


def _last_boundary(window: WindowChoice, instant: int, second: int) -> int:
    shift = window.offset * second - (KOLKATA if window.zone else 0)
    return (instant - shift) // (window.slide * second) * (window.slide * second) + shift


def _last_rows(window: WindowChoice, rows: list[int], times: Sequence[Any], table: pa.Table) -> list[int]:
    cells = table.to_pylist()

    def order(i: int) -> Any:
        return times[i], [(0, 0) if value is None else (1, value) for value in list(cells[i].values())[1:]]

    groups: dict[object, list[int]] = {}
    for i in sorted(rows, key=order):
        groups.setdefault(tuple(cells[i][name] for name in window.by), []).append(i)
    return [i for group in groups.values() for i in group[-window.count :]]
