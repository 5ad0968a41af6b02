"""Lists, structs and maps are ordered by their elements, as DuckDB orders them, wherever an order is asked for."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import midstream as ms

ROWS = pa.table(
    {
        "k": [1, 1, 2, 2, 1, 3],
        "l": pa.array([[10], [9], [1, 2], [1], None, [None, 3]], pa.list_(pa.int64())),
        "s": [{"x": 1, "y": 10}, {"x": 1, "y": 9}, {"x": 2, "y": 1}, None, {"x": -1, "y": 5}, {"x": None, "y": 5}],
        "m": pa.array(
            [[("a", 1)], [("a", 2)], [("b", 0)], None, [], [("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int64())
        ),
    }
)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT l FROM t ORDER BY l LIMIT 3",
        "SELECT l FROM t ORDER BY l DESC NULLS LAST LIMIT 3",
        "SELECT DISTINCT s FROM t ORDER BY s LIMIT 3",
        "SELECT m FROM t ORDER BY m LIMIT 3",
        "SELECT l, row_number() OVER (ORDER BY l) AS n FROM t",
        "SELECT s, rank() OVER (ORDER BY s) AS n, lag(s) OVER (ORDER BY s) AS before FROM t",
        "SELECT DISTINCT ON (k) k, l FROM t ORDER BY k, l",
        "SELECT l FROM t WHERE l >= ALL (SELECT l FROM t WHERE l IS NOT NULL)",
        "SELECT l FROM t WHERE l < ANY (SELECT l FROM t)",
        "SELECT list(k ORDER BY l) AS them FROM t",
        "SELECT list(l ORDER BY l DESC NULLS LAST) AS them FROM t",
        "SELECT k, first(l ORDER BY l) AS least, last(l ORDER BY l) AS most FROM t GROUP BY k",
    ],
)
def test_nested_values_are_ordered_by_their_elements(query: str) -> None:
    found = ms.run(query, {"t": ROWS}, time={"t": None})
    assert ms.snapshot_equal(found, ms.reference(query, {"t": ROWS}, time={"t": None}))
    with duckdb.connect() as database:
        database.register("t", ROWS)
        expected = database.sql(query).to_arrow_table()
    assert sorted(map(str, found.select(expected.column_names).to_pylist())) == sorted(map(str, expected.to_pylist()))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT s.z FROM t", "struct<x: int64, y: int64> has no field z"),
        ("SELECT ({'a': 1}).b AS b FROM t", "has no field b"),
        ("SELECT s.x.y FROM t", "int64 has no field y"),
        ("SELECT first_value(k ORDER BY k DESC) OVER (ORDER BY k) AS f FROM t", "takes rows as OVER orders them"),
    ],
)
def test_what_would_be_null_or_left_out_is_refused(query: str, said: str) -> None:
    with pytest.raises(ms.QueryError, match=said):
        ms.run(query, {"t": ROWS}, time={"t": None})


def test_a_stream_whose_time_has_another_name_in_from_has_its_window() -> None:
    stream = {"A": pa.table({"ts": [1, 2], "k": [3, 4]})}
    renamed, plain = "SELECT b FROM A [RANGE 5] AS x(a, b)", "SELECT k AS b FROM A [RANGE 5]"
    assert ms.snapshot_equal(ms.run(renamed, stream), ms.reference(plain, stream))


@pytest.mark.parametrize("aggregate", ["array_agg", "first", "last", "any_value"])
def test_durations_are_gathered(aggregate: str) -> None:
    stream = {"A": pa.table({"ts": [1, 2], "v": pa.array([5, 3], pa.duration("us"))})}
    query = f"SELECT {aggregate}(v) AS it FROM A [RANGE 5]"
    assert ms.snapshot_equal(ms.run(query, stream), ms.reference(query, stream))


def test_a_value_that_duckdb_does_not_know_is_refused() -> None:
    stream = {"A": pa.table({"ts": [1], "v": pa.array([1], pa.decimal256(50, 2))})}
    with pytest.raises(ms.QueryError, match="array_agg does not take"):
        ms.run("SELECT array_agg(v) AS it FROM A [RANGE 5]", stream)
