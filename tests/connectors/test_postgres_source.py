"""The changes of a table of PostgreSQL: each once, also while clients and servers are killed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any

import pytest
from tests.connectors.killed_jobs import killed
from tests.connectors.postgres_server import Server, postgres_server

from midstream import api
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.sources import Source, connect
from midstream.connectors.connected import Connected
from midstream.errors import JobError
from midstream.testing import check_source

pytest.importorskip("psycopg", reason="the package psycopg is not installed: pip install 'midstream[postgres]'")

SCHEMA = "id BIGINT, name STRING, change STRING"
TABLES = count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server() as made:
        yield made


@pytest.fixture
def table(server: Server) -> str:
    name = f"t{next(TABLES)}"
    server.run(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, name TEXT, ok BOOLEAN, raw BYTEA, at TIMESTAMPTZ)")
    return name


def source_of(server: Server, table: str, schema: str = SCHEMA) -> Source:
    return connect("postgres", url=server.url, table=table, schema=schema)


def changes_of(source: Source, starts: Mapping[str, Any]) -> list[dict[str, Any]]:
    stream = Connected("s", source)
    return [row for span in stream.waiting(starts) for row in stream.rows(span).drop_columns(["#bad"]).to_pylist()]


def worked_through(checkpoint: Any, source: Source) -> None:
    with CheckpointSession(checkpoint=str(checkpoint), on="local") as session:
        session.open_stream("s", source, columns=["id", "id AS ts"], options={"maxRowsPerTrigger": "8"}, lateness=1000)
        session.query("q", "SELECT id FROM s [UNBOUNDED]")
        session.start("available")
        session.wait()


def test_the_changes_of_a_table_hold_the_law_of_sources(server, table):
    source_of(server, table).partitions()  # from then on, changes count
    ids = count()

    def write(number: int) -> Iterable[Mapping[str, Any]]:
        new = [next(ids) for _ in range(number)]
        for start in range(0, number, 7):  # transactions are read as a whole
            some = new[start : start + 7]
            server.run(*(f"INSERT INTO {table} VALUES ({n}, 'x')" for n in some))
        return [{"id": n, "name": "x", "change": "insert"} for n in new]

    check_source(lambda: source_of(server, table), write)


def test_changes_have_the_new_row_or_what_is_known_of_the_old_one(server, table):
    source = source_of(server, table, "id BIGINT, name STRING, ok BOOLEAN, raw BINARY, at TIMESTAMP, change STRING")
    starts = source.partitions()
    long = "long" * 5000
    server.run(
        f"INSERT INTO {table} VALUES (1, 'ü', true, '\\x00ff', '2024-05-01 12:00:00+02')",
        f"UPDATE {table} SET name = NULL, ok = false",
        f"DELETE FROM {table}",
    )
    inserted, updated, removed = changes_of(source, starts)
    assert (inserted["name"], inserted["ok"], inserted["raw"]) == ("ü", True, b"\x00\xff")
    assert inserted["at"].isoformat() == "2024-05-01T10:00:00+00:00"
    assert (updated["name"], updated["ok"], updated["change"]) == (None, False, "update")
    assert removed == {"id": 1, "name": None, "ok": None, "raw": None, "at": None, "change": "delete"}
    server.run(f"ALTER TABLE {table} ALTER name SET STORAGE EXTERNAL", f"INSERT INTO {table} VALUES (2, '{long}')")
    server.run(f"UPDATE {table} SET ok = true")
    with pytest.raises(JobError, match="do not have name, which is stored apart and was not changed"):
        changes_of(source, starts)
    before = source.end("changes", starts["changes"])
    server.run(f"UPDATE {table} SET id = 3")  # what is known of the old row is its key only
    with pytest.raises(JobError, match="do not have name, which is stored apart and was not changed"):
        changes_of(source, {"changes": before})
    server.run(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    later = source.end("changes", starts["changes"])
    server.run(f"UPDATE {table} SET ok = false", f"TRUNCATE {table}")
    updated, *_ = changes_of(source, {"changes": later})
    assert (updated["name"], updated["ok"]) == (long, False)


def test_columns_are_those_of_the_table_when_it_was_changed(server, table):
    source = source_of(server, table, "id BIGINT, name STRING, more BIGINT, change STRING")
    starts = source.partitions()
    server.run(f"INSERT INTO {table} VALUES (1, 'a'), (2, '')", f"ALTER TABLE {table} ADD more INT DEFAULT 7")
    server.run(f"INSERT INTO {table} VALUES (3, 'c')", f"ALTER TABLE {table} DROP name", f"DELETE FROM {table}")
    inserted = [
        (row["id"], row["name"], row["more"]) for row in changes_of(source, starts) if row["change"] == "insert"
    ]
    assert inserted == [(1, "a", None), (2, "", None), (3, "c", 7)]


def test_a_slot_that_was_dropped_or_read_by_another_job_is_refused(server, table, tmp_path):
    source = source_of(server, table)
    source.partitions()
    server.run(f"INSERT INTO {table} VALUES (1)")
    worked_through(tmp_path / "first", source)
    server.run(f"INSERT INTO {table} VALUES (2)")
    with pytest.raises(JobError, match="cannot be read from 0/1 on\n  detail: slot midstream_.* another job reads it"):
        source.require({"changes": 1})
    server.run(f"SELECT pg_drop_replication_slot('midstream_{table}')")
    with pytest.raises(JobError, match="it was dropped or made again, or another job reads it"):
        worked_through(tmp_path / "first", source_of(server, table))


def test_with_a_snapshot_the_rows_before_and_the_changes_after_are_each_read_once(server, table, tmp_path):
    server.run(*(f"INSERT INTO {table} VALUES ({n}, 'before', true, '\\x0f')" for n in range(20)))
    known = {"url": server.url, "table": table, "snapshot": True}
    source = connect("postgres", **known, schema=SCHEMA + ", ok BOOLEAN, raw BINARY, changed_at TIMESTAMP")
    starts = source.partitions()
    server.run(f"INSERT INTO {table} VALUES (20, 'after')", f"DELETE FROM {table} WHERE id < 3")
    assert {part: source.lag(part, start) for part, start in starts.items()} == {"rows": 20, "changes": 4}
    rows = changes_of(source, starts)
    assert [row["id"] for row in rows if row["change"] == "insert"] == list(range(21))
    assert [row["id"] for row in rows if row["change"] == "delete"] == [0, 1, 2]
    assert (rows[0]["name"], rows[0]["ok"], rows[0]["raw"]) == ("before", True, b"\x0f") and rows[0]["changed_at"]
    worked_through(tmp_path / "checkpoint", connect("postgres", **known, schema=SCHEMA))
    assert api.open(tmp_path / "checkpoint").manifest.streams.rows["s"] == 24
    assert not server.rows(f"midstream_{table}_rows")  # their space is given back
    worked_through(tmp_path / "checkpoint", connect("postgres", **known, schema=SCHEMA))
    assert api.open(tmp_path / "checkpoint").manifest.streams.rows["s"] == 24
    server.run(f"DROP TABLE midstream_{table}_rows")
    with pytest.raises(JobError, match=f"postgres table {table} was not copied when slot midstream_{table} was made"):
        connect("postgres", **known, schema=SCHEMA).partitions()


def test_a_table_that_was_made_again_or_is_not_published_is_refused(server, table, tmp_path):
    source = source_of(server, table)
    source.partitions()
    server.run(f"INSERT INTO {table} VALUES (1)")
    worked_through(tmp_path / "checkpoint", source)
    server.run(f"DROP TABLE {table}", f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, name TEXT)")
    with pytest.raises(JobError, match=f"publication midstream_{table} does not have the table"):
        source.end("changes", source.partitions()["changes"])
    with pytest.raises(
        JobError, match=r"cannot go on from changes of postgres table t\d+ \[server \d+, table \d+\]"
    ) as raised:
        worked_through(tmp_path / "checkpoint", source)
    assert raised.value.detail is not None and "was made again, or is on another server" in raised.value.detail
    server.run(f"DROP TABLE {table}")
    with pytest.raises(JobError, match=f"postgres table {table} is not there"):
        worked_through(tmp_path / "checkpoint", source)


@pytest.mark.slow
def test_a_job_that_is_killed_again_and_again_has_each_change_once(server, table, tmp_path):
    declared = f'kind = "postgres", url = "{server.url}", table = "{table}"'
    source = f'source = {{ {declared} }}\nschema = "id BIGINT, name STRING"\ncolumns = ["id", "id AS ts"]'
    source_of(server, table).partitions()
    killed(tmp_path, source, lambda n: server.run(f"INSERT INTO {table} VALUES ({n})"), kills=5)
