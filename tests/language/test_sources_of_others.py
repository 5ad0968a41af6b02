"""What other systems write in FROM and beside it: windows as functions, ASOF by values, fields, series of months."""

from __future__ import annotations

import datetime as dt
import random

import duckdb
import pyarrow as pa
import pytest

import midstream as ms

START = dt.datetime(2024, 5, 1)


def at(minute: float) -> dt.datetime:
    return START + dt.timedelta(minutes=minute)


BIDS = {"bids": pa.table({"ts": [at(m) for m in (1, 3, 7, 11, 12, 19, 25)], "k": list("abcabca"), "v": range(7)})}


@pytest.mark.parametrize(
    ("source", "window"),
    [
        ("TUMBLE(bids, ts, INTERVAL '10' MINUTE)", "[TUMBLE 10 MINUTES]"),
        ("TUMBLE(bids, ts, '10 minutes', '3 minutes')", "[TUMBLE 10 MINUTES OFFSET 3 MINUTES]"),
        ("HOP(bids, ts, INTERVAL '5' MINUTE, INTERVAL '10' MINUTE)", "[HOP 10 MINUTES, 5 MINUTES]"),
        ("HOP(bids, ts, INTERVAL '4' MINUTE, INTERVAL '10' MINUTE)", "[HOP 10 MINUTES, 4 MINUTES OFFSET 2 MINUTES]"),
        ("TABLE(CUMULATE(TABLE bids, DESCRIPTOR(ts), '5 minutes', '10 minutes'))", "[CUMULATE 10 MINUTES, 5 MINUTES]"),
        (
            "TUMBLE(DATA => TABLE bids, TIMECOL => DESCRIPTOR(ts), OFFSET => '1 minute', SIZE => '5 minutes')",
            "[TUMBLE 5 MINUTES OFFSET 1 MINUTE]",
        ),
        ("SESSION(TABLE bids PARTITION BY k, v, DESCRIPTOR(ts), '5 minutes')", "[PARTITION BY k, v SESSION 5 MINUTES]"),
    ],
)
def test_a_window_may_be_written_as_a_function_of_its_stream(source: str, window: str) -> None:
    same = f"SELECT *, window_start, window_end FROM bids {window}"
    for query in (f"SELECT * FROM {source}", f"SELECT w.*, bids.v AS v2 FROM {source} AS w, bids [NOW]"):
        expected = same if "v2" not in query else f"SELECT w.*, bids.v AS v2 FROM ({same}) AS w, bids [NOW]"
        found = ms.run(query, BIDS)
        assert ms.snapshot_equal(found, ms.reference(expected, BIDS))
        assert ms.snapshot_equal(found, ms.reference(query, BIDS))


def test_a_window_may_be_a_function_of_a_query() -> None:
    query = "WITH x AS (SELECT ts AS t, v FROM bids WHERE v > 1) SELECT sum(v) AS s FROM TUMBLE(x, {}, '10 minutes')"
    same = "SELECT sum(v) AS s FROM bids [TUMBLE 10 MINUTES] WHERE v > 1"
    assert ms.snapshot_equal(ms.run(query.format("t"), BIDS), ms.reference(same, BIDS))
    with pytest.raises(ms.QueryError, match="goes by v, which is not the time of x"):
        ms.run(query.format("v"), BIDS)


@pytest.mark.parametrize("join", ["ASOF JOIN", "ASOF LEFT JOIN"])
@pytest.mark.parametrize("order", ["a.v >= b.v", "a.v > b.v", "a.v <= b.v + 1", "b.v > a.v"])
def test_asof_joins_windows_by_values(order: str, join: str) -> None:
    chance = random.Random(order)
    rows = [{"ts": t, "k": chance.randrange(2), "v": chance.randrange(9)} for t in range(12)]
    values = chance.sample(range(30), 12)
    tables = {"a": pa.Table.from_pylist(rows), "b": pa.table({"ts": range(12), "k": [0, 1] * 6, "v": values})}
    query = f"SELECT a.ts, a.v, b.v AS w FROM a [UNBOUNDED] {join} b [UNBOUNDED] ON a.k = b.k AND {order}"
    found = ms.run(query, tables)
    assert ms.snapshot_equal(found, ms.reference(query, tables))
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        expected = connection.sql(query.replace(" [UNBOUNDED]", "")).fetchall()
    last = [tuple(row.values())[:-2] for row in found.to_pylist() if row["valid_to"] is None]
    assert sorted(map(str, last)) == sorted(map(str, expected))


