"""A checkpoint that has lost a file of results: refused, then gone on with once the loss is accepted by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.local.test_durable_sessions import SCHEMA, drawn
from typer.testing import CliRunner

import midstream as ms
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.interface.cli import app

CQL = "SELECT k, v FROM A [NOW]"


def opened(folder: Path) -> CheckpointSession:
    session = CheckpointSession(checkpoint=str(folder), on="local")
    session.stream("A", SCHEMA)
    session.query("q", CQL)
    return session


def asked(*arguments: str) -> tuple[int, dict]:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    return done.exit_code, json.loads(done.stdout)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    with opened(tmp_path) as session:
        session.start()
        for i in range(3):
            session.push("A", drawn(i, i * 40))
    sorted((tmp_path / "results").rglob("*.parquet"))[0].unlink()
    return tmp_path


def test_a_lost_file_of_results_stops_a_job_until_it_is_given_up(damaged):
    with pytest.raises(ms.JobError, match="is missing") as refused, opened(damaged) as session:
        session.start()
    assert "midstream repair" in str(refused.value)
    code, told = asked("repair", str(damaged))
    assert code == 2 and not told["whole"] and [file["rows"] for file in told["lost"]] == [30]
    code, told = asked("repair", str(damaged), "--give-up")
    assert code == 0 and told["given_up"]
    assert asked("repair", str(damaged)) == (0, {"restored": [], "lost": [], "given_up": False, "whole": True})
    with opened(damaged) as session:
        session.start()
        session.push("A", drawn(3, 120))
        session.finish()
        assert session.queries["q"].table().num_rows == 3 * 30
    (record,) = asked("status", str(damaged))[1]["given_up"]
    assert record["rows"] == 30


def test_damaged_state_is_never_given_up(tmp_path):
    with CheckpointSession(checkpoint=str(tmp_path), on="local") as session:
        session.stream("A", SCHEMA)
        session.query("q", "SELECT k, count(*) AS n FROM A [RANGE 100] GROUP BY k")
        session.start()
        session.push("A", drawn(0, 0))
    for pack in (tmp_path / "state").rglob("*.pack"):
        pack.unlink()
    done = CliRunner().invoke(app, ["repair", str(tmp_path), "--give-up"])
    assert done.exit_code == 2 and "is missing" in done.output


def test_a_running_job_is_not_repaired(tmp_path):
    with opened(tmp_path) as session:
        session.start()
        session.push("A", drawn(0, 0))
        done = CliRunner().invoke(app, ["repair", str(tmp_path)])
        assert done.exit_code == 2 and "another driver runs" in done.output
