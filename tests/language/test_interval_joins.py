"""Joins within bounds of time give what Flink and Spark do: each pair once, and each row that nothing met once."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import midstream as ms
from midstream.language.foreign import to_cql

START = dt.datetime(2024, 1, 1)
SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("v", pa.int64())])
KINDS = ("", "LEFT", "RIGHT", "FULL OUTER")
BOUNDS = "a.ts BETWEEN b.ts - INTERVAL '2' SECOND AND b.ts + INTERVAL '3' SECOND"
Row = dict[str, Any]


def at(second: int) -> dt.datetime:
    return START + dt.timedelta(seconds=second)


def rows(drawn: random.Random, first: int = 0) -> list[Row]:
    times = sorted(drawn.randrange(20) for _ in range(drawn.randrange(12)))
    return [{"ts": at(ts), "k": drawn.choice([1, 1, 2, None]), "v": first + drawn.randrange(9)} for ts in times]


def table(given: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(given, schema=SCHEMA)


def wanted(
    kind: str, a: list[Row], b: list[Row], low: int, high: int, most: int
) -> Iterator[tuple[Any, Any, dt.datetime]]:
    """By Flink's definition, pairs of equal keys with low <= a.ts - b.ts <= high; the time at which each is certain."""
    met_a, met_b = set(), set()
    for i, one in enumerate(a):
        for j, other in enumerate(b):
            near = low <= (one["ts"] - other["ts"]).total_seconds() <= high
            if near and one["k"] is not None and one["k"] == other["k"]:
                met_a.add(i)
                met_b.add(j)
                if one["v"] < most:
                    yield one["v"], other["v"], max(one["ts"], other["ts"])
    for i, one in enumerate(a):
        if kind in ("LEFT", "FULL OUTER") and i not in met_a and one["v"] < most:
            yield one["v"], None, one["ts"] + dt.timedelta(seconds=max(-low, 0))
    for j, other in enumerate(b):
        if kind in ("RIGHT", "FULL OUTER") and j not in met_b and most > 9:
            yield None, other["v"], other["ts"] + dt.timedelta(seconds=max(high, 0))


def found(result: pa.Table) -> Counter[tuple[Any, Any, dt.datetime]]:
    return Counter((row["av"], row["bv"], row["valid_from"]) for row in result.to_pylist())


def moved(seconds: int) -> str:
    return f"b.ts {'-' if seconds < 0 else '+'} INTERVAL '{abs(seconds)}' SECOND"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_random_rows_and_bounds_give_what_the_definition_says(kind: str, seed: int) -> None:
    drawn = random.Random(f"{kind} {seed}")
    a, b = rows(drawn), rows(drawn, 10)
    low, high = sorted((drawn.randrange(-6, 7), drawn.randrange(-6, 7)))
    within = drawn.choice(
        [
            f"a.ts BETWEEN {moved(low)} AND {moved(high)}",
            f"a.ts >= {moved(low)} AND {moved(high)} >= a.ts",
            f"a.ts > {moved(low - 1)} AND a.ts < {moved(high + 1)}",
        ]
    )
    filtered = drawn.random() < 0.3
    query = f"SELECT a.v AS av, b.v AS bv FROM a {kind} JOIN b ON a.k = b.k AND {within}"
    query += " WHERE a.v < 5 OR a.v > 99" if filtered else ""
    inputs, dialect = {"a": table(a), "b": table(b)}, drawn.choice(["flink", "spark"])
    got = ms.run(query, inputs, dialect=dialect, batch_rows=drawn.choice([1, 3, 100]))
    expected = Counter(wanted(kind, a, b, low, high, 5 if filtered else 99))
    rounded = Counter((x, y) for x, y, _ in found(got).elements())
    assert rounded == Counter((x, y) for x, y, _ in expected.elements()), (query, a, b)
    if "a.ts >" not in within or ">=" in within:
        assert found(got) == expected, (query, a, b)
    assert ms.snapshot_equal(got, ms.reference(to_cql(query, dialect, "ts"), inputs))


def test_rows_are_joined_with_themselves_and_equal_times_are_bounds() -> None:
    a = [{"ts": at(s), "k": k, "v": s} for s, k in ((1, 1), (1, None), (4, 1))]
    query = "SELECT a.v AS av, b.v AS bv FROM t AS a LEFT JOIN t b ON a.k = b.k AND a.ts = b.ts"
    assert found(ms.run(query, {"t": table(a)}, dialect="flink")) == Counter(
        [(1, 1, at(1)), (4, 4, at(4)), (1, None, at(1))]
    )


