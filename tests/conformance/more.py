"""Whole suites of other systems as data: one file a suite, rows compared as bags of words.

What a case's query is in our language stands in the file, or, where a system's own text has become readable since, is
made of that text: TPC-H with a window on every table, without the order of its rows.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
from tests.conformance.cases import FOLDER

SUITES = ("arroyo", "asof", "nexmark", "siddhi", "spark", "tpch")
TYPES = {"int": pa.int64(), "string": pa.string(), "double": pa.float64(), "date": pa.date32()}
DAY = 86_400_000
WRITTEN = {
    ("nexmark", "q6_group_top1"): """SELECT q.seller,
      avg(q.final) OVER (PARTITION BY q.seller ORDER BY q.date_time ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS mean
      FROM (SELECT row_number() OVER (PARTITION BY a.id, a.seller ORDER BY b.price) AS place, a.seller,
        b.price AS final, b.date_time FROM auction [UNBOUNDED] AS a, bid [UNBOUNDED] AS b
        WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires) AS q WHERE q.place <= 1""",
    ("nexmark", "q19"): """SELECT * FROM (SELECT * EXCLUDE (zz_t),
      row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid [UNBOUNDED]) AS q
      WHERE place <= 10""",
}
"""Queries for what could not be said when the cases were written down."""


@dataclass(frozen=True)
class SuiteCase:
    """One case: its query, its streams, and what is expected at which instants."""

    suite: str
    id: str
    query: str | None
    original: str
    streams: dict[str, pa.Table]
    time: str
    compare: dict[str, Any]
    expected: list[str]
    limited: bool

    def difference(self, result: pa.Table) -> str:
        """What is different between a result and the expected rows, in words; empty if nothing is."""
        found = Counter(words(row) for row in rows_of(result, self.compare))
        expected = Counter(self.expected)
        missing = expected - found
        surplus = Counter() if self.limited else found - expected
        return "" if not missing and not surplus else f"missing {list(missing)[:3]}, surplus {list(surplus)[:3]}"


@cache
def suite(name: str) -> dict[str, SuiteCase]:
    """The cases of a suite that have an input, by their names."""
    content = json.loads((FOLDER / "more" / f"{name}.json").read_text())
    tables = {key: _table(table) for key, table in content["tables"].items()}
    return {c["id"]: _case(name, c, tables) for c in content["cases"] if c.get("streams")}


def _case(name: str, case: dict[str, Any], tables: dict[str, pa.Table]) -> SuiteCase:
    streams = {
        key: tables[stream.removeprefix("@")] if isinstance(stream, str) else _table(stream)
        for key, stream in case["streams"].items()
    }
    streams = {key: table.sort_by(case["time"]) for key, table in streams.items()}
    lines = case.get("expected_lines")
    expected = [words([line]) for line in lines] if lines else [words(row) for row in case["expected"]]
    query = None if case.get("differs") else case["query"] or WRITTEN.get((name, case["id"]))
    limited, original = bool(case.get("limit")), str(case.get("original") or "").partition("-- ")[2]
    return SuiteCase(
        name, case["id"], query, original, streams, case["time"], case.get("compare") or {}, expected, limited
    )


def _table(table: dict[str, Any]) -> pa.Table:
    columns = list(zip(*table["rows"], strict=True)) or [() for _ in table["columns"]]
    typed = zip(table["columns"].items(), columns, strict=True)
    return pa.table({name: _column(list(values), kind) for (name, kind), values in typed})


def _column(values: list[Any], kind: str) -> pa.Array:
    if kind == "timestamp":
        return pa.array([_moment(v) for v in values], pa.timestamp("us"))
    if kind.startswith("decimal"):
        return pa.array([None if v is None else Decimal(str(v)) for v in values], pa.decimal128(15, 2))
    if kind == "date":
        return pa.array([None if v is None else dt.date.fromisoformat(v) for v in values], pa.date32())
    return pa.array(values, TYPES[kind])


def _moment(value: Any) -> dt.datetime | None:
    if isinstance(value, str):
        return dt.datetime.fromisoformat(value)
    return None if value is None else dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=value)


def rows_of(result: pa.Table, compare: dict[str, Any]) -> list[list[Any]]:
    """The rows of a result that the other system gives."""
    rows = result.to_pylist()
    if "valid_from" not in result.column_names:
        return [[value for name, value in row.items() if name != "ts"] for row in rows]
    if compare["kind"] == "windows":
        return [shown for row in rows for shown in _in_windows(row, compare)]
    kept = [row for row in rows if compare["kind"] != "final" or row["valid_to"] is None]
    return [[v for name, v in row.items() if name not in ("valid_from", "valid_to")] for row in kept]


def _in_windows(row: dict[str, Any], compare: dict[str, Any]) -> list[list[Any]]:
    """A row at each end of a window that it is valid at, with the window's bounds if they are compared."""
    slide, size, bounds = compare["slide"], compare.get("size") or compare["slide"], compare.get("bounds")
    values = [v for name, v in row.items() if name not in ("valid_from", "valid_to")]
    first, last = _milliseconds(row["valid_from"]), _milliseconds(row["valid_to"])
    # Windows that end at another multiple are asked for until one of their ends.
    offset = compare.get("until", 0) % slide
    boundary, found = first + (offset - first) % slide, []
    while boundary < min(last, compare.get("until", last - 1) + 1):
        ends = {"start": [boundary - size], "end": [boundary], True: [boundary - size, boundary]}.get(bounds, [])
        found.append([*values, *(_moment(end) for end in ends)])
        boundary += slide
    return found


def _milliseconds(value: dt.datetime) -> int:
    return (value - dt.datetime(1970, 1, 1)) // dt.timedelta(milliseconds=1)


def words(row: Any) -> str:
    """A row as a bag of words that do not depend on how numbers and times are written."""
    texts = ["NULL" if value is None or value == "" else str(value) for value in row]
    found = [re.sub(r"^(\d{4}-\d\d-\d\d)T(\d\d:)", r"\1 \2", text) for text in texts]
    return " ".join(sorted(_word(word) for text in found for word in text.split()))


def _word(word: str) -> str:
    if re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", word):
        return f"{float(word):.6g}"
    if re.fullmatch(r"\d\d:\d\d:\d\d\.\d+", word):
        return word.rstrip("0").rstrip(".")
    return {"t": "true", "f": "false", "True": "true", "False": "false"}.get(word, word)


def with_windows(case: SuiteCase) -> str:
    """A system's own text with a window on every table, without the order of its rows."""
    text = re.sub(r"\bORDER BY (?:[^()]|\([^()]*\))*$", "", case.original)
    text = re.sub(r"\bLIMIT \d+\s*$", "", text)
    for name in case.streams:
        text = re.sub(
            rf"(?i)(\bFROM|\bJOIN|,)(\s+){name}\b(?!\.)(?=\s*(?:,|AS\b|\)|$|[a-z]))", rf"\1\2{name} [UNBOUNDED]", text
        )
    return text
