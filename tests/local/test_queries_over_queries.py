"""A query may read another of its job: it means what it means with the other's text in parentheses."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import midstream as ms
from midstream.inputs.tables import table_view
from midstream.interface.cli.run import carry_out
from midstream.interface.jobs.job_file import job_of
from midstream.language.over_queries import with_queries

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
    views = {"prices": table_view("prices", ["id"], "upserts", "op")}
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


def test_a_session_reads_the_table_of_a_stream_by_its_name_without_a_window() -> None:
    with ms.Session() as session:
        session.stream("prices", CHANGES.schema).table("prices", key=["id"], op="op")
        query = session.query("all", "SELECT id, price FROM prices")
        session.push("prices", CHANGES)
        session.finish()
        wanted = with_queries("SELECT id, price FROM prices", {"prices": table_view("prices", ["id"], "upserts", "op")})
        assert ms.snapshot_equal(query.results(), ms.reference(wanted, {"prices": CHANGES}))
        with pytest.raises(ms.InputError, match="table prices needs a key"):
            session.table("prices")


def test_a_job_file_declares_tables_by_what_comes(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = [("1", "a", "insert", 1), ("2", "b", "insert", 2), ("1", "c", "update", 3), ("2", "b", "delete", 4)]
    lines = [f'{{"id": {id}, "name": "{name}", "change": "{op}", "changed_at": {at}}}' for id, name, op, at in rows]
    (tmp_path / "in" / "1.json").write_text("\n".join(lines))
    table = {"format": "json", "path": "in", "schema": "id BIGINT, name STRING, change STRING, changed_at BIGINT"}
    changes = {"kept": {"time": "changed_at"}, "newest": {"key": "id", "time": "changed_at"}}
    changes["present"] = {"key": ["id"], "changes": "debezium"}  # type: ignore[dict-item]
    job = job_of(
        {
            "job": {"checkpoint": "c", "on": "local"},
            "tables": {name: {**table, **more} for name, more in changes.items()},
            "queries": {f"of_{name}": {"cql": f"SELECT id, name FROM {name}"} for name in changes},
        },
        tmp_path,
    )
    carry_out(job, available=True, finish=True)
    found = {name: ms.read_results(job.checkpoint, f"of_{name}") for name in changes}
    now = {
        name: table.filter(table["valid_to"].is_null()).drop_columns(["valid_from", "valid_to"])
        for name, table in found.items()
    }
    assert {name: sorted(zip(*table.to_pydict().values(), strict=True)) for name, table in now.items()} == {
        "kept": [(1, "a"), (1, "c"), (2, "b"), (2, "b")],
        "newest": [(1, "c"), (2, "b")],
        "present": [(1, "c")],
    }


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"changes": "upserts"}, "table A needs a key"),
        ({"changes": "deltas"}, "tables.A.changes cannot be"),
        ({"op": "op"}, "table A has a column op of changes, and its rows are none"),
    ],
)
def test_a_table_that_is_declared_wrongly_is_refused_by_name(more, said, tmp_path: Path) -> None:
    table = {"format": "json", "path": "a", "schema": "ts BIGINT, id BIGINT, op STRING"}
    with pytest.raises(ms.MidstreamError, match=said):
        job_of({"job": {"checkpoint": "c"}, "tables": {"A": {**table, **more}}}, tmp_path)
    with pytest.raises(ms.JobError, match="A is the name of a stream and of a table"):
        job_of({"job": {"checkpoint": "c"}, "streams": {"A": table}, "tables": {"A": {**table, "key": "id"}}}, tmp_path)
