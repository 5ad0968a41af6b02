"""OVER and LIMIT mean, at every instant, what they mean on the rows that are valid then."""

from __future__ import annotations

from functools import cache
from itertools import count, islice
from random import Random

import duckdb
import pyarrow as pa
import pytest
from tests.generators import Case, random_case

import midstream as ms
from midstream.lab.fuzz.constructs import PLACES
from midstream.lab.fuzz.judge import difference_from_database
from midstream.operators import borrowed_aggregates

CONSTRUCTS = PLACES | {
    "integer_time",
    "timestamp_time",
    "range",
    "unbounded",
    "rows",
    "hop",
    "where",
    "inner_join",
    "group_by",
}


@cache
def drawn(number: int) -> list[Case]:
    cases = (random_case(seed, CONSTRUCTS) for seed in count(1000))
    return list(islice((c for c in cases if " OVER (" in c.query or " LIMIT " in c.query), number))


@pytest.mark.parametrize("number", range(20))
def test_places_are_those_of_the_oracle_and_of_a_database(number: int) -> None:
    case = drawn(20)[number]
    expected = ms.reference(case.query, case.inputs, time="ts")
    assert difference_from_database(case, expected) is None, case.replay()
    found = ms.snapshot_equal(ms.run(case.query, case.inputs, time="ts", batch_rows=13), expected)
    assert found, f"{found}\n{case.replay()}"


W = "FROM A [TUMBLE 10]"
QUERIES = {
    "ranks": "SELECT k, rank() OVER w AS a, dense_rank() OVER w AS b, percent_rank() OVER w AS c, "
    f"cume_dist() OVER w AS d, ntile(2) OVER w AS e, row_number() OVER w AS f {W} "
    "WINDOW w AS (PARTITION BY k ORDER BY v DESC)",
    "neighbours": "SELECT ts, lag(v) OVER w AS a, lead(v, 2, -1) OVER w AS b, lag(v, 1) IGNORE NULLS OVER w AS c, "
    "lead(v, 0) OVER w AS d, lag(v, -1) OVER w AS e FROM A [RANGE 9] WINDOW w AS (ORDER BY ts, f)",
    "picks": "SELECT ts, first_value(v IGNORE NULLS) OVER (w ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING) AS a, "
    "nth_value(v, 2) OVER w AS b, last_value(v) IGNORE NULLS OVER (w ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING) AS c "
    f"{W} WINDOW w AS (ORDER BY ts, f)",
    "distances": "SELECT ts, sum(ts) OVER (ORDER BY v RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS a, "
    "sum(ts) OVER (ORDER BY v DESC NULLS FIRST RANGE BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING) AS b, "
    "count(*) OVER (ORDER BY f RANGE BETWEEN 0.25 PRECEDING AND 0.5 FOLLOWING) AS c, "
    "count(*) OVER (ORDER BY v RANGE BETWEEN 2 FOLLOWING AND UNBOUNDED FOLLOWING) AS d "
    f"{W}",
    "groups": f"SELECT ts, max(ts) OVER (ORDER BY v GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS a, "
    f"min(ts) OVER (ORDER BY v DESC GROUPS BETWEEN 2 PRECEDING AND 1 PRECEDING) AS b {W}",
    "aggregates": "SELECT ts, sum(f) OVER (w ROWS 2 PRECEDING) AS a, stddev(v) OVER (w ROWS 3 PRECEDING) AS b, "
    "count(DISTINCT v) OVER w AS c, avg(v) FILTER (WHERE f > 0.5) OVER w AS d, median(f) OVER w AS e, "
    "string_agg(v::text, ',') OVER (w ROWS 2 PRECEDING) AS g, sum(v) OVER () AS h "
    f"{W} WINDOW w AS (PARTITION BY k ORDER BY ts, f)",
    "groups of groups": f"SELECT k, sum(v) AS s, rank() OVER (ORDER BY sum(v) DESC) AS r, sum(sum(v)) OVER () AS t {W} "
    "GROUP BY k",
    "ties": f"SELECT k, v {W} ORDER BY v LIMIT 3 WITH TIES",
    "ties after some": f"SELECT k, v {W} ORDER BY v OFFSET 2 ROWS FETCH NEXT 2 ROWS WITH TIES",
    "first of each": f"SELECT DISTINCT ON (k) k, v, f {W} ORDER BY k, v, f",
    "first of each, first": f"SELECT DISTINCT ON (k) k, v, f {W} ORDER BY v, f LIMIT 2",
    "distinct": f"SELECT DISTINCT k, v {W} ORDER BY v DESC LIMIT 2",
    "qualified": "SELECT k, v FROM A [RANGE 8] QUALIFY row_number() OVER (PARTITION BY k ORDER BY v, ts) <= 2",
    "condition outside": "SELECT * "
    "FROM (SELECT k, v, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM A [RANGE 8]) AS s "
    "WHERE r <= 2 AND k > 0",
    "best group": "SELECT k, count(*) AS n FROM A [RANGE 8] GROUP BY k ORDER BY n DESC, k LIMIT 1",
    "union": f"SELECT k {W} UNION ALL SELECT v {W} ORDER BY k LIMIT 4",
    "nothing": f"SELECT k {W} LIMIT 0",
}


