"""A session that runs is asked through its checkpoint: first what something would do, then to do it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import midstream as ms
from midstream.checkpoint.commands import command_in
from midstream.checkpoint.control import ask
from midstream.interface.asking import asked
from midstream.interface.cli import app

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])
JOIN = "SELECT A.v AS a, C.v AS c FROM A [RANGE 50], B [RANGE 50], C [RANGE 50] WHERE A.k = B.k AND B.k = C.k"


def rows(first: int, count: int = 20) -> pa.Table:
    return pa.table({"k": [i % 4 for i in range(count)], "v": range(count), "ts": range(first, first + count)}).cast(
        SCHEMA
    )


def opened(folder: Path) -> Any:
    session = ms.Session(checkpoint=str(folder), on="local", slots=2)
    for name in "ABC":
        session.stream(name, SCHEMA)
    session.query("q", JOIN, plan="((A B) C)")
    return session.start()


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Any]:
    with opened(tmp_path) as session:
        session.push({name: rows(0) for name in "ABC"})
        yield session


def test_a_running_session_foretells_and_then_does_as_asked(session, tmp_path):
    job = str(tmp_path)
    told = asked(job, command_in({"command": "migrate", "query": "q", "plan": "(A (B C))"}), 30, dry_run=True)
    assert told["to"] == "(A (B C))" and session.queries["q"].migrating is None
    assert len(asked(job, command_in({"command": "plans", "query": "q"}), 30)["plans"]) > 2
    asked(job, command_in({"command": "migrate", "query": "q", "plan": "(A (B C))", "strategy": "moving_state"}), 30)
    session.push({name: rows(20) for name in "ABC"})
    assert ms.open(job).query("q").migration is not None
    assert asked(job, command_in({"command": "adapt", "query": "q", "mode": "suggest"}), 30) == {
        "query": "q",
        "from": "off",
        "to": "suggest",
    }
    assert asked(job, command_in({"command": "rescale", "slots": 3}), 30)["changes"]
    session.push({name: rows(40) for name in "ABC"})
    session.push({name: rows(60) for name in "ABC"})
    now = session.job
    assert now.query("q") == ms.open(job).query("q")
    assert (now.query("q").plan, now.query("q").adaptivity.mode, now.slots.count) == ("(A (B C))", "suggest", 3)
    with pytest.raises(ms.QueryError) as wrong:
        asked(job, command_in({"command": "add", "query": "r", "cql": "SELECT none FROM A [NOW]"}), 30, dry_run=True)
    assert "^" in str(wrong.value)


def test_the_command_line_has_some_slots_of_a_running_job_migrate(session, tmp_path):
    told = CliRunner().invoke(
        app, ["migrate", str(tmp_path), "q", "(A (B C))", "--strategy", "moving_state", "--slots", "1"]
    )
    assert told.exit_code == 0, told.output
    session.push({name: rows(20) for name in "ABC"})
    assert "to (A (B C)) in slot 1 by moving_state" in CliRunner().invoke(app, ["status", str(tmp_path)]).output
    session.push({name: rows(40) for name in "ABC"})
    assert {slot: plan.text for slot, plan in session.queries["q"].plans.items()} == {0: "((A B) C)", 1: "(A (B C))"}
    refused = CliRunner().invoke(app, ["migrate", str(tmp_path), "q", "((A B) C)", "--slots", "7"])
    assert refused.exit_code == 2 and "slot" in refused.output


def test_adaptivity_that_was_asked_for_outlives_a_restart(session, tmp_path):
    asked(str(tmp_path), command_in({"command": "adapt", "query": "q", "mode": "suggest"}), 30)
    session.push({name: rows(20) for name in "ABC"})
    session.stop()
    with opened(tmp_path) as again:
        again.push({name: rows(40) for name in "ABC"})
        assert ms.open(tmp_path).query("q").adaptivity.mode == "suggest"
        assert ms.read_results(tmp_path, "q").equals(again.queries["q"].table())


def test_options_of_the_other_kind_of_session_are_refused_by_name(session):
    query = session.queries["q"]
    with pytest.raises(ms.MigrationError, match="migrations of a job do not queue"):
        query.migrate("(A (B C))", queue=True)
    with ms.Session() as memory:
        for name in "ABC":
            memory.stream(name, SCHEMA)
        asked_of = memory.query("q", JOIN)
        with pytest.raises(ms.MigrationError, match="a session in memory has no slots"):
            asked_of.migrate("(A (B C))", slots=[1])
        assert not memory.was_dropped("q", JOIN)
        with pytest.raises(ms.JobError, match="has no stored job"):
            memory.job  # noqa: B018


def test_a_session_tells_its_queries_before_its_first_batch(tmp_path):
    with opened(tmp_path) as session:
        told = ask(session._job.files, {"command": "status"})
        assert told["batch"] is None and told["queries"]["q"]["plan"] == "((A B) C)"
        assert "no batch done yet" in CliRunner().invoke(app, ["status", str(tmp_path)]).output
