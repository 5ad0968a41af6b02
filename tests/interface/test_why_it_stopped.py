"""Why a job stopped is told by its checkpoint, on every view, until a batch is done again."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.interface.running_jobs import command, described, feed, running
from typer.testing import CliRunner

import midstream as ms
from midstream.checkpoint.lease import Lease
from midstream.checkpoint.status import status_record
from midstream.checkpoint.stops import LAST_ERROR, JobPhase, Reason, standing
from midstream.checkpoint.store import CheckpointStore
from midstream.interface.cli import app
from midstream.interface.dashboard.page_data import job_summary
from midstream.interface.dashboard.prometheus import exposition

NARROW = """
[queries.narrow]
cql = "SELECT k, CAST(v AS SMALLINT) AS v FROM A [NOW]"
on_error = "stop_job"
"""
TOO_WIDE = 4000
"""The number of a file whose values the query cannot take."""


@pytest.fixture
def failed(tmp_path: Path) -> Path:
    """A job that has done a batch and failed in the next one."""
    file = described(tmp_path, queries=NARROW)
    feed(tmp_path, 1)
    command("run", str(file), "--available", "--json")
    feed(tmp_path, TOO_WIDE)
    done = CliRunner().invoke(app, ["run", str(file), "--available"])
    assert done.exit_code == 2
    return file


def checkpoint_of(file: Path) -> str:
    return str(file.parent / "job.checkpoint")


def told(file: Path) -> dict[str, Any]:
    return dict(json.loads(command("status", checkpoint_of(file), "--json")))


def test_the_error_that_ended_a_job_is_on_every_view(failed: Path):
    status, job = told(failed), ms.open(checkpoint_of(failed))
    assert (status["running"], status["phase"], status["batch"]) == (False, "failed", job.batch)
    stopped = status["stopped"]
    assert stopped["reason"] == "error" and stopped["batch"] == job.batch and stopped["message"]
    assert job.phase == JobPhase.FAILED and job.stopped is not None and asdict(job.stopped) == stopped
    page = job_summary(job)
    assert (page["phase"], page["stopped"], page["running"]) == ("failed", stopped, False)
    assert [query["status"] for query in page["queries"]] == ["failed"]
    assert status_record(job)["stopped"] == stopped
    assert (
        "midstream_failed 1.0" in exposition(job).decode()
        and 'midstream_phase{phase="failed"} 1.0' in exposition(job).decode()
    )
    for text in (command("status", checkpoint_of(failed)), job._repr_html_()):
        assert "failed" in text and "stopped by an error" in text and stopped["message"].split("\n")[0] in text


def test_the_error_is_gone_with_the_next_batch_that_is_done(failed: Path):
    (failed.parent / "A" / f"{TOO_WIDE}.json").unlink()
    command("run", str(failed), "--available", "--json")
    status = told(failed)
    assert (status["phase"], status["stopped"]["reason"]) == ("stopped", "asked")
    assert ms.open(checkpoint_of(failed)).phase == JobPhase.STOPPED


def test_a_job_whose_start_is_refused_says_why(failed: Path):
    failed.write_text(failed.read_text().replace("SMALLINT", "BIGINT"))
    refused = CliRunner().invoke(app, ["run", str(failed), "--available"])
    assert refused.exit_code == 2
    assert told(failed)["stopped"]["message"] in refused.output


def test_a_job_that_fails_in_its_first_batch_says_why(tmp_path: Path):
    file = described(tmp_path, queries=NARROW)
    feed(tmp_path, TOO_WIDE)
    assert CliRunner().invoke(app, ["run", str(file), "--available"]).exit_code == 2
    said = CliRunner().invoke(app, ["status", checkpoint_of(file)])
    assert said.exit_code == 2 and "stopped before any batch was done" in said.output


def test_a_job_that_is_killed_says_so(tmp_path: Path):
    file = described(tmp_path)
    with running(file) as job:
        job.take_in(0)
        assert told(file)["phase"] == "running"
        job.end(signal.SIGKILL)
    status = told(file)
    assert (status["running"], status["phase"], status["stopped"]["reason"]) == (False, "failed", "killed")
    assert "without a word" in command("status", checkpoint_of(file))


def test_a_job_that_starts_is_neither_stopped_nor_running_yet(failed: Path):
    store = CheckpointStore(checkpoint_of(failed))
    with Lease.take(store.files) as lease:
        status = told(failed)
        assert (status["running"], status["phase"]) == (True, "starting")
        assert status["stopped"]["reason"] == "error", "what ended the last run still stands between it and a batch"
        assert "starting" in command("status", checkpoint_of(failed))
        lease.work()
        assert standing(store.files, store.latest()).phase is JobPhase.RUNNING


def test_half_a_record_of_an_error_is_none(failed: Path):
    record = Path(checkpoint_of(failed)) / LAST_ERROR
    record.write_bytes(record.read_bytes()[:20])
    now = ms.open(checkpoint_of(failed)).standing
    assert now.stop is not None and now.stop.reason is Reason.ASKED
