"""ORDER BY without LIMIT sorts a result that is read as a whole, as DuckDB does."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import midstream as ms

A = pa.table(
    {"ts": [1, 2, 3, 4, 5], "k": [2, None, 1, 2, 3], "v": [1.5, 2.5, None, 0.5, 2.5], "s": ["b", "a", "c", "a", None]}
)
ORDERS = (
    "SELECT k, v FROM A ORDER BY v DESC, k",
    "SELECT k, v FROM A ORDER BY 1 NULLS FIRST, 2 DESC",
    "SELECT k AS a, v + 1 AS b FROM A ORDER BY b DESC NULLS LAST, a DESC",
    "SELECT A.k, A.s FROM A ORDER BY A.s NULLS FIRST, A.k",
    "SELECT k, v FROM A ORDER BY k * 2 - v, k",
    "SELECT k + 1 AS x, v FROM A ORDER BY k + 1, v",
    "SELECT s, count(*) AS n FROM A GROUP BY s ORDER BY n DESC, s",
    "SELECT k, s FROM A ORDER BY ALL",
    "SELECT k FROM A UNION ALL SELECT ts FROM A ORDER BY k DESC",
    "SELECT k AS v, v AS k FROM A ORDER BY k, v",
    "SELECT A.k, B.k FROM A, A AS B ORDER BY B.k, A.k, A.v + B.v DESC, A.s, B.s",
    "SELECT s FROM A GROUP BY s ORDER BY max(v) DESC, s",
    "SELECT k FROM A ORDER BY row_number() OVER (ORDER BY v DESC, ts)",
    "SELECT s, sum(v) AS total FROM A GROUP BY ROLLUP (s) ORDER BY grouping(s), max(k), s",
    "SELECT k FROM A ORDER BY [v, k], ts",
)


@pytest.mark.parametrize("query", ORDERS)
def test_a_result_read_as_a_whole_is_in_the_order_of_the_query(query: str) -> None:
    connection = duckdb.connect()
    connection.register("A", A)
    found = ms.run(
        query.replace("FROM A", "FROM A [UNBOUNDED]").replace(", A AS B", ", A [UNBOUNDED] AS B"), {"A": A}
    ).to_pylist()
    last = [tuple(row.values())[:-2] for row in found if row["valid_to"] is None]
    assert last == connection.sql(query).fetchall()


def test_a_result_is_ordered_by_what_it_does_not_have() -> None:
    assert ms.run("SELECT k FROM A [UNBOUNDED] ORDER BY v, s", {"A": A})["k"].to_pylist() == [2, 2, None, 3, 1]
    with pytest.raises(ms.QueryError, match="a distinct result can only be ordered by what it selects"):
        ms.run("SELECT DISTINCT k FROM A [UNBOUNDED] ORDER BY v", {"A": A})


def test_stored_results_are_read_in_the_order_of_their_query(tmp_path: object) -> None:
    checkpoint = str(tmp_path)
    with ms.Session(on="local", checkpoint=checkpoint) as session:
        session.stream("A", A.schema, time="ts")
        session.query("high", "SELECT k, v FROM A [UNBOUNDED] ORDER BY v DESC, k")
        session.start()
        session.push("A", A)
        session.finish()
    assert ms.read_results(checkpoint, "high")["v"].to_pylist() == [2.5, 2.5, 1.5, 0.5, None]
