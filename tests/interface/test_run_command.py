"""`midstream run`: what its options ask of the session."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from typer.testing import CliRunner

from midstream.interface.cli.app import app


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


def test_queries_are_dropped_by_name_and_the_job_is_known_by_its_file(session, tmp_path):
    assert ran(tmp_path, "--drop", "a", "--drop", "b", "--replace").exit_code == 0
    session.opened.assert_called_once_with("orders", True, ("a", "b"))