def test_rows_that_nothing_met_survive_a_restart(tmp_path: Path) -> None:
    drawn = random.Random(7)
    given = {name: sorted(rows(drawn, 9 * i) + rows(drawn), key=lambda row: row["ts"]) for i, name in enumerate("ab")}
    query = f"SELECT a.v AS av, b.v AS bv FROM a FULL JOIN b ON a.k = b.k AND {BOUNDS}"
    for begin, end in ((0, 8), (8, 11), (11, 99)):
        with ms.Session(checkpoint=str(tmp_path), on="local") as session:
            for name in "ab":
                session.stream(name, SCHEMA)
            session.query("q", query, dialect="flink")
            session.start()
            parts = {n: [row for row in r if at(begin) <= row["ts"] < at(end)] for n, r in given.items()}
            session.push(parts)
            if end == 99:
                session.finish()
                got = session.results("q")
    assert found(got) == Counter(wanted("FULL OUTER", given["a"], given["b"], -2, 3, 99))


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT count(*) FROM a LEFT JOIN b ON {BOUNDS}",
        f"SELECT a.k FROM a LEFT JOIN b ON {BOUNDS} GROUP BY a.k",
        f"SELECT DISTINCT a.k FROM a RIGHT JOIN b ON {BOUNDS}",
        f"SELECT a.k FROM a FULL JOIN b ON {BOUNDS} LIMIT 3",
        f"SELECT lag(a.k) OVER (ORDER BY a.ts) FROM a LEFT JOIN b ON {BOUNDS}",
        f"SELECT mine(a.k) FROM a LEFT JOIN b ON {BOUNDS}",
        f"SELECT a.k FROM a LEFT JOIN b ON {BOUNDS} JOIN c ON a.k = c.k AND a.ts = c.ts",
    ],
)
def test_what_is_more_than_rows_of_one_outer_join_is_refused(query: str) -> None:
    with pytest.raises(ms.QueryError, match="outer join within bounds of time stands alone"):
        to_cql(query, "flink", "ts")


def test_outer_joins_stand_in_sub_queries_and_beside_others() -> None:
    a, b = [{"ts": at(s), "k": s, "v": s} for s in (1, 2)], [{"ts": at(3), "k": 2, "v": 7}]
    join = (
        'SELECT left(\'ab\', 1) AS x, a.v AS av, "B".v AS bv FROM a LEFT JOIN b AS "B" ON a.k = "B".k AND '
        "(a.ts >= \"B\".ts - INTERVAL '2' SECOND) AND a.ts <= \"B\".ts + INTERVAL '3' SECOND"
    )
    query = (
        f"WITH j AS ({join} WHERE a.k < 2 OR a.k = 2) SELECT av, bv FROM j UNION ALL SELECT av, bv + 1 FROM ({join})"
    )
    got = found(ms.run(query, {"a": table(a), "b": table(b)}, dialect="flink"))
    assert got == Counter([(1, None, at(3))] * 2 + [(2, 7, at(3)), (2, 8, at(3))])
    query = f"SELECT x, v AS av, v AS bv FROM (SELECT 'a' AS x, v FROM a [NOW]) EXCEPT ALL {join} ORDER BY 1"
    got = found(ms.run(query, {"a": table(a), "b": table(b)}, dialect="flink"))
    assert got == Counter([(1, 1, at(1)), (2, 2, at(2))])


def test_bounds_of_two_joins_add_up_for_the_streams_at_their_ends() -> None:
    first, second, third = (table([{"ts": at(s), "k": 1, "v": s}]) for s in (0, 5, 12))
    query = (
        "SELECT a.v AS av, c.v AS bv FROM a JOIN b ON a.ts BETWEEN b.ts - INTERVAL '5' SECOND AND b.ts "
        "JOIN c ON c.ts BETWEEN b.ts AND b.ts + INTERVAL '7' SECOND"
    )
    for inputs in ({"a": first, "b": second, "c": third}, {"a": first, "b": second, "c": second}):
        got = found(ms.run(query, inputs, dialect="flink"))
        assert got == Counter([(0, inputs["c"]["v"][0].as_py(), inputs["c"]["ts"][0].as_py())])


