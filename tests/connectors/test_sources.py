"""Sources hold one law, and a job takes in each of their rows once; their peculiarities are tested besides."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from midstream import api
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.local import readings
from midstream.cluster.sources import Position, Positions, Source, connect
from midstream.errors import InputError, JobError
from midstream.interface.cli.run import carry_out
from midstream.interface.jobs.checking import mistakes_of
from midstream.interface.jobs.job_file import read_job
from midstream.interface.status_text import status_text
from midstream.testing import assert_survives_crashes, check_source

SCHEMA = "id BIGINT, name STRING, ts BIGINT"


def made(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (id, name, ts)")
    return path


def add(path: Path, *rows: tuple[object, ...]) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        connection.commit()


def source_of(path: Path) -> Source:
    return connect("sqlite", path=str(path), table="t", schema=SCHEMA)


def session_of(path: Path, source: Source | None = None, **settings: Any) -> CheckpointSession:
    session = CheckpointSession(checkpoint=str(path.parent / "checkpoint"), on="local")
    session.open_stream("s", source or source_of(path), **settings)
    session.query("q", "SELECT id, name FROM s [UNBOUNDED]")
    return session


def work_through(session: CheckpointSession, finish: bool = True) -> list[int]:
    with session:
        session.start("available")
        session.wait()
        session.end_available(finish)
        return sorted(row["id"] for row in session.queries["q"].results().to_pylist())


def test_what_waits_in_a_source_is_in_manifests_and_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(readings, "LAG_EVERY", -1.0)
    path = made(tmp_path / "in.db")
    add(path, *((number, "x", number) for number in range(10)))
    work_through(session_of(path, options={"maxRowsPerTrigger": "4"}), finish=False)
    job = api.open(tmp_path / "checkpoint")
    assert [job.store.read(batch).streams.lags["s"] for batch in job.batches[:3]] == [6, 2, 0]
    assert "stream s: 10 rows, 0 late, 0 unusable, 0 wait in its source" in status_text(job)


def test_a_sqlite_table_holds_the_law_of_sources(tmp_path):
    path, count = made(tmp_path / "in.db"), iter(range(1_000))

    def write(number: int) -> Iterable[Mapping[str, Any]]:
        rows = [(next(count), None, 1) for _ in range(number)]
        add(path, *rows)
        return [{"id": row[0], "name": None} for row in rows]

    check_source(lambda: source_of(path), write)


class Numbers(Source):
    """Numbers in several partitions, some of which are wrong in the way that a test is about."""

    def __init__(self, rows: dict[str, list[dict[str, Any]]], wrong: str = "") -> None:
        self.rows, self.wrong = rows, wrong
        self.committed: list[Positions] = []
        self.limits: list[int | None] = []

    name = "numbers"

    def schema(self) -> Any:
        return source_of(Path("none")).schema()

    def partitions(self) -> Positions:
        return dict.fromkeys(self.rows, 0)

    def end(self, partition: str, start: Position, limit: int | None = None) -> Position:
        assert isinstance(start, int)
        self.limits.append(limit)
        return min(len(self.rows[partition]), start + (10**9 if limit is None else limit))

    def read(self, partition: str, start: Position, end: Position) -> Any:
        assert isinstance(start, int) and isinstance(end, int)
        found = self.rows[partition][start + (self.wrong == "lost" and start > 0) : end]
        return pa.Table.from_pylist(found[: 3 if self.wrong == "cut" else None], self.schema())

    def commit(self, ends: Positions) -> None:
        self.committed.append(dict(ends))


@pytest.mark.parametrize("wrong", ["", "lost", "cut"])
def test_a_source_that_loses_rows_fails_the_law(wrong):
    rows: dict[str, list[dict[str, Any]]] = {"a": [], "b": []}

    def write(number: int) -> Iterable[Mapping[str, Any]]:
        new = [{"id": len(rows["a"]) + len(rows["b"]) + n, "name": "x", "ts": n} for n in range(number)]
        rows["a"] += new[::2]
        rows["b"] += new[1::2]
        return new

    if not wrong:
        check_source(lambda: Numbers(rows), write)
        return
    with pytest.raises(AssertionError):
        check_source(lambda: Numbers(rows, wrong), write)


def test_a_job_that_comes_back_goes_on_behind_the_rows_that_it_has_had(tmp_path):
    path = made(tmp_path / "in.db")
    add(path, (1, "a", 1), (2, "b", 2))
    work_through(session_of(path), finish=False)
    work_through(session_of(path), finish=False)
    add(path, (3, "c", 3))
    assert work_through(session_of(path)) == [1, 2, 3]


def test_a_job_that_is_killed_has_each_row_once(tmp_path):
    path = made(tmp_path / "in.db")
    add(path, *((n, "x", n) for n in range(30)))

    def job(checkpoint: Path) -> None:
        session = CheckpointSession(checkpoint=str(checkpoint), on="local")
        session.open_stream("s", source_of(path), options={"maxRowsPerTrigger": "8"})
        session.query("q", "SELECT id FROM s [UNBOUNDED]")
        with session:
            session.start("available")
            session.wait()
            session.end_available(finish=True)

    points = ["results.within_write", "manifest.before_write", "manifest.after_rename", "manifest.after_rename:2"]
    assert assert_survives_crashes(job, tmp_path / "runs", points=points) == points
    assert api.open(tmp_path / "runs" / "whole").results("q").num_rows == 30


def test_a_batch_takes_no_more_rows_than_it_may_and_a_slow_partition_makes_no_row_late(tmp_path):
    rows: dict[str, list[dict[str, Any]]] = {"a": [{"id": n, "name": "a", "ts": 100 * n} for n in range(9)]}
    rows["b"] = [{"id": 100 + n, "name": "b", "ts": n} for n in range(30)]
    source = Numbers(rows)
    session = session_of(tmp_path / "x", source, options={"maxRowsPerTrigger": "6"})
    batches: list[int] = []
    session.on_progress(lambda event: batches.append(sum(event["rows"].values())))
    assert work_through(session) == sorted(row["id"] for part in rows.values() for row in part)
    assert max(batches) == 6 and sum(batches) == 39
    assert source.committed[-1] == {"a": 9, "b": 30}


@pytest.mark.parametrize("limit", ["1", "4", "100"])
def test_rows_of_one_time_come_in_the_order_of_their_source(limit, tmp_path):
    path = made(tmp_path / "in.db")
    add(path, *((number, "x", 1) for number in (5, 1, 9, 3, 7, 2)))
    with CheckpointSession(checkpoint=str(tmp_path / "checkpoint"), on="local") as session:
        session.open_stream("s", source_of(path), options={"maxRowsPerTrigger": limit})
        session.query("q", "SELECT id FROM s [ROWS 2]")
        session.start("available")
        session.wait()
        session.end_available(True)
        assert session.queries["q"].results().column("id").to_pylist() == [2, 7]


def test_rows_that_cannot_be_read_are_dead_letters_with_their_places(tmp_path):
    path = made(tmp_path / "in.db")
    add(path, (1, "a", 1), ("one", "b", 2), (3, "c", 3))
    session = session_of(path)
    assert work_through(session) == [1, 3]
    (letter,) = api.open(tmp_path / "checkpoint").dead_letters().to_pylist()
    assert letter["reason"] == "cannot be read: id: 'one' is no int64 (table t, rowid 2)"


def test_a_table_that_was_emptied_is_refused_and_so_is_another_source(tmp_path):
    path = made(tmp_path / "in.db")
    add(path, (1, "a", 1), (2, "b", 2))
    work_through(session_of(path), finish=False)
    with pytest.raises(JobError, match="was read from sqlite table t so far and cannot go on from numbers"):
        work_through(session_of(path, Numbers({"a": []})))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM t")
        connection.commit()
    with pytest.raises(JobError, match="has rows up to number 0, and those up to 2 were read"):
        work_through(session_of(path))


def test_a_server_that_comes_back_in_time_is_no_failure(tmp_path, monkeypatch):
    monkeypatch.setattr("midstream.connectors.retrying.PAUSES", (0, 0))
    failures = [OSError("gone with s3cret"), OSError("gone"), None, OSError(), OSError(), OSError("gone for good")]

    class Away(Numbers):
        def partitions(self) -> Positions:
            failure = failures.pop(0) if failures else None
            if failure is not None:
                raise failure
            return super().partitions()

    source = Away({"a": [{"id": 1, "name": "x", "ts": 1}]})
    with pytest.raises(JobError, match="stream s cannot be read from numbers") as raised:
        work_through(session_of(tmp_path / "x", source))
    assert raised.value.detail == "OSError: gone for good"
    assert work_through(session_of(tmp_path / "x", source)) == [1]


def test_options_that_no_source_has_are_refused(tmp_path):
    with pytest.raises(InputError, match="stream s has the option maxFiles"):
        session_of(made(tmp_path / "in.db"), options={"maxFiles": "3"})
    with pytest.raises(JobError, match="the source cannot be 'sqllite': there is no such source") as raised:
        connect("sqllite")
    assert raised.value.hint == "did you mean sqlite?"


def test_a_job_file_names_a_source_and_computes_columns_of_what_it_has(tmp_path):
    add(made(tmp_path / "in.db"), (1, "a", 1), (2, "b", 2))
    (tmp_path / "job.toml").write_text(
        """[job]
checkpoint = "checkpoint"
on = "local"
[streams.s]
source = { kind = "sqlite", path = "in.db", table = "t" }
schema = "id BIGINT, name STRING, ts BIGINT"
columns = ["id * 10 AS id", "CAST(name AS BIGINT) AS number", "ts"]
[queries.q]
cql = "SELECT id FROM s [UNBOUNDED]"
"""
    )
    job = read_job(tmp_path / "job.toml")
    assert mistakes_of(job) == []
    add(tmp_path / "in.db", (3, "3", 3))
    carry_out(job, available=True, finish=True)
    stored = api.open(tmp_path / "checkpoint")
    assert stored.results("q").column("id").to_pylist() == [30]
    assert stored.dead_letters().num_rows == 2
