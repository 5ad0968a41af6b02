"""The cases as other systems' test suites give them: streams in order of arrival, and the rows they expect.

The data lies beside the repository and is not part of it; where it is absent, these tests are skipped.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc

FOLDER = Path(__file__).parents[3] / "shared" / "conformance"
"""Where the cases are: `../shared/conformance`, as seen from the repository."""

FAMILIES = ("flink", "spark", "risingwave", "arroyo", "odysseus")
NEXMARK_STREAMS = ("person", "auction", "bid")

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """One case; times are milliseconds, `late` are the rows that the source drops, by stream."""

    family: str
    id: str
    streams: dict[str, pa.Table]
    expected: list[Row]
    late: dict[str, list[int]] = field(default_factory=dict)
    migrate_after: dict[str, int] = field(default_factory=dict)

    def tables(self, integer_time: bool, drop_late: bool) -> dict[str, pa.Table]:
        """The streams with time as milliseconds or as timestamps, with or without the late rows."""
        return {name: self._table(name, integer_time, drop_late) for name in self.streams}

    def _table(self, name: str, integer_time: bool, drop_late: bool) -> pa.Table:
        table = self.streams[name]
        if not integer_time:
            table = table.set_column(0, "ts", table["ts"].cast(pa.timestamp("ms")).cast(pa.timestamp("us")))
        if drop_late and name in self.late:
            kept = [i for i in range(table.num_rows) if i not in self.late[name]]
            table = table.take(pa.array(kept, pa.int64()))
        return table


def available() -> bool:
    """Whether the cases are there."""
    return FOLDER.is_dir()


@cache
def load(family: str, name: str) -> Case:
    """A case by family and file name."""
    if family == "nexmark":
        return _nexmark(name)
    content = json.loads((FOLDER / family / f"{name}.json").read_text())
    streams = {stream: _rows_table(content["columns"][stream], rows) for stream, rows in content["streams"].items()}
    expected = [tuple(row) for row in content["expected"]]
    late, migrate_after = content.get("late_rows_to_drop") or {}, content.get("migrate_after") or {}
    return Case(family, name, streams, expected, late, migrate_after)


def names_of(family: str) -> list[str]:
    """All cases of a family that are there."""
    folder = FOLDER / ("nexmark/expected" if family == "nexmark" else family)
    return sorted(path.stem for path in folder.glob("*.json"))


def _rows_table(names: list[str], rows: list[list[Any]]) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in names]
    return pa.table(dict(zip(names, columns, strict=True)))


def _nexmark(name: str) -> Case:
    content = json.loads((FOLDER / "nexmark" / "expected" / f"{name}.json").read_text())
    streams = {stream: _nexmark_stream(stream) for stream in NEXMARK_STREAMS}
    return Case("nexmark", name, streams, [tuple(row) for row in content["expected_rows"]])


@cache
def _nexmark_stream(name: str) -> pa.Table:
    path = FOLDER / "nexmark" / f"{name}.csv"
    with path.open() as lines:
        header = next(csv.reader(lines))
    times = {column: pa.timestamp("us") for column in ("date_time", "expires") if column in header}
    table = pc.read_csv(path, convert_options=pc.ConvertOptions(column_types=times))
    return table.rename_columns(["ts", *header[1:]])


def moment(milliseconds: int) -> dt.datetime:
    """A time as expected rows show it."""
    return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=milliseconds)