def stream(rows: int = 50, seed: int = 3) -> pa.Table:
    random = Random(seed)
    values = [random.choice([None, 1, 2, 3, 4, 5]) for _ in range(rows)]
    keys, floats = [random.randrange(3) for _ in range(rows)], [random.random() for _ in range(rows)]
    return pa.table({"ts": sorted(random.randrange(60) for _ in range(rows)), "k": keys, "v": values, "f": floats})


@pytest.mark.parametrize("name", QUERIES)
def test_every_form_equals_the_oracle(name: str) -> None:
    inputs = {"A": stream()}
    found = ms.snapshot_equal(
        ms.run(QUERIES[name], inputs, time="ts", batch_rows=11), ms.reference(QUERIES[name], inputs, time="ts")
    )
    assert found, str(found)


def test_times_are_measured_in_intervals() -> None:
    query = (
        "SELECT ts, count(*) OVER (ORDER BY ts RANGE INTERVAL '5' SECOND PRECEDING) AS n, "
        "count(*) OVER (ORDER BY ts DESC RANGE BETWEEN CURRENT ROW AND INTERVAL '4' SECOND FOLLOWING) AS m "
        "FROM A [TUMBLE 20 SECONDS]"
    )
    times = pa.array([1_000_000 * t for t in (0, 3, 5, 6, 11, 19)], pa.timestamp("us"))
    inputs = {"A": pa.table({"ts": times, "v": range(6)})}
    found = ms.run(query, inputs, time="ts")
    assert sorted(found.column("n").to_pylist()) == [1, 1, 2, 2, 3, 3]
    assert ms.snapshot_equal(found, ms.reference(query, inputs, time="ts"))


def test_a_slice_of_many_rows_is_looked_at_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borrowed_aggregates, "MOST_ROWS", 7)
    inputs = {"A": stream()}
    for name in ("qualified", "neighbours", "best group"):
        found = ms.run(QUERIES[name], inputs, time="ts")
        assert ms.snapshot_equal(found, ms.reference(QUERIES[name], inputs, time="ts")), name


def test_a_row_whose_values_stay_the_same_is_given_once() -> None:
    table = pa.table({"ts": [0, 1, 2, 3], "v": [1, 9, 8, 7]})
    found = ms.run("SELECT v FROM A [RANGE 50] ORDER BY v LIMIT 1", {"A": table}, time="ts", emit_every=1000)
    assert found.num_rows == 2  # the first row until it ends, and the next one then


@pytest.mark.parametrize("seed", range(12))
def test_how_far_a_row_looks_may_be_a_value_of_its_own(seed: int) -> None:
    chance = Random(seed)
    columns = {
        "ts": list(range(12)),
        "k": [chance.randrange(2) for _ in range(12)],
        "v": [chance.choice([None, 1, 2, 3, 4]) for _ in range(12)],
        "o": pa.array([chance.choice([None, -2, -1, 0, 1, 2, 3]) for _ in range(12)], pa.int64()),
        "d": list(range(100, 112)),
    }
    rows = pa.table(columns)
    frame = "PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING"
    query = f"""
        SELECT ts, lag(v, o) OVER w AS a, lead(v, o, d) OVER w AS b, lag(v, o + 1, 0) OVER w AS c,
               lag(v, o IGNORE NULLS) OVER w AS e, nth_value(v, o) OVER ({frame}) AS n
        FROM rows {{}} WINDOW w AS (PARTITION BY k ORDER BY ts)
    """
    found = ms.run(query.format("[UNBOUNDED]"), {"rows": rows}, batch_rows=chance.choice([1, 4, 50]))
    same = ms.snapshot_equal(found, ms.reference(query.format("[UNBOUNDED]"), {"rows": rows}))
    assert same, same
    last = [tuple(row.values())[:-2] for row in found.to_pylist() if row["valid_to"] is None]
    assert sorted(last) == sorted(duckdb.execute(query.format("")).fetchall())