@pytest.mark.parametrize("seed", range(3))
def test_sub_queries_within_bounds_of_time_are_joined_as_streams_are(seed: int) -> None:
    drawn = random.Random(seed)
    inputs = {"a": table(rows(drawn)), "b": table(rows(drawn))}
    query = "SELECT a.v AS av, b.v AS bv FROM {} JOIN {} ON a.k = b.k AND " + BOUNDS
    sides = "(SELECT k, v, ts FROM a WHERE v > 1) AS a", "(SELECT k, v, ts FROM b) b"
    got = found(ms.run(query.format(*sides), inputs, dialect="flink"))
    assert got == found(ms.run(query.format("a", "b") + " WHERE a.v > 1", inputs, dialect="flink"))


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT a.v FROM (SELECT k, v, ts + INTERVAL '1' HOUR AS ts FROM a) AS a JOIN b ON {BOUNDS}",
        f"WITH c AS (SELECT v, ts + INTERVAL '1' HOUR AS ts FROM a) SELECT a.v FROM c AS a JOIN b ON {BOUNDS}",
    ],
)
def test_what_is_called_as_the_time_may_be_another_one(query: str) -> None:
    with pytest.raises(ms.QueryError, match="needs a window"):
        ms.run(query, {"a": table([]), "b": table([])}, dialect="flink")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a.k, count(*) AS n FROM a JOIN b ON a.k = b.k AND {bounds} GROUP BY a.k",
        "SELECT k, count(*) AS n FROM (SELECT a.k FROM a JOIN b ON a.k = b.k AND {bounds}) GROUP BY k",
        "WITH j AS (SELECT a.k FROM a JOIN b ON a.k = b.k AND {bounds}) SELECT max(k) AS k, count(*) AS n FROM j",
    ],
)
def test_an_aggregate_of_pairs_within_bounds_wants_to_know_that_all_are_kept(query: str) -> None:
    streams = {
        "a": table([{"ts": at(0), "k": 1, "v": 0}, {"ts": at(15), "k": 1, "v": 0}]),
        "b": table([{"ts": at(1), "k": 1, "v": 0}, {"ts": at(16), "k": 1, "v": 0}]),
    }
    written = query.format(bounds=BOUNDS)
    with pytest.raises(ms.QueryError, match="would only see pairs until"):
        ms.run(written, streams, time="ts", dialect="flink")
    kept = written.replace("FROM a JOIN b", "FROM a [UNBOUNDED] JOIN b [UNBOUNDED]")
    last = ms.run(kept, streams, time="ts", dialect="flink").to_pylist()[-1]
    assert (last["k"], last["n"], last["valid_to"]) == (1, 2, None)


def test_a_value_over_rows_of_pairs_within_bounds_is_no_aggregate() -> None:
    query = f"SELECT a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k AND {BOUNDS}"
    outer = f"SELECT av, max(av) OVER (PARTITION BY bv) AS m FROM ({query})"
    assert "[RANGE" in to_cql(outer, "flink", "ts")


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN"])
def test_a_window_over_a_join_goes_by_the_time_of_the_side_that_counts_for_one_instant(kind: str) -> None:
    drawn = random.Random(7)
    streams = {"a": table(rows(drawn)), "b": table(rows(drawn))}
    pairs = f"SELECT a.ts, a.k, b.v FROM a [NOW] {kind} b [PARTITION BY k ROWS 1] ON a.k = b.k"
    query = f"SELECT window_start, count(*) AS n FROM TUMBLE(({pairs}), ts, INTERVAL '5' SECOND) GROUP BY window_start"
    assert ms.snapshot_equal(ms.run(query, streams, time="ts"), ms.reference(query, streams, time="ts"))
    with pytest.raises(ms.QueryError, match="goes by ts, which is not the time"):
        ms.run(query.replace("a.ts", "b.ts"), streams, time="ts")
    wide = query.replace("[NOW]", "[RANGE 1 SECOND]")
    with pytest.raises(ms.QueryError, match="which is not the time|one copy of each row"):
        ms.run(wide, streams, time="ts")


def test_a_join_on_equal_whole_numbers_as_times_is_one_of_instants() -> None:
    streams = {"a": pa.table({"t": [1, 2], "x": [5, 6]}), "b": pa.table({"t": [2, 3], "y": [7, 8]})}
    found = ms.run("SELECT x, y FROM a JOIN b ON a.t = b.t", streams, time="t", dialect="risingwave")
    assert found.select(["x", "y"]).to_pylist() == [{"x": 6, "y": 7}]
