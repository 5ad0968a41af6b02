"""A process that waits while another runs the job takes over when that one ends, and loses and doubles nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import midstream as ms
from midstream.checkpoint.lease import Lease
from midstream.checkpoint.process import this_process
from midstream.checkpoint.store import CheckpointStore
from midstream.interface.cli.app import app
from midstream.interface.cli.run import open_session
from midstream.interface.jobs.job_file import read_job

JOB = """
[job]
checkpoint = "job.checkpoint"
on = "local"
[streams.A]
format = "json"
path = "A"
schema = "k BIGINT, ts BIGINT"
[queries.q]
cql = "SELECT k FROM A [RANGE 5]"
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "A").mkdir()
    add(tmp_path, 1, 2)
    return tmp_path / "job.toml"


def add(folder: Path, *keys: int) -> None:
    (folder / "A" / f"{keys[0]}.json").write_text("".join(json.dumps({"k": k, "ts": k}) + "\n" for k in keys))


def run(job: Path, *options: str) -> Any:
    return CliRunner().invoke(app, ["run", str(job), *options])


def test_one_that_waits_takes_over_when_the_other_ends(job, tmp_path, monkeypatch):
    first, looks = open_session(read_job(job)), list[float]()
    first.start("available")
    first.wait()

    def sleep(_: Any, seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            add(tmp_path, 3, 4)
            first.stop()

    refused = run(job, "--finish")
    assert refused.exit_code == 2 and "another driver runs on" in refused.stderr and "--standby" in refused.stderr
    monkeypatch.setattr(type(this_process()), "sleep", sleep)
    taken = run(job, "--standby", "--finish")
    assert taken.exit_code == 0 and taken.stderr.count("runs the job; this process waits to take over") == 1
    assert len(looks) >= 3 and sorted(ms.read_results(tmp_path / "job.checkpoint", "q")["k"].to_pylist()) == [
        1,
        2,
        3,
        4,
    ]


def test_of_two_that_wait_one_is_faster_and_the_other_waits_on(job, tmp_path, monkeypatch):
    files = CheckpointStore(str(tmp_path / "job.checkpoint")).files
    known, takers = Lease.take.__func__, list[Lease]()  # type: ignore[attr-defined]

    def take(cls: Any, *given: Any, **options: Any) -> Lease:
        if not takers:  # between a look at the lease and taking it, another process is faster
            takers.append(known(cls, files))
        return known(cls, *given, **options)  # type: ignore[no-any-return]

    monkeypatch.setattr(Lease, "take", classmethod(take))
    monkeypatch.setattr(type(this_process()), "sleep", lambda *_: takers[0].release())
    taken = run(job, "--standby", "--finish")
    assert taken.exit_code == 0 and "waits to take over" in taken.stderr
    assert ms.read_results(tmp_path / "job.checkpoint", "q").num_rows == 2


def test_one_that_could_not_read_the_checkpoint_does_not_wait(job, tmp_path, monkeypatch):
    run(job, "--available")
    for path in (tmp_path / "job.checkpoint" / "manifests").iterdir():
        path.write_bytes(b"of another format")
    monkeypatch.setattr(type(this_process()), "sleep", lambda *_: pytest.fail("it waits"))
    with Lease.take(CheckpointStore(str(tmp_path / "job.checkpoint")).files):
        assert run(job, "--standby").exit_code == 2
