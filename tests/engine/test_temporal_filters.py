"""Conditions on `now()`: at each instant the rows are those for which they hold then, as in a database asked then."""

from __future__ import annotations

import datetime as dt
from random import Random

import duckdb
import pyarrow as pa
import pytest

import midstream as ms

CONDITIONS = (
    "until > now()",
    "now() <= until",
    "ts > now() - 5 AND until > now()",
    "ts BETWEEN now() - 5 AND now() AND v > 0",
    "NOT (until < now() + 3)",
    "until + v >= now() - k",
    "until > now() OR v = 1",
    "(until > now() AND k = 1) OR (ts >= now() - 4 AND (v = 0 OR until >= now()))",
    "until > now() OR ts > now() - 9 OR k IS NULL",
)


def stream(seed: int) -> pa.Table:
    random = Random(seed)
    times = sorted(random.randrange(60) for _ in range(40))
    until = [random.choice([None, t - 1, t, t + 1, t + random.randrange(30)]) for t in times]
    keys, values = ([random.choice([None, 0, 1, 2]) for _ in times] for _ in range(2))
    columns = {"k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.int64()), "until": pa.array(until, pa.int64())}
    return pa.table({"ts": times, **columns})


@pytest.mark.parametrize("window", ["", "[UNBOUNDED]", "[RANGE 7]"])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_snapshot_holds_the_rows_that_fulfil_a_condition_then(condition: str, window: str) -> None:
    table = stream(len(condition))
    query = f"SELECT A.k, v FROM A {window} WHERE {condition}"
    found = ms.run(query, {"A": table}, batch_rows=7)
    assert ms.snapshot_equal(found, ms.reference(query, {"A": table}))
    bound = "ts + 7 >= now()" if window == "[RANGE 7]" else "TRUE"
    with duckdb.connect() as connection:
        connection.register("given", table)
        for instant in (*range(0, 60, 7), 70, 200):
            asked = f"ts <= now() AND {bound} AND ({condition})".replace("now()", str(instant))
            expected = connection.sql(f"SELECT k, v FROM given WHERE {asked}").fetchall()
            rows = [row for row in found.to_pylist() if row["valid_from"] <= instant < (row["valid_to"] or 999)]
            assert sorted(str(tuple(row.values())[:-2]) for row in rows) == sorted(map(str, expected)), instant


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_months_and_the_last_instant_count_in_times_of_any_unit(unit: str) -> None:
    start = dt.datetime(2024, 1, 31, 12)
    until = start + dt.timedelta(hours=1)
    kind = pa.timestamp(unit, "UTC")
    table = {"A": pa.table({"ts": pa.array([start], kind), "until": pa.array([until], kind)})}
    for condition, end in (
        ("ts > now() - INTERVAL '1' MONTH", dt.datetime(2024, 2, 29, 12)),
        ("until >= now()", until + dt.timedelta(microseconds=1)),
    ):
        query = f"SELECT 1 AS one FROM A WHERE {condition}"
        found = ms.run(query, table).to_pylist()
        assert [row["valid_to"].replace(tzinfo=None) for row in found] == [end]
        assert ms.snapshot_equal(ms.run(query, table), ms.reference(query, table))


def test_a_condition_names_one_of_several_streams() -> None:
    tables = {"A": stream(1), "B": stream(2).rename_columns(["ts", "k", "w", "last"])}
    query = "SELECT v, w FROM A, B AS b WHERE A.k = b.k AND until > now() AND b.ts > now() - 5 AND last >= now()"
    bounded = "B AS b [VALID UNTIL least(ts + 5, coalesce(last + 1, ts))]"
    same = f"SELECT v, w FROM A [VALID UNTIL coalesce(until, ts)], {bounded} WHERE A.k = b.k"
    assert ms.snapshot_equal(ms.run(query, tables), ms.reference(same, tables))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM A WHERE ts < now() - 3",
        "SELECT k FROM A WHERE until > now() AND ts < now()",
        "SELECT k FROM A [ROWS 3] WHERE until > now()",
        "SELECT x.k FROM A [RANGE 3] AS x LEFT JOIN A [RANGE 3] AS y ON x.k = y.k WHERE y.until > now()",
        "SELECT x.k FROM A [RANGE 3] AS x RIGHT JOIN A [RANGE 3] AS y ON x.k = y.k WHERE x.ts <= now()",
        "SELECT x.k FROM A [RANGE 3] AS x, A [RANGE 3] AS y WHERE x.until > now() OR y.until > now()",
    ],
)
def test_conditions_that_are_no_windows_are_refused(query: str) -> None:
    with pytest.raises(ms.QueryError, match="there is no function now"):
        ms.run(query, {"A": stream(3)})
