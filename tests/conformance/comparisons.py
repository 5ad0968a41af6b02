"""How a result is held against expected rows.

Other systems give rows; a continuous query gives relations that change over time. Each comparison says which rows of
the relation are the ones that the other system gives.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa
from tests.conformance.cases import Row, moment

import midstream as ms

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?")


class Comparison(Protocol):
    """Says what is different between a result and the expected rows; nothing if they agree."""

    def difference(self, result: pa.Table, expected: list[Row]) -> str:
        """The difference in words, empty if there is none."""


@dataclass(frozen=True)
class Bag:
    """All rows that ever were in the result: for what is there once, whenever that is."""

    def difference(self, result: pa.Table, expected: list[Row]) -> str:
        names = [name for name in result.column_names if name not in ("valid_from", "valid_to")]
        return bags_differ(_rows(result.select(names)), expected)


@dataclass(frozen=True)
class Final:
    """The rows that stay for ever: the last snapshot over unbounded windows.

    Columns at the positions `milliseconds` are numbers here and times there.
    """

    milliseconds: tuple[int, ...] = ()

    def difference(self, result: pa.Table, expected: list[Row]) -> str:
        rows = _rows(result.drop_columns(["valid_from"]))
        return bags_differ([self._shown(row[:-1]) for row in rows if row[-1] is None], expected)

    def _shown(self, row: Row) -> Row:
        return tuple(moment(value) if i in self.milliseconds else value for i, value in enumerate(row))


@dataclass(frozen=True)
class Windows:
    """What each window holds: the snapshots at the boundaries, which is when windows are complete.

    `layout` names the columns of an expected row: those of the result, and `start` and `end` of the window. `end/1000`
    is the end in seconds, `end:c` the end unless column c is null. `but` are ends of windows that are not compared.
    """

    size: int
    slide: int
    layout: tuple[str, ...]
    offset: int = 0
    but: tuple[int, ...] = ()

    def difference(self, result: pa.Table, expected: list[Row]) -> str:
        unit = 1 if pa.types.is_integer(result.schema.field("valid_from").type) else 1000
        found = []
        for row in result.to_pylist():
            start, end = (_ticks(row[name]) // unit for name in ("valid_from", "valid_to"))
            first = start + (self.offset - start) % self.slide
            for boundary in range(first, end, self.slide):
                if boundary not in self.but:
                    found.append(tuple(self._value(name, row, boundary) for name in self.layout))
        return bags_differ(found, [row for row in expected if not self._left_out(row)])

    def _left_out(self, row: Row) -> bool:
        ends = [value for name, value in zip(self.layout, row, strict=True) if name.startswith("end")]
        return any(plain(end) == moment(left_out) for end in ends for left_out in self.but)

    def _value(self, name: str, row: dict[str, Any], boundary: int) -> Any:
        word, _, marker = name.partition(":")
        word, _, unit = word.partition("/")
        if word not in ("start", "end"):
            return row[name]
        if marker and row[marker] is None:
            return None
        time = boundary - self.size if word == "start" else boundary
        return time // int(unit) if unit else moment(time)


@dataclass(frozen=True)
class Relations:
    """Expected rows are intervals: start, end and values. Equal if all snapshots are.

    `shift` is added to expected times; both sides are looked at before `until` only.
    """

    shift: int = 0
    until: int | None = None

    def difference(self, result: pa.Table, expected: list[Row]) -> str:
        shifted = [(a + self.shift, None if b is None else b + self.shift, *rest) for a, b, *rest in expected]
        names = [name for name in result.column_names if name not in ("valid_from", "valid_to")]
        columns = [*names, "valid_from", "valid_to"]
        rows = [(*rest, a, b) for a, b, *rest in shifted]
        arrays = [pa.array([row[i] for row in rows], result.schema.field(name).type) for i, name in enumerate(columns)]
        other = pa.table(arrays, names=columns)
        found = ms.snapshot_equal(self._clipped(result.select(columns)), self._clipped(other))
        return "" if found else str(found)

    def _clipped(self, table: pa.Table) -> pa.Table:
        if self.until is None:
            return table
        starts, ends = table["valid_from"].to_pylist(), table["valid_to"].to_pylist()
        kept = [i for i, start in enumerate(starts) if start < self.until]
        clipped = [self.until if ends[i] is None else min(ends[i], self.until) for i in kept]
        part = table.take(pa.array(kept, pa.int64()))
        return part.set_column(part.num_columns - 1, "valid_to", pa.array(clipped, pa.int64()))


@dataclass(frozen=True)
class NeverMet:
    """Outer joins over intervals: elsewhere a row is padded if it never met a partner, here whenever it has none.

    So the padded rows to compare are those that are padded for as long as they are valid: for one tick more than the
    window's size. `left` is a column that is null where the left side is missing, and the size of the left window;
    `right` likewise. Rows of one side must differ, so that a pair is one however its validity is cut.
    """

    left: tuple[str, int]
    right: tuple[str, int]

    def difference(self, result: pa.Table, expected: list[Row]) -> str:
        unit = 1 if pa.types.is_integer(result.schema.field("valid_from").type) else 1000
        names = [name for name in result.column_names if name not in ("valid_from", "valid_to")]
        met, alone = set[Row](), Counter[Row]()
        sizes: dict[Row, int] = {}
        for row in result.to_pylist():
            values = tuple(row[name] for name in names)
            if row[self.left[0]] is not None and row[self.right[0]] is not None:
                met.add(values)
                continue
            alone[values] += _ticks(row["valid_to"]) - _ticks(row["valid_from"])
            sizes[values] = (self.right if row[self.left[0]] is None else self.left)[1] * unit + 1
        never = [row for row, duration in alone.items() if duration == sizes[row]]
        return bags_differ([*met, *never], expected)


def bags_differ(found: list[Row], expected: list[Row]) -> str:
    """What one multiset of rows has that the other lacks, in words."""
    here, there = (Counter(tuple(map(plain, row)) for row in rows) for rows in (found, expected))
    if here == there:
        return ""
    more, less = list((here - there).elements()), list((there - here).elements())
    return f"not expected: {more[:10]}; missing: {less[:10]}"


def plain(value: Any) -> Any:
    """A value as rows are compared by: times as times, numbers to twelve digits."""
    if isinstance(value, str) and TIMESTAMP.fullmatch(value):
        return dt.datetime.fromisoformat(value)
    if isinstance(value, Decimal | float) and not isinstance(value, bool):
        number = float(value)
        return float(f"{number:.12g}") if math.isfinite(number) else number
    return value


def _rows(table: pa.Table) -> list[Row]:
    return [tuple(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]


def _ticks(value: int | dt.datetime) -> int:
    if isinstance(value, int):
        return value
    return (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
