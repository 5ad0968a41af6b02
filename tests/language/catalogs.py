"""The streams and functions that the tests of the language bind against."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from midstream.algebra.declarations import (
    AggregateFunction,
    Catalog,
    ScalarFunction,
    StreamDeclaration,
    functions_by_name,
)

TICKED = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.float64()), ("name", pa.string())])

CLOCKED = pa.schema(
    [
        ("at", pa.timestamp("us")),
        ("k", pa.int32()),
        ("small", pa.float32()),
        ("amount", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("ok", pa.bool_()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
    ]
)

ZONED = pa.schema([("at", pa.timestamp("us", "Europe/Berlin")), ("k", pa.int64()), ("Mixed", pa.string())])


class Median:
    """A user's aggregate, of which the language only needs the name."""

    def initialize(self) -> list[Any]:
        return []

    def iterate(self, state: list[Any], *columns: pa.Array) -> list[Any]:
        return [*state, *columns[0].to_pylist()]

    def terminate(self, state: list[Any]) -> Any:
        return sorted(state)[len(state) // 2]


FUNCTIONS = functions_by_name(
    [
        ScalarFunction("Distance", lambda a, b: a, pa.float64()),
        ScalarFunction("upper", lambda a: a, pa.string()),
        AggregateFunction("median", Median, pa.float64()),
    ]
)

CATALOG = Catalog(
    {
        **{name: StreamDeclaration(name, TICKED, "ts") for name in ("A", "B", "C", "select", "istream")},
        "orders": StreamDeclaration("orders", CLOCKED, "at"),
        "trips": StreamDeclaration("trips", ZONED, "at"),
        "rides": StreamDeclaration("rides", ZONED.set(1, pa.field("k", pa.int32())), "at"),
    },
    FUNCTIONS,
)
