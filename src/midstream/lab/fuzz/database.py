"""DuckDB as a second oracle: the same query over the contents of the windows at one instant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from midstream.lab.chaos.judge import empty_database


@cache
def _connection() -> Any:
    connection = empty_database()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def answer(sql: str, contents: Mapping[str, pa.Table]) -> list[tuple[Any, ...]]:
    """The rows of a query over tables."""
    connection = _connection()
    for name, table in contents.items():
        connection.register(name, table)
    try:
        result = connection.sql(sql).to_arrow_table()
    finally:
        for name in contents:
            connection.unregister(name)
    return list(zip(*(column.to_pylist() for column in result.columns), strict=True))


def snapshot(result: pa.Table, instant: int) -> list[tuple[Any, ...]]:
    """The rows of a result that are valid at an instant."""
    starts = _ticks(result.column("valid_from"))
    ends = _ticks(result.column("valid_to"))
    valid = pc.and_(pc.less_equal(starts, instant), pc.or_(pc.is_null(ends), pc.greater(ends, instant)).fill_null(True))
    columns = result.filter(valid).columns[:-2]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def _ticks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64())


def same_rows(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> bool:
    """Whether two lists hold the same rows, floats up to their last bits."""
    if len(left) != len(right):
        return False
    rest = sorted(right, key=_order)
    return all(_same_row(a, b) for a, b in zip(sorted(left, key=_order), rest, strict=True))


def _same_row(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    return all(_same(a, b) for a, b in zip(left, right, strict=True))


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(left) and math.isnan(right))
    return type(left) is type(right) and bool(left == right)


def _order(row: tuple[Any, ...]) -> list[Any]:
    """Exact values first, floats rounded: rows that differ in last bits alone sort alike."""
    exact = [(2, "") if isinstance(v, float) else (0, "") if v is None else (1, _key(v)) for v in row]
    floats = [(1, f"{v:+.6e}") for v in row if isinstance(v, float)]
    return [*exact, *floats]


def _key(value: Any) -> str:
    return str(value.normalize()) if isinstance(value, Decimal) else str(value)
