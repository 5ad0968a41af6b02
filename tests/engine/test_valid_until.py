"""`[VALID UNTIL x]`: tuples that say themselves until when they count."""

from __future__ import annotations

import datetime as dt
from random import Random

import duckdb
import pyarrow as pa
import pytest

import midstream as ms

QUERIES = (
    ("SELECT k, v FROM A [VALID UNTIL until]", "SELECT k, v FROM a"),
    (
        "SELECT k, count(*) AS n, sum(v) AS s FROM A [VALID UNTIL until] GROUP BY k",
        "SELECT k, count(*), sum(v) FROM a GROUP BY k",
    ),
    (
        "SELECT x.k, x.v, y.v AS w FROM A [VALID UNTIL until] AS x LEFT JOIN A [VALID UNTIL until] AS y ON x.k = y.v",
        "SELECT x.k, x.v, y.v AS w FROM a AS x LEFT JOIN a AS y ON x.k = y.v",
    ),
    ("SELECT DISTINCT v FROM A [VALID UNTIL CASE WHEN k > 0 THEN until END]", "SELECT DISTINCT v FROM a"),
)


def stream(seed: int) -> pa.Table:
    random = Random(seed)
    times = sorted(random.randrange(60) for _ in range(40))
    until = [random.choice([None, t - 1, t, t + 1, t + random.randrange(30)]) for t in times]
    keys, values = ([random.randrange(3) for _ in times] for _ in range(2))
    return pa.table({"ts": times, "k": keys, "v": values, "until": pa.array(until, pa.int64())})


@pytest.mark.parametrize(("query", "sql"), QUERIES)
def test_a_snapshot_holds_the_rows_whose_time_has_not_come(query: str, sql: str) -> None:
    table = stream(len(query))
    found = ms.run(query, {"A": table}, time="ts", batch_rows=7)
    assert ms.snapshot_equal(found, ms.reference(query, {"A": table}, time="ts"))
    ends = "CASE WHEN k > 0 THEN until END" if "CASE" in query else "until"
    for instant in (0, 17, 30, 59, 70, 200):
        with duckdb.connect() as connection:
            connection.register("given", table)
            connection.execute(
                f"CREATE TABLE a AS SELECT * FROM given WHERE ts <= {instant} AND coalesce({ends}, 999) > {instant}"
            )
            expected = connection.sql(sql).fetchall()
        rows = [row for row in found.to_pylist() if row["valid_from"] <= instant < (row["valid_to"] or 999)]
        ours = [tuple(row.values())[:-2] for row in rows]
        assert sorted(map(str, ours)) == sorted(map(str, expected)), instant


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_times_and_dates_of_any_unit_are_ends(unit: str) -> None:
    start = dt.datetime(2024, 2, 28, 12)
    times = pa.array([start, start + dt.timedelta(hours=6)], pa.timestamp(unit, "UTC"))
    until = pa.array([start + dt.timedelta(days=2)] * 2, pa.timestamp(unit, "UTC"))
    table = {"A": pa.table({"ts": times, "until": until, "v": [1, 2]})}
    found = ms.run("SELECT v FROM A [VALID UNTIL until]", table, time="ts")
    assert {str(end) for end in found.column("valid_to").to_pylist()} == {"2024-03-01 12:00:00+00:00"}
    query = "SELECT v FROM A [VALID UNTIL CASE WHEN v > 1 THEN ts + INTERVAL '1' HOUR END]"
    assert ms.snapshot_equal(ms.run(query, table, time="ts"), ms.reference(query, table, time="ts"))
    with pytest.raises(ms.QueryError, match="needs a time as the stream's is"):
        ms.run("SELECT v FROM A [VALID UNTIL ts::date]", table, time="ts")