@pytest.mark.parametrize(("written", "plain"), [("ASOF JOIN", "ASOF JOIN"), ("LEFT ASOF JOIN", "ASOF LEFT JOIN")])
def test_an_asof_join_says_its_inequality_behind_match_condition(written: str, plain: str) -> None:
    tables = {"a": pa.table({"ts": [5, 9], "k": [1, 2]}), "b": pa.table({"ts": [1, 4, 7], "k": [1, 1, 1]})}
    query = "SELECT a.ts, b.ts AS other FROM a {} b {}"
    found = ms.run(query.format(written, "MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k"), tables)
    assert found == ms.run(query.format(plain, "ON a.ts >= b.ts AND a.k = b.k"), tables)
    assert ms.run(query.format(written, "MATCH_CONDITION (a.ts >= b.ts)"), tables).num_rows == 2


def test_fields_of_structs_and_columns_around_a_query_are_spread() -> None:
    rows = {"a": pa.table({"ts": [1], "s": [{"x": 1, "y": {"z": 2}}]}), "b": pa.table({"ts": [1], "v": [7]})}
    for query, expected in {
        "SELECT (s).* FROM a [NOW]": {"x": 1, "y": {"z": 2}},
        "SELECT a.s.y.*, (s).* EXCLUDE (y) FROM a [NOW]": {"z": 2, "x": 1},
        "SELECT (s).y.*, count(*) AS n FROM a [NOW] GROUP BY ALL": {"z": 2, "n": 1},
        "SELECT t.* FROM b [NOW], LATERAL (SELECT b.*) AS t": {"ts": 1, "v": 7},
        "SELECT t.* FROM b [NOW], LATERAL (SELECT v, (SELECT max(s.x) FROM a [NOW]) AS m) AS t": {"v": 7, "m": 1},
    }.items():
        for run in (ms.run, ms.reference):
            found = run(query, rows).to_pylist()
            assert [{k: v for k, v in row.items() if not k.startswith("valid")} for row in found] == [expected], query
    with pytest.raises(ms.QueryError, match="int64 has no fields"):
        ms.run("SELECT (ts).* FROM a [NOW]", rows)


def test_nulls_are_ignored_by_an_argument_too() -> None:
    rows = {"a": pa.table({"ts": [1, 2, 3], "v": [None, 5, None]})}
    values = "first_value(v{}) OVER w AS f, last_value(v{}) OVER w AS l"
    query = f"SELECT ts, {values} FROM a [UNBOUNDED] WINDOW w AS (ORDER BY ts)"
    for written, same in ((", TRUE", " IGNORE NULLS"), (", FALSE", "")):
        found = ms.run(query.format(written, written), rows)
        assert ms.snapshot_equal(found, ms.reference(query.format(same, same), rows))


def test_all_matches_of_a_regular_expression_are_rows() -> None:
    texts = {"a": pa.table({"ts": [1, 2, 3], "s": ["#a1 #b2", "none", None]})}
    queries = {
        "SELECT regexp_matches(s, '#(\\w)(\\d)', 'g') AS m FROM a [UNBOUNDED]": [["a", "1"], ["b", "2"]],
        "SELECT m FROM a [UNBOUNDED], regexp_matches(s, '#A\\d|#b', 'gi') AS r(m)": [["#a1"], ["#b"]],
        "SELECT unnest(regexp_matches(s, '#\\w', 'g')) AS m FROM a [UNBOUNDED]": ["#a", "#b"],
        "SELECT regexp_matches(s, '#', 'i') AS m FROM a [UNBOUNDED] WHERE ts = 1": [True],
    }
    for query, expected in queries.items():
        for run in (ms.run, ms.reference):
            assert run(query, texts)["m"].to_pylist() == expected, query


def test_a_series_goes_by_months() -> None:
    query = "SELECT * FROM generate_series(TIMESTAMP '2020-01-31', TIMESTAMP '2020-04-30', INTERVAL '1' MONTH) AS g(t)"
    found = [row["t"] for row in ms.run(query, {}).to_pylist()]
    with duckdb.connect() as connection:
        assert found == [row[0] for row in connection.sql(query).fetchall()]


def test_json_without_a_key() -> None:
    query = "SELECT '{\"a\": 1, \"b\": 2}'::JSONB - 'a' AS j"
    assert ms.run(query, {})["j"].to_pylist() == ms.reference(query, {})["j"].to_pylist() == ['{"b":2}']
