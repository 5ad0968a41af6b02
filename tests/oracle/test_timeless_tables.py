"""A table without a time column is there at every instant."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import midstream as ms

SALES = pa.table({"ts": [5, 9, 11, 12], "item": [1, 2, 2, 3]})
ITEMS = pa.table({"item": [1, 2], "name": ["tea", "salt"]})
TIMES = {"sales": "ts", "items": None}


def test_a_table_without_a_time_is_joined_at_every_instant_and_shows_its_own_columns() -> None:
    query = "SELECT s.ts, i.* FROM sales [NOW] AS s LEFT JOIN items AS i ON s.item = i.item"
    inputs = {"sales": SALES, "items": ITEMS}
    found = ms.run(query, inputs, time=TIMES, batch_rows=2)
    assert [(row["ts"], row["item"], row["name"]) for row in found.to_pylist()] == [
        (5, 1, "tea"),
        (9, 2, "salt"),
        (11, 2, "salt"),
        (12, None, None),
    ]
    assert ms.snapshot_equal(found, ms.reference(query, inputs, time=TIMES))


def test_a_table_without_a_time_takes_no_window() -> None:
    with pytest.raises(ms.QueryError, match="they take no window"):
        ms.run("SELECT name FROM items [RANGE 5]", {"sales": SALES, "items": ITEMS}, time=TIMES)


def test_tables_without_times_are_asked_as_in_a_database_and_have_the_order_of_their_rows() -> None:
    words = pa.table({"word": ["z", "a", "m", "a"], "n": [1, 1, 2, 2]})
    query = """SELECT string_agg(word, '') AS all_words, first(word) AS f, arg_max(word, n) AS a,
      (SELECT word FROM words LIMIT 1) AS l, (SELECT list(word) FROM (SELECT word FROM words WHERE n = 1) AS x) AS s
      FROM words"""
    (found,) = ms.run(query, {"words": words}, time=None).to_pylist()
    assert [found[name] for name in ("all_words", "f", "a", "l", "s")] == ["zama", "z", "m", "z", ["z", "a"]]
    places = ms.run("SELECT word, row_number() OVER (ORDER BY n DESC) AS p FROM words", {"words": words}, time=None)
    assert {row["p"]: row["word"] for row in places.to_pylist()} == {1: "m", 2: "a", 3: "z", 4: "a"}


def test_an_aggregate_of_no_rows_of_tables_without_times_is_a_row_as_in_a_database() -> None:
    words = {"words": pa.table({"word": ["z", "a"], "n": [1, 2]})}
    query = """SELECT count(*) AS n, sum(n) AS s, (SELECT max(n) FROM words WHERE n > 5) AS m FROM words WHERE n > 5"""
    for run in (ms.run, ms.reference):
        (found,) = run(query, words, time=None).to_pylist()
        assert [found[name] for name in ("n", "s", "m")] == [0, None, None]
        assert run("SELECT sum(n) AS s FROM main.words WHERE n > 5 HAVING count(*) > 0", words, time=None).num_rows == 0
        assert run("SELECT n, count(*) AS c FROM words WHERE n > 5 GROUP BY n", words, time=None).num_rows == 0


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT v FROM A [PARTITION BY k ROWS 1]", {3, 1, 2}),
        ("SELECT v FROM (SELECT k, v FROM A WHERE v > 0) [PARTITION BY k ROWS 1] AS x", {3, 1, 2}),
        ("SELECT A.v FROM B ASOF JOIN A ON A.k = B.k", {3, 1, 2}),
        ("SELECT last(v) AS v FROM A [NOW] GROUP BY k", {3, 1, 2}),
    ],
)
def test_a_column_of_arrival_decides_between_rows_of_one_time_and_is_not_seen(query: str, expected: set[int]) -> None:
    rows = pa.table({"ts": [1, 1, 1, 2, 2], "k": ["a", "a", "b", "a", "a"], "v": [5, 3, 1, 9, 2]})
    inputs = {"A": rows.add_column(0, "#arrival", pa.array(range(5))), "B": rows}
    found = ms.run(query, inputs, batch_rows=2)
    assert found.column_names == ["v", "valid_from", "valid_to"]
    assert {row["v"] for row in found.to_pylist()} == expected
    assert ms.snapshot_equal(found, ms.reference(query, inputs))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a.k, x.v FROM a, LATERAL (SELECT DISTINCT v FROM b WHERE b.k = a.k) AS x",
        "SELECT a.k, (SELECT count(*) FROM (SELECT DISTINCT v FROM b WHERE b.k = a.k) AS y) AS n FROM a",
        "WITH abc AS (SELECT 1 x), t AS (WITH aBc AS (SELECT x + 1 AS x FROM abc) SELECT * FROM aBC) SELECT * FROM t",
    ],
)
def test_what_stands_inside_a_query_counts_as_in_a_database(query: str) -> None:
    tables = {"a": pa.table({"k": [1, 2, 3]}), "b": pa.table({"k": [1, 1, 1, 2, 2], "v": [5, 5, 6, 7, 7]})}
    with duckdb.connect() as database:
        for name, table in tables.items():
            database.register(name, table)
        expected = database.sql(query).to_arrow_table()
    for run in (ms.run, ms.reference):
        found = run(query, tables, time=None).select(expected.column_names)
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT s.ts, i.name FROM sales s JOIN items i ON s.item = i.item",
        "SELECT s.ts, i.name FROM sales s, items i WHERE s.item < i.item",
        "SELECT s.ts, i.name FROM sales s LEFT JOIN items i ON s.item = i.item",
        "SELECT s.ts, i.name FROM items i RIGHT JOIN sales s USING (item)",
        "SELECT s.ts, j.name FROM sales s JOIN items i ON s.item = i.item LEFT JOIN items j ON i.item < j.item",
        "SELECT s.ts FROM sales s WHERE s.item IN (SELECT item FROM items WHERE name <> 'tea')",
        "SELECT s.ts FROM sales s WHERE NOT EXISTS (SELECT 1 FROM items i WHERE i.item = s.item)",
        "SELECT ts, (SELECT name FROM items i WHERE i.item = s.item), s.item IN (SELECT item FROM items) FROM sales s",
        "SELECT s.ts, x.name FROM sales s, LATERAL (SELECT name FROM items i WHERE i.item = s.item) AS x",
        "SELECT s.ts, v.x FROM sales s LEFT JOIN (VALUES (2, 'two')) AS v(a, x) ON v.a = s.item",
    ],
)
@pytest.mark.parametrize("dialect", [None, "flink", "spark"])
def test_each_row_of_a_stream_meets_a_table_without_a_time_at_its_own_instant(query: str, dialect: str | None) -> None:
    inputs = {"sales": SALES, "items": ITEMS}
    found = ms.run(query, inputs, time=TIMES, batch_rows=2, dialect=dialect)
    with duckdb.connect() as database:
        for name, table in inputs.items():
            database.register(name, table)
        wanted = database.sql(query).fetchall()
    rows = [tuple(row.values()) for row in found.to_pylist()]
    assert sorted(map(repr, wanted)) == sorted(repr(row[:-2]) for row in rows)
    assert all(row[-2:] == (row[0], row[0] + 1) for row in rows)
    assert ms.snapshot_equal(found, ms.reference(query, inputs, time=TIMES))


@pytest.mark.parametrize(
    ("query", "purpose"),
    [
        ("SELECT i.name, count(*) AS n FROM sales s JOIN items i ON s.item = i.item GROUP BY i.name", "an aggregate"),
        ("SELECT DISTINCT i.name FROM sales s JOIN items i ON s.item = i.item", "DISTINCT"),
        ("SELECT rank() OVER (ORDER BY s.ts) FROM sales s JOIN items i ON s.item = i.item", "OVER"),
        ("SELECT i.name FROM sales s RIGHT JOIN items i ON s.item = i.item", "a join"),
        ("SELECT i.name FROM items i WHERE i.item IN (SELECT item FROM sales)", "IN"),
        (
            "SELECT i.name FROM sales s JOIN items i ON s.item = i.item JOIN sales [RANGE 5] t ON s.item = t.item",
            "a join",
        ),
        ("SELECT 1 FROM sales s JOIN sales [RANGE 5] t ON s.item > (SELECT max(item) FROM items)", "a join"),
    ],
)
def test_what_would_remember_the_rows_of_a_stream_beside_a_table_still_needs_a_window(query: str, purpose: str) -> None:
    with pytest.raises(ms.QueryError, match=rf"{purpose}.* needs a window on stream sales"):
        ms.run(query, {"sales": SALES, "items": ITEMS}, time=TIMES)


def test_what_a_stream_meets_in_a_table_takes_a_window_of_its_own() -> None:
    met = "SELECT i.name FROM sales s JOIN items i ON s.item = i.item"
    query = f"SELECT name, count(*) AS n FROM ({met}) [RANGE 3] AS x GROUP BY name"
    inputs = {"sales": SALES, "items": ITEMS}
    found = ms.run(query, inputs, time=TIMES)
    assert [tuple(row.values()) for row in found.to_pylist()][1:] == [
        ("salt", 1, 9, 11),
        ("salt", 2, 11, 13),
        ("salt", 1, 13, 15),
    ]
    assert ms.snapshot_equal(found, ms.reference(query, inputs, time=TIMES))
