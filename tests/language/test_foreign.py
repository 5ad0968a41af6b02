"""Queries of Spark, Flink and RisingWave become queries of this language, and mean the same."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

import midstream as ms
from midstream.errors import QueryError
from midstream.language.foreign import to_cql

TIMES = {"bids": "ts", "orders": "ts", "payments": "ts"}
EXAMPLES = [
    block.partition("\n=>\n") for block in (Path(__file__).parent / "foreign.txt").read_text().strip().split("\n\n")
]


@pytest.mark.parametrize(("written", "expected"), [(before, after) for before, _, after in EXAMPLES])
def test_a_query_of_another_system_becomes_this(written: str, expected: str) -> None:
    dialect, _, query = written.partition(": ")
    assert to_cql(query, dialect, TIMES) == expected


def at(minute: float) -> dt.datetime:
    return dt.datetime(2024, 1, 1) + dt.timedelta(minutes=minute)


def test_an_interval_join_pairs_exactly_what_its_condition_says() -> None:
    orders = pa.table({"ts": [at(m) for m in (0, 10, 70)], "id": [1, 2, 1]})
    payments = pa.table({"ts": [at(m) for m in (5, 50, 95, 130)], "id": [1, 2, 1, 1]})
    query = (
        "SELECT o.ts AS o, p.ts AS p FROM orders o JOIN payments p ON o.id = p.id "
        "AND p.ts BETWEEN o.ts - INTERVAL '5' MINUTE AND o.ts + INTERVAL '60' MINUTE"
    )
    found = ms.run(query, {"orders": orders, "payments": payments}, dialect="flink").to_pylist()
    assert [(row["o"], row["p"]) for row in found] == [
        (at(0), at(5)),
        (at(10), at(50)),
        (at(70), at(95)),
        (at(70), at(130)),
    ]


def test_distances_on_both_sides_of_a_condition_add_up() -> None:
    orders = pa.table({"ts": [at(0)], "id": [1]})
    payments = pa.table({"ts": [at(m) for m in (-20, 14, 16)], "id": [1, 1, 1]})
    query = (
        "SELECT p.ts AS p FROM orders o JOIN payments p ON o.id = p.id AND o.ts <= p.ts + INTERVAL '1' HOUR "
        "AND p.ts - INTERVAL '5' MINUTE <= o.ts + INTERVAL '10' MINUTE"
    )
    found = ms.run(query, {"orders": orders, "payments": payments}, dialect="flink").to_pylist()
    assert [row["p"] for row in found] == [at(-20), at(14)]


def test_a_window_over_another_column_and_a_join_without_a_bound_are_refused() -> None:
    bids = {"bids": pa.table({"ts": [at(0)], "at": [at(0)]})}
    for query in (
        "SELECT at FROM TUMBLE(TABLE bids, DESCRIPTOR(at), {})",
        "SELECT 1 FROM bids GROUP BY TUMBLE(at, {})",
    ):
        with pytest.raises(ms.QueryError, match="goes by at, which is not the time of bids"):
            ms.run(query.format("INTERVAL '1' HOUR"), bids, dialect="flink")
    with pytest.raises(ms.QueryError, match="no dialect 'oracle'"):
        to_cql("SELECT 1", "oracle")
    table = pa.table({"ts": [at(0)], "id": [1]})
    with pytest.raises(ms.QueryError, match="needs a window on stream"):
        query = "SELECT o.id FROM orders o JOIN payments p ON o.id = p.id AND p.ts > o.ts"
        ms.run(query, {"orders": table, "payments": table}, dialect="flink")


NEWEST = "SELECT k, price FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY ts DESC) n FROM bids) WHERE n <= 2"
TOP = (
    "SELECT window_start, k, price FROM (SELECT *, row_number() OVER (PARTITION BY window_start ORDER BY price DESC) n "
    "FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' MINUTE))) WHERE n <= 2"
)


@pytest.mark.parametrize(
    ("query", "same"),
    [
        (NEWEST, "SELECT k, price FROM bids [PARTITION BY k ROWS 2]"),
        (
            "SELECT k, count(*) AS n FROM bids GROUP BY k, SESSION(ts, INTERVAL '7' MINUTE)",
            "SELECT k, count(*) AS n FROM bids [PARTITION BY k SESSION 7 MINUTES] GROUP BY k, window_start",
        ),
        (
            "SELECT count(*) AS n FROM bids GROUP BY HOP(ts, INTERVAL '4' MINUTE, INTERVAL '5' MINUTE)",
            "SELECT count(*) AS n FROM bids [HOP 5 MINUTES, 4 MINUTES OFFSET 1 MINUTE] GROUP BY window_start",
        ),
        (
            "SELECT bids.k, max(price) AS most FROM bids GROUP BY bids.k, TUMBLE(bids.ts, INTERVAL '10' MINUTE)",
            "SELECT k, max(price) AS most FROM bids [TUMBLE 10 MINUTES] GROUP BY k, window_start",
        ),
        (
            "SELECT k, window_time AS t FROM SESSION(TABLE bids PARTITION BY k, DESCRIPTOR(ts), INTERVAL '7' MINUTE)",
            "SELECT k, window_end - INTERVAL '1' MILLISECOND AS t FROM bids [PARTITION BY k SESSION 7 MINUTES]",
        ),
        (TOP, "SELECT window_start, k, price FROM bids [TUMBLE 10 MINUTES] ORDER BY price DESC LIMIT 2"),
    ],
)
def test_an_answer_is_that_of_the_windows_that_are_meant(query: str, same: str) -> None:
    minutes, prices = (1, 3, 7, 11, 12, 19, 25, 26), (5, 9, 2, 7, 8, 1, 3, 4)
    bids = {"bids": pa.table({"ts": [at(m) for m in minutes], "k": list("abcabcaa"), "price": prices})}
    assert ms.snapshot_equal(ms.run(query, bids, dialect="flink"), ms.reference(same, bids))


def test_sessions_beside_an_expression_are_refused() -> None:
    with pytest.raises(ms.QueryError, match="cannot stand beside an expression"):
        to_cql("SELECT count(*) FROM bids GROUP BY session_window(ts, '5 minutes'), price % 2", "spark", TIMES)


def test_a_session_that_is_not_grouped_by_is_refused() -> None:
    with pytest.raises(QueryError, match="a session window stands in GROUP BY"):
        to_cql("SELECT s FROM (SELECT session_window(ts, '5 minutes') AS s, k FROM bids) GROUP BY s, k", "spark", TIMES)


def test_times_that_only_one_stream_has_need_no_name_of_it_before_them() -> None:
    streams = {
        "l": pa.table({"lt": [at(5), at(10), at(20)], "lk": [1, 2, 3]}),
        "r": pa.table({"rt": [at(5), at(12), at(50)], "rk": [1, 2, 3]}),
    }
    query = (
        "SELECT lk, rk FROM l {} JOIN r ON lk = rk AND lt BETWEEN rt - INTERVAL 5 MINUTES AND rt + INTERVAL 5 MINUTES"
    )
    for kind, alone in (("INNER", set()), ("LEFT", {(3, None)}), ("FULL", {(3, None), (None, 3)})):
        found = ms.run(query.format(kind), streams, time={"l": "lt", "r": "rt"}, dialect="spark").to_pylist()
        assert {(row["lk"], row["rk"]) for row in found} == {(1, 1), (2, 2), *alone}


def test_windows_of_windows_take_the_bounds_of_the_inner_ones_for_a_time() -> None:
    bids = {"bids": pa.table({"ts": [at(m) for m in (1, 2, 11, 19, 21, 29)]})}
    inner = "SELECT {} AS t, count(*) AS n FROM bids GROUP BY window(ts, '10 minutes')"
    outer = "SELECT CAST(window.start AS BIGINT) AS s, sum(n) AS n FROM ({}) GROUP BY window(t, '20 minutes')"
    for time in ("window", "window_time(window)"):
        found = ms.run(outer.format(inner.format(time)), bids, dialect="spark").to_pylist()
        assert {(row["s"], row["n"]) for row in found} == {(1704067200, 4), (1704067200 + 1200, 2)}
    again = outer.format(inner.format("window")).replace("(t,", "(window_time(t),")
    assert {row["n"] for row in ms.run(again, bids, dialect="spark").to_pylist()} == {4, 2}


def test_a_session_takes_queries_of_other_systems() -> None:
    session = ms.Session().stream("bids", pa.schema([("ts", pa.timestamp("us")), ("price", pa.int64())]))
    text = "SELECT FLOOR(window_start TO HOUR) AS hour, max(price) AS most FROM bids GROUP BY window(ts, '10 minutes')"
    most = session.query("most", text, dialect="spark")
    session.push("bids", [{"ts": at(m), "price": p} for m, p in ((61, 5), (62, 9), (75, 3))])
    session.stop()
    assert [(row["hour"], row["most"]) for row in most.table().to_pylist()] == [(at(60), 9), (at(60), 3)]


@pytest.mark.parametrize("dialect", ["flink", "risingwave", "spark"])
@pytest.mark.parametrize(
    "condition",
    ["a.window_start = b.window_start - INTERVAL '10' MINUTE", "a.window_end + INTERVAL '1' HOUR = b.window_start"],
)
def test_windows_of_different_times_are_never_joined(dialect: str, condition: str) -> None:
    query = "SELECT a.v FROM TUMBLE(A, ts, INTERVAL '10' MINUTE) AS a, TUMBLE(A, ts, INTERVAL '10' MINUTE) AS b WHERE "
    with pytest.raises(QueryError, match="their rows never meet") as found:
        to_cql(query + condition, dialect)
    assert "UNBOUNDED" in str(found.value.hint)
    assert "note" in to_cql("SELECT v FROM A WHERE note = 'it has a watermark for ts'", dialect)
    to_cql(f"{query}a.window_start = b.window_start AND a.ts < b.ts - INTERVAL '1' MINUTE", dialect)


def test_a_watermark_is_said_of_a_stream() -> None:
    declared = "CREATE TABLE A (ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('k' = 'v');"
    with pytest.raises(QueryError, match=r"WATERMARK FOR is said of a stream(.|\n)*lateness = \"5 second\""):
        to_cql(f"{declared} SELECT k FROM A", "flink")
    assert to_cql("SELECT watermark FROM A", "flink") == "SELECT watermark FROM A"


def test_windows_of_windows_go_by_the_last_instants_of_the_inner_ones() -> None:
    bids = {"bids": pa.table({"ts": [at(m) for m in (1, 2, 11, 19, 21, 29)], "k": [1, 2, 1, 1, 1, 2]})}
    inner = "SELECT k, count(*) AS n, {} AS t FROM bids GROUP BY k, TUMBLE(ts, INTERVAL '10' MINUTE)"
    hours = "TUMBLE{}(t, INTERVAL '20' MINUTE)"
    outer = f"SELECT {hours.format('_START')} AS s, sum(n) AS n FROM ({{}}) GROUP BY {hours.format('')}"
    grouped = outer.format(inner.format("TUMBLE_ROWTIME(ts, INTERVAL '10' MINUTE)"))
    table = """WITH w AS (
        SELECT window_time AS t, k, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' MINUTE))
        GROUP BY k, window_start, window_end, window_time
      )
      SELECT window_start AS s, sum(n) AS n FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR(t), INTERVAL '20' MINUTE))
      GROUP BY window_start"""
    for query in (grouped, table):
        found = ms.run(query, bids, dialect="flink").to_pylist()
        assert {(row["s"], row["n"]) for row in found} == {(at(0), 4), (at(20), 2)}
    with pytest.raises(ms.QueryError, match="goes by t, which is not the time"):
        ms.run(outer.format(inner.format("max(ts)")), bids, dialect="flink")


def test_whole_numbers_of_flink_have_whole_quotients_and_averages() -> None:
    rows = {"a": pa.table({"ts": [at(0), at(1), at(2)], "n": [-7, 2, 2], "x": [1.5, 2.5, None]})}
    query = (
        "SELECT avg(n) AS n, avg(x) AS x, sum(n) / 2 AS half, sum(x) / 2 AS part, sum(n) / 0 AS none FROM a [UNBOUNDED]"
    )
    found = ms.run(query, rows, dialect="flink").to_pylist()[-1]
    assert (found["n"], found["x"], found["half"], found["part"], found["none"]) == (-1, 2.0, -1, 2.0, None)
