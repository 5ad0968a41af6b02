"""Keys of every type, alone and together, with nulls: the engine matches, groups and partitions as the oracle does."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.profiles import always

import midstream as ms

DAY, HOUR = dt.date(2024, 2, 29), dt.datetime(2024, 3, 31, 1, 30)
NAN, INF = float("nan"), float("inf")

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    **{f"int{n}": (getattr(pa, f"int{n}")(), [0, 1, -1, 2 ** (n - 1) - 1, -(2 ** (n - 1))]) for n in (8, 16, 32, 64)},
    **{f"uint{n}": (getattr(pa, f"uint{n}")(), [0, 1, 2**n - 1]) for n in (8, 16, 32)},
    "uint64": (pa.uint64(), [0, 1, 2**63 - 1]),
    "float32": (pa.float32(), [0.0, -0.0, NAN, INF, 1.5]),
    "float64": (pa.float64(), [0.0, -0.0, NAN, INF, -INF, 1.5, 1e-300]),
    "bool": (pa.bool_(), [True, False]),
    "string": (pa.string(), ["", "a", "ab", "ä", "a\0", "x" * 300]),
    "large string": (pa.large_string(), ["", "a", "b"]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["", "a", "b"]),
    "binary": (pa.binary(), [b"", b"\0", b"a", b"\xff"]),
    "date": (pa.date32(), [DAY, DAY - dt.timedelta(days=20000), dt.date(1970, 1, 1)]),
    "timestamp": (pa.timestamp("us"), [HOUR, HOUR + dt.timedelta(microseconds=1), dt.datetime(1960, 1, 1)]),
    "timestamp in seconds": (pa.timestamp("s"), [HOUR, HOUR + dt.timedelta(seconds=1)]),
    "timestamp in a zone": (pa.timestamp("us", "Europe/Berlin"), [HOUR, HOUR + dt.timedelta(hours=1)]),
    "duration": (pa.duration("us"), [dt.timedelta(0), dt.timedelta(days=-1, microseconds=3)]),
    "decimal": (pa.decimal128(20, 2), [Decimal("0.00"), Decimal("-1.25"), Decimal("123456789012345678.25")]),
    "wide decimal": (pa.decimal128(38, 0), [Decimal(2**70), Decimal(2**70 + 1), Decimal(-(2**70))]),
}

QUERIES = {
    "join": "SELECT A.v, B.v AS u FROM A [RANGE 8], B [RANGE 8] WHERE {on}",
    "join of three": "SELECT A.v, B.v AS u, C.v AS w FROM A [RANGE 8], B [RANGE 8], B [RANGE 5] AS C "
    "WHERE {on} AND {on_c}",
    "join that matches nulls": "SELECT A.v, B.v AS u FROM A [RANGE 8] JOIN B [RANGE 8] ON {same}",
    "left join": "SELECT A.v, B.v AS u FROM A [RANGE 8] LEFT JOIN B [RANGE 3] ON {on}",
    "anti join": "SELECT A.v FROM A [RANGE 8] WHERE NOT EXISTS (SELECT 1 FROM B [RANGE 3] WHERE {on})",
    "as-of join": "SELECT A.v, B.v AS u FROM A ASOF JOIN B ON {on}",
    "distinct": "SELECT DISTINCT {keys} FROM A [RANGE 8]",
    "group": "SELECT {keys}, count(*) AS n FROM A [RANGE 8] GROUP BY {keys}",
    "difference": "SELECT {keys} FROM A [RANGE 8] EXCEPT ALL SELECT {keys} FROM B [RANGE 8]",
    "partitioned rows": "SELECT {keys}, v FROM A [PARTITION BY {keys} ROWS 2]",
}


def streams(columns: dict[str, tuple[pa.DataType, list[Any]]], seed: int = 3) -> dict[str, pa.Table]:
    random = Random(seed)
    return {name: _table(random, columns) for name in "AB"}


def _table(random: Random, columns: dict[str, tuple[pa.DataType, list[Any]]]) -> pa.Table:
    times = sorted(random.randint(0, 30) for _ in range(24))
    arrays = {
        name: pa.array([random.choice([*values, None]) for _ in times], kind)
        for name, (kind, values) in columns.items()
    }
    return pa.table({"ts": times, **arrays, "v": list(range(len(times)))})


def text(query: str, keys: list[str]) -> str:
    def pairs(form: str, other: str) -> str:
        return " AND ".join(form.format(f"A.{key}", f"{other}.{key}") for key in keys)

    return query.format(
        on=pairs("{} = {}", "B"),
        on_c=pairs("{} = {}", "C"),
        same=pairs("{} IS NOT DISTINCT FROM {}", "B"),
        keys=", ".join(keys),
    )


def check(query: str, inputs: dict[str, pa.Table]) -> None:
    expected = ms.reference(query, inputs)
    for batch_rows in (1, 5, 100):
        difference = ms.snapshot_equal(ms.run(query, inputs, batch_rows=batch_rows), expected)
        assert difference, f"in batches of {batch_rows}: {difference}"


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("kind", always(8, TYPES))
def test_a_key_of_one_column(kind: str, name: str) -> None:
    check(text(QUERIES[name], ["k"]), streams({"k": TYPES[kind]}))


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("kinds", [("string", "int32"), ("float64", "decimal", "bool"), ("date", "timestamp")])
def test_a_key_of_several_columns(kinds: tuple[str, ...], name: str) -> None:
    columns = {f"k{i}": TYPES[kind] for i, kind in enumerate(kinds)}
    check(text(QUERIES[name], list(columns)), streams(columns))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("int8", "int64"),
        ("uint32", "int16"),
        ("int32", "float64"),
        ("float32", "float64"),
        ("int64", "decimal"),
        ("date", "timestamp"),
        ("string", "large string"),
        ("dictionary", "string"),
        ("timestamp", "timestamp in seconds"),
    ],
)
def test_keys_of_different_types_meet_in_a_common_one(left: str, right: str) -> None:
    inputs = {"A": streams({"k": TYPES[left]})["A"], "B": streams({"k": TYPES[right]})["B"]}
    for name in ("join", "join of three", "left join", "anti join", "as-of join"):
        check(text(QUERIES[name], ["k"]), inputs)


def test_equal_hashes_are_not_equal_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hashes that all collide, keys alone decide."""
    from midstream.operators import distinct, join, sequence, slices
    from midstream.operators.hashing import hash_columns

    for module in (join, distinct, slices, sequence):
        if hasattr(module, "hash_columns"):
            monkeypatch.setattr(module, "hash_columns", lambda columns: hash_columns(columns) & 1)
    inputs = streams({"k": TYPES["string"]})
    for query in QUERIES.values():
        check(text(query, ["k"]), inputs)
