"""Columns of awkward values, and what equality and order mean for them one value at a time."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

NAN, INF = float("nan"), float("inf")

AWKWARD: dict[pa.DataType, list[Any]] = {
    pa.int64(): [None, 0, 1, -5, 2**63 - 1, -(2**63)],
    pa.int8(): [1, 2, -3],
    pa.uint64(): [None, 1, 2**64 - 1],
    pa.float64(): [None, 0.0, -0.0, NAN, 1.5, -2.5, INF, -INF],
    pa.float32(): [0.0, -0.0, NAN, 1.5],
    pa.string(): [None, "", "a", "abcdefgh", "abcdefghi", "é", "a" * 300, "a" * 301, "b" * 17, "\0", "\0\0"],
    pa.large_string(): ["", "a", "abcdefgh", "é"],
    pa.binary(): [None, b"", b"\0", b"\0\0", b"\xff"],
    pa.binary(2): [b"ab", b"\0\0", None],
    pa.bool_(): [None, True, False],
    pa.decimal32(5, 1): [None, Decimal("1.0"), Decimal("-1.5")],
    pa.decimal128(10, 2): [None, Decimal("1.00"), Decimal("-1.25")],
    pa.decimal256(60, 1): [None, Decimal("1.0"), Decimal("-1.5")],
    pa.timestamp("us", "UTC"): [None, *(dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (1960, 2020))],
    pa.date32(): [None, dt.date(2020, 1, 1), dt.date(1960, 1, 1)],
    pa.dictionary(pa.int8(), pa.string()): [None, "x", "y"],
    pa.null(): [None],
}
NESTED: dict[pa.DataType, list[Any]] = {pa.list_(pa.int64()): [None, [1], [10], [2, 3]]}


def random_columns(
    chance: random.Random, rows: int, kinds: dict[pa.DataType, list[Any]] = AWKWARD, most: int = 3
) -> list[pa.Array]:
    """One to `most` columns, some of them slices of longer ones."""
    columns = []
    for kind in chance.choices(list(kinds), k=chance.randint(1, most)):
        before = chance.randint(0, 3)
        values = [chance.choice(kinds[kind]) for _ in range(rows + before)]
        columns.append(pa.array(values, kind)[before:])
    return columns


def rows_of(columns: list[pa.Array]) -> list[tuple[Any, ...]]:
    """The rows as tuples of Python values."""
    return list(zip(*[c.to_pylist() for c in columns], strict=True))
