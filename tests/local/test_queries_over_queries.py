"""A query may read another of its job: it means what it means with the other's text in parentheses."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import midstream as ms
from midstream.interface.jobs.job_file import job_of
from midstream.language.over_queries import changelog_view, with_queries

A = pa.table({"ts": [1, 2, 3, 5, 8, 9], "k": [1, 2, 1, 2, 1, 1], "v": [3, 1, 4, 1, 5, 9]})
TOTALS = "SELECT k, sum(v) AS total FROM A [RANGE 4] GROUP BY k; "
HIGH = "SELECT k, max(total) AS most FROM totals [RANGE 3] AS t GROUP BY k"
WHOLE = HIGH.replace("totals", f"({TOTALS.rstrip(' ;')})")


def declare(session: ms.Session) -> None:
    session.stream("A", A.schema, time="ts")
    session.query("totals", TOTALS)
    session.query("high", HIGH)
    session.start()


def test_a_query_over_a_query_answers_as_over_its_text_also_when_that_is_dropped() -> None:
    with ms.Session() as session:
        declare(session)
        session.push("A", A.slice(0, 3))
        session.drop("totals")
        session.push("A", A.slice(3))
        session.finish()
        assert ms.snapshot_equal(session.queries["high"].table(), ms.reference(WHOLE, {"A": A}))


def test_a_query_over_a_query_goes_on_after_a_restart(tmp_path: Path) -> None:
    for part in (A.slice(0, 3), A.slice(3)):
        with ms.Session(on="local", checkpoint=str(tmp_path)) as session:
            declare(session)
            session.push("A", part)
            if part.equals(A.slice(3)):
                session.finish()
    assert ms.snapshot_equal(ms.read_results(str(tmp_path), "high"), ms.reference(WHOLE, {"A": A}))


def test_a_job_file_names_its_queries_in_any_order(tmp_path: Path) -> None:
    streams = {"A": {"format": "parquet", "path": "a", "schema": "ts BIGINT, k BIGINT, v BIGINT", "time": "ts"}}
    queries = {"high": {"cql": HIGH}, "totals": {"cql": TOTALS}}
    job = job_of({"job": {"checkpoint": "c"}, "streams": streams, "queries": queries}, tmp_path)
    assert [query.cql for query in job.queries] == [with_queries(HIGH, {"totals": TOTALS}), TOTALS]


def test_names_of_streams_and_of_with_come_before_those_of_queries() -> None:
    known = {"A": "SELECT 1", "b": "SELECT k FROM A"}
    assert with_queries("SELECT k FROM A", known, ["A"]) == "SELECT k FROM A"
    assert with_queries("WITH b AS (SELECT 2 AS k) SELECT k FROM b", known, ["A"]).startswith("WITH b AS")
    assert with_queries("WITH c AS (SELECT k FROM B) SELECT k FROM c", known, ["A"]) == (
        'WITH "b" AS (SELECT k FROM A\n), c AS (SELECT k FROM B) SELECT k FROM c'
    )


def test_queries_that_read_each_other_are_refused_as_unknown() -> None:
    with ms.Session() as session:
        session.stream("A", A.schema, time="ts")
        with pytest.raises(ms.QueryError, match="unknown stream later"):
            session.query("first", "SELECT k FROM later")


CHANGES = pa.table(
    {
        "ts": [1, 2, 4, 5, 6, 8],
        "id": [1, 2, 1, 1, 2, 2],
        "op": ["c", "r", "-U", "u", "d", "c"],
        "price": [5, 7, 5, 6, None, 9],
    }
)
ORDERS = pa.table({"ts": [1, 3, 5, 7, 9], "item": [1, 2, 1, 2, 2]})
LOOKED_UP = "SELECT o.item, p.price FROM orders AS o LEFT JOIN {} FOR SYSTEM_TIME AS OF o.ts AS p ON o.item = p.id"


def test_a_changelog_is_the_table_it_describes_and_its_deletions_count() -> None:
    inputs = {"prices": CHANGES, "orders": ORDERS}
    views = {"prices": changelog_view("prices", ["id"], "op")}
    table = with_queries("SELECT * EXCLUDE (ts) FROM prices", views)
    found = ms.run(table, inputs).to_pylist()
    assert [(row["id"], row["price"], row["valid_from"], row["valid_to"]) for row in found] == [
        (1, 5, 1, 5),
        (2, 7, 2, 6),
        (1, 6, 5, None),
        (2, 9, 8, None),
    ]
    query = with_queries(LOOKED_UP.format("prices"), views)
    found = ms.run(query, inputs, batch_rows=2)
    assert found["price"].to_pylist() == [5, 7, 6, None, 9]
    assert ms.snapshot_equal(found, ms.reference(query, inputs))


def test_versions_of_a_plain_stream_are_told_apart_by_what_is_compared() -> None:
    inputs = {"prices": CHANGES, "orders": ORDERS}
    assert ms.run(LOOKED_UP.format("prices"), inputs)["price"].to_pylist() == [5, 7, 6, None, 9]
    with pytest.raises(ms.QueryError, match="at the time of what they are joined with"):
        ms.run(LOOKED_UP.format("prices").replace("o.ts", "o.item"), inputs)


def test_a_job_file_declares_a_changelog(tmp_path: Path) -> None:
    stream = {
        "format": "json",
        "path": "a",
        "schema": "ts BIGINT, id BIGINT, op STRING",
        "kind": "changelog",
        "key": "id",
    }
    queries = {"all": {"cql": "SELECT id FROM A"}}
    job = job_of({"job": {"checkpoint": "c"}, "streams": {"A": {**stream, "op": "op"}}, "queries": queries}, tmp_path)
    assert job.queries[0].cql == with_queries("SELECT id FROM A", {"A": changelog_view("A", ["id"], "op")})
    with pytest.raises(ms.JobError, match="changelog"):
        job_of({"job": {"checkpoint": "c"}, "streams": {"A": {**stream, "kind": "rows"}}, "queries": queries}, tmp_path)
