"""Targets of a query that has other columns than before: new ones are added, other types are refused, by name."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.connectors.postgres_server import postgres_server
from typer.testing import CliRunner

from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.sinks import Delivery, connect
from midstream.connectors.sink import deliver
from midstream.errors import JobError
from midstream.interface.cli import app

BEFORE = pa.table({"k": [1], "old": ["a"], "valid_from": [1], "valid_to": [9]})
AFTER = pa.table({"k": [2], "new": [[2.5]], "valid_from": [3], "valid_to": [9]})
WANTED = [(1, "a", None), (2, None, 2.5)]


def delivery(table: pa.Table, identity: str) -> Delivery:
    return Delivery("q", identity, "c", "h", 3, 0, 10, table.schema)


def changed(make_sink: Any) -> None:
    for identity, table in (("first", BEFORE), ("second", AFTER.set_column(1, "new", pa.array([2.5])))):
        for _ in range(2):
            deliver(make_sink(), table, delivery(table, identity))


def found(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["k"], row["old"], row["new"]) for row in rows)


def test_a_sqlite_and_a_duckdb_table_follow_a_changed_query(tmp_path):
    import duckdb

    changed(lambda: connect("sqlite", path=str(tmp_path / "out.db"), table="t"))
    with closing(sqlite3.connect(tmp_path / "out.db")) as connection:
        assert sorted(connection.execute("SELECT k, old, new FROM t")) == WANTED
    changed(lambda: connect("duckdb", path=str(tmp_path / "out.duckdb"), table="t"))
    with duckdb.connect(str(tmp_path / "out.duckdb")) as other:
        assert sorted(other.execute("SELECT k, old, new FROM t").fetchall()) == WANTED


def test_a_postgres_table_follows_a_changed_query():
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'midstream[postgres]'")
    with postgres_server() as server:
        changed(lambda: connect("postgres", url=server.url, table="t"))
        assert found(server.rows("t")) == WANTED


def test_a_delta_table_follows_a_changed_query(tmp_path):
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'midstream[delta]'")
    changed(lambda: connect("delta", path=str(tmp_path)))
    assert found(deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist()) == WANTED


def test_an_iceberg_table_follows_a_changed_query_also_one_with_partitions(tmp_path):
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install 'midstream[iceberg]'")
    from pyiceberg.catalog import load_catalog
    from pyiceberg.transforms import IdentityTransform

    known = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    catalog = load_catalog("default", **known)
    catalog.create_namespace("a")
    with catalog.create_table("a.parts", BEFORE.schema).update_spec() as spec:
        spec.add_field("k", IdentityTransform(), "k_part")
    for name in ("a.plain", "a.parts"):
        changed(lambda name=name: connect("iceberg", catalog=known, table=name))
        table = catalog.load_table(name)
        assert found(table.scan().to_arrow().to_pylist()) == WANTED
        assert found(table.scan(row_filter="k = 2").to_arrow().to_pylist()) == WANTED[1:]


def run(tmp_path: Path, cql: str, sink: Any, *rows: int) -> None:
    with CheckpointSession(checkpoint=str(tmp_path / "checkpoint"), on="local") as session:
        schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
        session.stream("A", schema)
        session.query("q", cql, replace=True)
        session.sink("q", sink)
        session.start()
        session.push("A", pa.table({"ts": [10 * k for k in rows], "k": list(rows)}, schema=schema))


@pytest.mark.parametrize("kind", ["sqlite", "folder"])
def test_a_column_of_another_type_is_refused_by_name_before_anything_is_written(kind, tmp_path):
    known = {"path": str(tmp_path / "out"), **({"table": "t"} if kind == "sqlite" else {})}
    run(tmp_path, "SELECT k AS x FROM A [NOW]", connect(kind, **known), 1, 2, 3)
    before = sorted(tmp_path.joinpath("out").iterdir()) if kind == "folder" else None
    with pytest.raises(JobError, match=r"has column x of query q as int64"):
        run(tmp_path, "SELECT k / 2.5 AS x FROM A [NOW]", connect(kind, **known), 300, 400)
    if kind == "folder":
        assert before == sorted(tmp_path.joinpath("out").iterdir())
        assert pq.read_table(tmp_path / "out")["x"].to_pylist() == [1, 2]


def test_a_column_that_a_text_left_out_does_not_come_back_as_another_type(tmp_path):
    sink = connect("sqlite", path=str(tmp_path / "out.db"), table="t")
    run(tmp_path, "SELECT k AS x, k AS y FROM A [NOW]", sink, 1, 2)
    run(tmp_path, "SELECT k AS y FROM A [NOW]", sink, 3, 4)
    with pytest.raises(JobError, match=r"has column x of query q as int64"):
        run(tmp_path, "SELECT k / 2.5 AS x FROM A [NOW]", sink, 300, 400)


@pytest.mark.parametrize(
    ("options", "cql", "why"),
    [
        ({}, "SELECT ISTREAM k FROM A [RANGE 60]", "with valid_from and valid_to"),
        ({"form": "current"}, "SELECT ISTREAM k FROM A [RANGE 60]", "gives a stream, which has no form"),
        ({"form": "current", "key": ["k"]}, "SELECT COUNT(*) AS n FROM A [RANGE 60]", "names k, which is no column"),
        ({}, 'SELECT k, COUNT(*) AS "K" FROM A [RANGE 60] GROUP BY k', "two columns named k"),
    ],
)
def test_a_text_that_a_sink_cannot_take_is_refused_before_it_takes_the_place(options, cql, why, tmp_path):
    session = CheckpointSession(checkpoint=str(tmp_path / "checkpoint"), on="local")
    session.stream("A", pa.schema([("ts", pa.int64()), ("k", pa.int64())]))
    session.query("q", "SELECT k, COUNT(*) AS n FROM A [RANGE 60] GROUP BY k")
    session.sink("q", connect("sqlite", path=str(tmp_path / "out.db"), table="t", **options))
    session.start()
    for ts in range(9):
        session.push("A", [{"ts": ts, "k": 1}])
    for dry_run in (True, False):
        with pytest.raises(JobError, match=why):
            session.replace("q", cql, dry_run=dry_run)
    session.push("A", [{"ts": ts, "k": 1} for ts in range(9, 20)])
    session.finish()
    session.stop()


def test_a_text_is_refused_whose_rows_a_table_could_not_have_after_those_that_the_old_one_gives_until_then(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("midstream.job.queries.filling.LEAST_WORK", 4)
    monkeypatch.setattr("midstream.job.queries.filling.SHARE", 0)
    session = CheckpointSession(checkpoint=str(tmp_path / "checkpoint"), on="local")
    for name in "AB":
        session.stream(name, pa.schema([("ts", pa.int64()), ("k", pa.int64())]))
    session.query("q", "SELECT A.k FROM A [RANGE 60], B [RANGE 60] WHERE A.k = B.k")
    session.sink("q", connect("sqlite", path=str(tmp_path / "out.db"), table="t"))
    session.start()
    session.push("A", [{"ts": ts, "k": 1} for ts in range(20)])  # nothing is released before B has rows
    for dry_run in (True, False):
        for cql, why in (
            ("SELECT ISTREAM k FROM A [RANGE 50]", "has results of query q with valid_from and valid_to"),
            ("SELECT k / 2.5 AS k, COUNT(*) AS n FROM A [RANGE 50] GROUP BY k", "has column k of query q as int64"),
        ):
            with pytest.raises(JobError, match=why):
                session.replace("q", cql, dry_run=dry_run)
    for ts in range(20, 60, 5):
        session.push({name: [{"ts": ts, "k": 1}] for name in "AB"})
    session.finish()
    session.stop()
    with closing(sqlite3.connect(tmp_path / "out.db")) as connection:
        assert connection.execute("SELECT COUNT(*) FROM t").fetchone()[0]


def test_rows_that_a_target_refuses_are_dead_letters_of_the_job(tmp_path):
    path = tmp_path / "out.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (k BIGINT CHECK (k NOT IN (2, 40)), valid_from BIGINT, valid_to BIGINT)")
        connection.commit()
    for numbers in ((1, 2, 3), (40,), (41,), (42,)):
        run(
            tmp_path,
            "SELECT k FROM A [NOW]",
            connect("sqlite", path=str(path), table="t", on_bad="dead_letter"),
            *numbers,
        )
    with closing(sqlite3.connect(path)) as connection:
        assert set(connection.execute("SELECT k FROM t")) >= {(1,), (3,), (41,)}
    answer = CliRunner().invoke(app, ["dead", str(tmp_path / "checkpoint"), "--json"])
    letters = [one for one in json.loads(answer.stdout)["letters"] if one["stream"] == "q to sqlite table t"]
    assert [one["row"]["k"] for one in letters] == [2, 40] and "CHECK" in letters[0]["reason"]
