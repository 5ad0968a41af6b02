"""Sessions in this process on a checkpoint: exactly once, resumable, and the same answers as the oracle gives."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.processes import forked

import midstream as ms
from midstream.cluster.checkpoint_session import CheckpointSession

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
JOIN = "SELECT A.k, A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k"
QUERIES = {
    "join": JOIN,
    "groups": "SELECT k, count(*) AS n, sum(v) AS s FROM A [RANGE 30] GROUP BY k",
    "distinct": "SELECT DISTINCT k FROM B [RANGE 10]",
    "hops": "SELECT k, max(v) AS m FROM B [HOP 20, 10] GROUP BY k",
}


def drawn(seed: int, first: int, rows: int = 30, length: int = 40) -> pa.Table:
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(first, first + length, rows))
    return pa.table({"ts": times, "k": random.integers(0, 6, rows), "v": random.integers(0, 9, rows)}, schema=SCHEMA)


def opened(folder: Path, **options: Any) -> CheckpointSession:
    session = CheckpointSession(checkpoint=str(folder), on="local", **options)
    session.stream("A", SCHEMA).stream("B", SCHEMA)
    for name, cql in QUERIES.items():
        session.query(name, cql)
    return session


def expect(session: CheckpointSession, inputs: dict[str, pa.Table]) -> None:
    for name, cql in QUERIES.items():
        assert ms.snapshot_equal(session.queries[name].table(), ms.reference(cql, inputs)), name


@pytest.mark.parametrize("slots", [1, 3])
def test_pushed_rows_are_answered_as_the_oracle_does_across_restarts(tmp_path, slots):
    parts = {name: [drawn(seed * 10 + i, i * 40) for i in range(6)] for seed, name in enumerate("AB")}
    for start in (0, 2, 4):
        with opened(tmp_path, slots=slots) as session:
            session.start()
            for i in (start, start + 1):
                session.push({name: parts[name][i] for name in "AB"})
            if start == 4:
                session.finish()
                expect(session, {name: pa.concat_tables(parts[name]) for name in "AB"})


@pytest.mark.parametrize("strategy", ["moving_state", "genmig", "parallel_track", "auto"])
def test_a_migration_goes_on_after_a_restart(tmp_path, strategy):
    cql = "SELECT A.k FROM A [RANGE 30], B [RANGE 30], C [RANGE 30] WHERE A.k = B.k AND B.k = C.k"
    parts = {name: [drawn(ord(name) + i, i * 20, 12, 20) for i in range(8)] for name in "ABC"}

    def session() -> CheckpointSession:
        made = CheckpointSession(checkpoint=str(tmp_path), on="local", slots=2)
        for name in "ABC":
            made.stream(name, SCHEMA)
        made.query("q", cql, plan="((A B) C)")
        made.start()
        return made

    for i in range(8):
        with session() as running:
            if i == 3:
                running.queries["q"].migrate("(A (B C))", strategy)
            running.push({name: parts[name][i] for name in "ABC"})
            if i == 7:
                running.finish()
                query = running.queries["q"]
                assert query.plan.text == "(A (B C))"
                assert query.history[-1].status == "done"
                inputs = {name: pa.concat_tables(parts[name]) for name in "ABC"}
                assert ms.snapshot_equal(query.table(), ms.reference(cql, inputs))


def folders(base: Path) -> dict[str, Path]:
    found = {name: base / name for name in "AB"}
    for folder in found.values():
        folder.mkdir(parents=True, exist_ok=True)
    return found


def put(folder: Path, number: int, table: pa.Table) -> None:
    draft = folder / f".{number}"
    pq.write_table(table, draft)
    os.utime(draft, ns=(number * 10**9, number * 10**9))
    draft.rename(folder / f"{number:04d}.parquet")


def reading(base: Path, most: int = 1) -> CheckpointSession:
    session = CheckpointSession(checkpoint=str(base / "checkpoint"), on="local")
    for name, folder in folders(base).items():
        session.open_stream(
            name,
            "parquet",
            path=str(folder),
            schema="ts BIGINT, k BIGINT, v BIGINT",
            options={"maxFilesPerTrigger": str(most)},
        )
    for name, cql in QUERIES.items():
        session.query(name, cql)
    return session


def test_files_of_growing_folders_are_read_once(tmp_path):
    parts = {name: [drawn(ord(name) * 7 + i, i * 40) for i in range(6)] for name in "AB"}
    for upto in (2, 3, 6):
        for name, folder in folders(tmp_path).items():
            for i in range(upto):
                if not (folder / f"{i:04d}.parquet").exists():
                    put(folder, i, parts[name][i])
        with reading(tmp_path) as session:
            session.process_available()
            session.process_available()
            if upto == 6:
                session.finish()
                expect(session, {name: pa.concat_tables(parts[name]) for name in "AB"})
                manifest = session._job.manifest
                assert manifest is not None
                assert {name: log.count for name, log in manifest.streams.files.items()} == {"A": 6, "B": 6}


def test_a_file_that_changed_after_it_was_read_is_named(tmp_path):
    folder = folders(tmp_path)["A"]
    put(folder, 0, drawn(1, 0))
    with reading(tmp_path) as session:
        session.process_available()
    put(folder, 0, drawn(1, 0, rows=300))
    with pytest.raises(ms.JobError, match="has changed since it was read"), reading(tmp_path) as session:
        session.process_available()


def test_csv_and_json_lines_have_the_columns_of_the_schema(tmp_path):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "1.csv").write_text("5,2024-01-01T00:00:00Z\n,2024-01-01T00:00:02\n")
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / "1.json").write_text(
        "".join(json.dumps(row) + "\n" for row in ({"k": 5, "at": "2024-01-01 00:00:01", "more": 1}, {"k": None}))
    )
    with CheckpointSession(checkpoint=str(tmp_path / "checkpoint"), on="local") as session:
        session.open_stream("C", "csv", path=str(tmp_path / "c"), schema="k BIGINT, ts TIMESTAMP")
        columns = ["k + 1 AS k", "at AS ts"]
        schema = "k BIGINT, at TIMESTAMP"
        session.open_stream("J", "json", path=str(tmp_path / "j"), schema=schema, columns=columns)
        session.query("q", "SELECT C.k AS c, J.k AS j FROM C [RANGE 1 MINUTE], J [RANGE 1 MINUTE]")
        session.process_available()
        session.finish()
        rows = session.queries["q"].table().to_pylist()
        assert sorted((row["c"] or 0, row["j"]) for row in rows) == [(0, 6), (5, 6)]
        assert session.dead_letters().column("reason").to_pylist() == ["null time"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "kafka"}, "cannot be read in this process"),
        ({"schema": "ts BIGNT"}, "there is no type BIGNT"),
        ({"path": "/nowhere"}, "there is no folder"),
        ({"options": {"maxFilesPerTriger": "1"}}, "mean nothing for"),
        ({"columns": ["nothing AS k"]}, "cannot be computed"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused_by_name(tmp_path, options, message):
    (tmp_path / "in").mkdir()
    known = {"format": "parquet", "path": str(tmp_path / "in"), "schema": "ts BIGINT, k BIGINT"}
    session = CheckpointSession(checkpoint=str(tmp_path / "checkpoint"), on="local")
    with pytest.raises(ms.InputError, match=message):
        session.open_stream("A", **{**known, **options})


def test_an_unknown_cluster_is_refused(tmp_path):
    with pytest.raises(ms.InputError, match="cannot run on 'yarn'"):
        CheckpointSession(checkpoint=str(tmp_path), on="yarn")


def read_all(folder: Path) -> None:
    with reading(folder) as session:
        session.process_available()


@pytest.mark.parametrize(
    "point",
    [
        "manifest.after_rename",
        pytest.param("manifest.before_write", marks=pytest.mark.slow),
        pytest.param("commit.before_sync", marks=pytest.mark.slow),
    ],
)
def test_a_killed_session_goes_on_without_losing_or_doubling_a_file(tmp_path, point):
    parts = {name: [drawn(ord(name) * 3 + i, i * 40) for i in range(4)] for name in "AB"}
    for name, folder in folders(tmp_path).items():
        for i, part in enumerate(parts[name]):
            put(folder, i, part)
    for _ in range(2):
        assert forked(read_all, tmp_path, MIDSTREAM_CRASH_AT=f"{point}:2") == -signal.SIGKILL
    assert forked(read_all, tmp_path) == 0
    with reading(tmp_path) as session:
        session.process_available()
        session.finish()
        expect(session, {name: pa.concat_tables(parts[name]) for name in "AB"})
