"""`midstream run`: what its options ask of the session."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from typer.testing import CliRunner

from midstream.interface.cli.app import app
from midstream.interface.cli.run import BatchNotes


@pytest.fixture
def session(monkeypatch) -> MagicMock:
    made = MagicMock()
    made.__enter__.return_value = made

    def opened(job: Any, replace: bool, drop: Any) -> MagicMock:
        made.opened(job.name, replace, tuple(drop))
        return made

    monkeypatch.setattr("midstream.interface.cli.run.open_session", opened)
    monkeypatch.setattr("midstream.cluster.listener.status", lambda _: {"batch": 3})
    return made


def ran(folder: Path, *options: str) -> Any:
    path = folder / "orders.toml"
    path.write_text('[job]\ncheckpoint = "here"\n[streams.A]\nformat = "rate"\ntime = "timestamp"\n')
    return CliRunner().invoke(app, ["run", str(path), "--json", *options])


@pytest.mark.parametrize(
    ("options", "trigger", "ends"),
    [((), None, None), (("--available",), "available", False), (("--finish",), "available", True)],
)
def test_what_is_available_is_released_or_finished(options, trigger, ends, session, tmp_path):
    shown = ran(tmp_path, *options)
    assert shown.exit_code == 0, shown.output
    session.start.assert_called_once_with(trigger)
    assert [call.args for call in session.end_available.call_args_list] == ([] if ends is None else [(ends,)])


def test_what_modules_hold_is_kept_from_collections_while_a_job_runs(session, tmp_path):
    frozen: list[int] = []
    session.wait.side_effect = lambda: frozen.append(gc.get_freeze_count())
    assert ran(tmp_path).exit_code == 0
    assert frozen[0] > 10_000 and gc.get_freeze_count() == 0


def test_queries_are_dropped_by_name_and_the_job_is_known_by_its_file(session, tmp_path):
    assert ran(tmp_path, "--drop", "a", "--drop", "b", "--replace").exit_code == 0
    session.opened.assert_called_once_with("orders", True, ("a", "b"))


def test_a_suggestion_is_told_once_until_it_changes(capsys):
    def batch(number: int, action: str, target: str) -> None:
        decision = {"action": action, "target": target, "reason": f"{target} is better, says batch {number}"}
        counts = {"rows": {"A": 1}, "late": {}, "queries": {}, "seconds": {"batch": 0.1}}
        notes({"batch_id": number, **counts, "decisions": {"q": decision}})

    notes = BatchNotes()
    steps = [("suggest", "(A B)"), ("suggest", "(A B)"), ("suggest", "(B A)"), ("stay", "(B A)"), ("suggest", "(B A)")]
    for number, (action, target) in enumerate(steps):
        batch(number, action, target)
    told = [line for line in capsys.readouterr().err.splitlines() if "is better" in line]
    assert [line[-1] for line in told] == ["0", "2", "4"]
