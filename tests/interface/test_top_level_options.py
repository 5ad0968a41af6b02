"""`--quiet`, `--debug` and NO_COLOR: what is shown besides results."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from midstream.interface.cli import app
from midstream.interface.cli.output import complain, progress_bar

ORDERS = str(Path(__file__).parents[2] / "examples" / "orders.toml")


def test_quiet_leaves_notes_out_but_not_errors():
    assert "is valid: a job" in CliRunner().invoke(app, ["check", ORDERS]).output
    assert CliRunner().invoke(app, ["--quiet", "check", ORDERS]).output == ""
    assert "cannot read the job file" in CliRunner().invoke(app, ["-q", "check", "nowhere.toml"]).output


def test_debug_shows_where_an_error_happened():
    plain = CliRunner().invoke(app, ["check", "nowhere.toml"])
    traced = CliRunner().invoke(app, ["--debug", "check", "nowhere.toml"])
    assert plain.exit_code == traced.exit_code == 2
    assert "Traceback" not in plain.output and "Traceback" in traced.output


@pytest.mark.parametrize("colours", [True, False])
def test_no_color_is_respected(colours, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not colours:
        monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("sys.stderr", shown)
    complain("wrong")
    assert ("\x1b[31m" in shown.getvalue()) == colours


def test_help_names_the_exit_codes():
    assert "Exit codes: 0" in CliRunner().invoke(app, ["--help"]).output


def test_progress_has_a_rate_and_with_a_total_the_time_left(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setattr("midstream.interface.cli.output._QUIET", [False])  # what other tests asked for stays
    with progress_bar(2_000) as advance:
        for _ in range(4):
            advance(500)
    assert "2,000 of 2,000 rows" in shown.getvalue() and "rows/s" in shown.getvalue() and "left" in shown.getvalue()


def test_the_program_starts_without_what_few_commands_need():
    program = "import sys, midstream.interface.cli, midstream.checkpoint.reading, midstream.connectors.sqlite"
    program = f"{program}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pandas", "matplotlib", "starlette"} & set(loaded)
    # A job's status needs none of these, and a source on Spark is loaded anew for every batch.
    assert not {"sqlglot", "midstream.language", "midstream.migration.protocol"} & set(loaded)
    benches = {name for name in loaded if name.startswith("midstream.lab.bench")}
    assert benches <= {f"midstream.lab.bench{part}" for part in ("", ".figures", ".registry")}
