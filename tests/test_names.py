"""One rule of names at every door: programs, job files, the shell, and requests to a running job."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import midstream as ms
from midstream.algebra.names import LONGEST
from midstream.checkpoint.commands import command_in
from midstream.checkpoint.control import ask
from midstream.checkpoint.store import CheckpointStore
from midstream.interface.cli import app
from midstream.interface.shell.streams import FileStreams

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
CQL = "SELECT k FROM A [RANGE 3]"
WRONG = ("y" * (LONGEST + 1), "a b", "../up", "größe", "1st", "-x", "", 5, None)


def sessions(folder: Path) -> list[ms.Session]:
    return [ms.Session(), ms.Session(checkpoint=str(folder), on="local")]


@pytest.mark.parametrize("name", WRONG)
def test_every_door_refuses_the_same_names(name, tmp_path):
    for session in sessions(tmp_path):
        session.stream("A", SCHEMA)
        doors = [
            lambda session=session: session.stream(name, SCHEMA),
            lambda session=session: session.query(name, CQL),
        ]
        for door in doors:
            with pytest.raises(ms.InputError, match="cannot name a"):
                door()
    with pytest.raises(ms.InputError, match="cannot name a query"):
        command_in({"command": "add", "query": name, "cql": CQL})
    with pytest.raises(ms.InputError, match="cannot name a stream"):
        FileStreams().declare(name, str(tmp_path))
    with pytest.raises(ms.InputError, match="cannot name a stream"):
        ms.run(CQL, {name: SCHEMA.empty_table()})


@pytest.mark.parametrize("name", [name for name in WRONG if isinstance(name, str)])
def test_a_job_file_refuses_them_too(name, tmp_path):
    job = f"""[job]
checkpoint = "{tmp_path}/checkpoint"
on = "local"
[streams.A]
format = "csv"
path = "{tmp_path}"
schema = "ts BIGINT, k BIGINT"
[queries."{name}"]
cql = "{CQL}"
"""
    (tmp_path / "job.toml").write_text(job)
    checked = CliRunner().invoke(app, ["check", str(tmp_path / "job.toml")])
    assert checked.exit_code == 2 and "cannot name a query" in checked.output


@pytest.mark.parametrize("name", ["y" * LONGEST, "hot-keys_2", "_"])
def test_a_name_that_one_session_takes_all_sessions_can_work_with(name, tmp_path):
    for session in sessions(tmp_path):
        session.stream("A", SCHEMA)
        session.query(name, CQL)
        session.start()
        session.push("A", [{"ts": 1, "k": 1}])
        session.push("A", [{"ts": 9, "k": 2}])
        session.stop()
        assert session.results(name).num_rows


def test_a_request_with_an_impossible_name_is_refused_and_batches_go_on(tmp_path):
    session = ms.Session(checkpoint=str(tmp_path), on="local").stream("A", SCHEMA)
    session.query("q", CQL)
    session.start()
    session.push("A", [{"ts": 1, "k": 1}])
    request = {"command": "add", "query": "y" * 260, "cql": CQL}
    with pytest.raises(ms.JobError, match="cannot name a query: it has 260 characters"):
        ask(CheckpointStore(str(tmp_path)).files, request)
    session.push("A", [{"ts": 9, "k": 1}])
    session.stop()
    assert set(session.queries) == {"q"}
