"""Functions that DuckDB computes: the engine over columns, the oracle row by row and DuckDB's own SQL agree."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.oracle.borrowed_calls import CALLS

import midstream as ms
from midstream import language
from midstream.algebra.borrowed import BORROWED
from midstream.algebra.expressions import Call, walk
from midstream.algebra.listings import LISTING
from midstream.algebra.plan import Project, walk_plan
from midstream.inputs import catalog_of
from midstream.language import parse
from midstream.language.operator_tables import BETWEEN, WORDS

NOON = dt.datetime(2024, 2, 29, 12, 30, 15, 250000)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), [None, 0, 1, 2, 5, 12, 20]),
    "n": (pa.int64(), [None, 0, -7, 3, 2**40]),
    "f": (pa.float64(), [None, 0.0, -0.5, 0.25, 1.0, math.nan]),
    "m": (pa.decimal128(10, 2), [None, Decimal("1.25"), Decimal("-7.50")]),
    "b": (pa.bool_(), [None, True, False]),
    "s": (pa.string(), [None, "", "Hello World", "héllo wörld", "a,b,c", "a%b", "ff", "aGk=", "O'Brien"]),
    "p": (pa.string(), [None, "l", ",", "b", "o"]),
    "k": (pa.string(), [None, "2024-02-29", "1999-12-31"]),
    "x": (pa.binary(), [None, b"", b"abc", b"\x01"]),
    "d": (pa.date32(), [None, dt.date(2024, 2, 29), dt.date(1959, 12, 31)]),
    "t": (pa.timestamp("us"), [None, NOON, dt.datetime(1970, 1, 1), dt.datetime(2050, 7, 1, 23, 59, 59, 999999)]),
    "z": (pa.timestamp("us", "Europe/Berlin"), [None, NOON.replace(tzinfo=dt.UTC)]),
    "j": (pa.string(), [None, "{}", '{"a": {"b": [1, 2]}}', '{"a": "x"}', "[1, 2, 3]"]),
    "l": (pa.list_(pa.int64()), [None, [], [3, 1, 2], [1, None, 1]]),
    "w": (pa.list_(pa.string()), [None, [], ["b", "a"]]),
    "q": (pa.map_(pa.string(), pa.int64()), [None, [], [("a", 1)]]),
    "r": (pa.struct([("a", pa.int64()), ("b", pa.string())]), [None, {"a": 1, "b": "x"}]),
}


def rows_of(chance: random.Random) -> pa.Table:
    """Some rows, the first of nulls alone."""
    count = 8
    columns = {"ts": pa.array(range(count), pa.int64())}
    for name, (kind, values) in VALUES.items():
        columns[name] = pa.array([None, *(chance.choice(values) for _ in range(count - 1))], kind)
    return pa.table(columns)


def outcome(compute: Any) -> str:
    """The values, or that there are none."""
    try:
        return str(compute())
    except (ms.InputError, duckdb.Error):
        return "an error"


@cache
def database() -> duckdb.DuckDBPyConnection:
    """A database without any of our settings."""
    return duckdb.connect()


def from_duckdb(sql: str, rows: pa.Table) -> list[Any]:
    """DuckDB's own answer, in the order of time."""
    connection = database()
    connection.execute(
        "SET TimeZone = 'Europe/Berlin'" if "z" in sql.replace("timezone", "") else "SET TimeZone = 'UTC'"
    )
    connection.register("s", rows)
    return list(connection.sql(f"SELECT ts, {sql} AS it FROM s ORDER BY ts").to_arrow_table()["it"].to_pylist())


@pytest.mark.parametrize("written", list(CALLS))
def test_a_call_means_what_it_means_in_duckdb(written: str) -> None:
    rows = rows_of(random.Random(written))
    query = f"SELECT S.ts, {written} AS it FROM S [NOW]"
    expected = outcome(lambda: comparable(from_duckdb(CALLS[written] or written, rows)))
    for run in (ms.run, ms.reference):
        found = outcome(lambda run=run: comparable(run(query, {"S": rows}).sort_by("valid_from")["it"].to_pylist()))
        assert found == expected, run.__name__


def comparable(values: list[Any]) -> list[Any]:
    """Numbers as such, and instants without the name of their zone."""
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    match value:
        case bool():
            return value
        case int() | Decimal():
            return float(value)
        case dt.datetime() if value.tzinfo is not None:
            return value.astimezone(dt.UTC).replace(tzinfo=None)
        case pa.MonthDayNano():
            return dt.timedelta(value.days + value.months * 30, microseconds=value.nanoseconds / 1000)
        case list() | tuple():
            return [_plain(v) for v in value]
        case dict():
            return {key: _plain(v) for key, v in value.items()}
    return value


def test_every_function_is_called() -> None:
    catalog = catalog_of({"S": rows_of(random.Random(0)).schema}, "ts")
    called: set[str] = set()
    for written in CALLS:
        for plan in walk_plan(parse(f"SELECT {written} AS it FROM S [NOW]", catalog)):
            for named in plan.columns if isinstance(plan, Project) else ():
                called |= {node.function for node in walk(named.expression) if isinstance(node, Call)}
    sources = "".join(path.read_text() for path in Path(language.__file__).parent.glob("*.py"))
    quantified = tuple(name for name in BORROWED if name.startswith(("any_", "all_")))
    made_by_the_language = {name for name in BORROWED if f'"{name}"' in sources or name in quantified}
    made_by_the_language |= {
        *LISTING.values(),
        *(n for _, n in (*BETWEEN.values(), *WORDS.values()) if isinstance(n, str)),
    }
    assert set(BORROWED) - called - made_by_the_language == set()


def test_a_refusal_says_what_the_function_takes() -> None:
    with pytest.raises(ms.QueryError) as raised:
        ms.plans("SELECT cos(s) AS it FROM S [NOW]", {"S": rows_of(random.Random(0)).schema})
    assert raised.value.message == "cos does not take string"
    assert "DOUBLE" in str(raised.value.hint)


def test_a_function_of_ones_own_goes_before_a_borrowed_one() -> None:
    own = ms.ScalarFunction("md5", lambda texts: pa.array(["own"] * len(texts)), pa.string())
    rows = rows_of(random.Random(0))
    for run in (ms.run, ms.reference):
        found = run("SELECT md5(s) AS it FROM S [NOW]", {"S": rows}, functions=[own])
        assert set(found["it"].to_pylist()) == {"own"}


def test_distinct_elements_are_in_the_order_in_which_they_first_come() -> None:
    found = ms.run(
        "SELECT list_distinct([3, 1, 3, NULL, 2, 1, NULL]) AS it, array_distinct(['b', 'a', 'b']) AS texts", {}
    )
    assert found.select(["it", "texts"]).to_pylist() == [{"it": [3, 1, None, 2], "texts": ["b", "a"]}]
