"""Whoever sends rows cannot command the terminal of whoever reads them: every command shows them as escapes."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from rich.console import Console
from typer.testing import CliRunner

import midstream as ms
from midstream.cluster.sinks import console
from midstream.interface.cli import app
from midstream.interface.cli.output import complain, note, show_text
from midstream.interface.jobs.logs import JsonLines
from midstream.interface.top.drawing import drawn
from midstream.terminal import visible, visible_json, visible_lines

NASTY = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b2J\u202egood\r\udc80"
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.string())])


def commands(text: str) -> set[str]:
    return set(text) & set("\x1b\x07\x9b\u202e\r\udc80")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    sent = NASTY.replace("\udc80", "")
    session = ms.Session(checkpoint=str(folder), on="local").stream("A", SCHEMA)
    session.query("q", "SELECT k FROM A [RANGE 5]")
    session.start()
    session.push("A", [{"ts": 1, "k": sent}])
    session.push("A", [{"ts": 20, "k": "x"}])
    session.stop()
    return folder


@pytest.mark.parametrize(
    "arguments",
    [["results", "{}", "q"], ["results", "{}", "q", "--json"], ["status", "{}"], ["top", "{}", "--once"]],
    ids=lambda arguments: " ".join(arguments),
)
def test_commands_show_what_commands_a_terminal_as_escapes(arguments, checkpoint):
    done = CliRunner().invoke(app, [part.format(checkpoint) for part in arguments])
    assert done.exit_code == 0 and not commands(done.output)
    if "--json" in arguments:
        rows = json.loads(done.output)["rows"]
        assert NASTY.replace("\udc80", "") in {row["k"] for row in rows}
    elif arguments[0] == "results":
        assert r"\x1b]52;c;ZXZpbA==\x07" in done.output


def test_queries_over_files_and_the_shell_show_them_as_escapes(tmp_path):
    sent = NASTY.replace("\udc80", "")
    pa.parquet.write_table(pa.table({"ts": [1], "k\x1b[2J": [sent]}), tmp_path / "A.parquet")
    done = CliRunner().invoke(app, ["query", "SELECT * FROM A [NOW]", "--stream", f"A={tmp_path}/A.parquet"])
    assert done.exit_code == 0 and not commands(done.output) and r"k\x1b[2J" in done.output
    typed = f"\\stream A {tmp_path}/A.parquet\nSELECT * FROM A [NOW];\n"
    shown = CliRunner().invoke(app, ["shell"], input=typed)
    assert not commands(shown.output) and r"k\x1b[2J" in shown.output


def test_notes_errors_logs_sinks_and_the_live_view_do_so_too(capsys):
    show_text(NASTY)
    note(NASTY)
    complain(NASTY)
    console("q")(pa.table({"k": [NASTY.replace("\udc80", "")]}), 3)
    record = logging.LogRecord("midstream", logging.WARNING, "", 0, "refused: %s", (NASTY,), None)
    print(JsonLines().format(record))
    query = {"name": "q", "results_per_second": 0, "results": 0, "behind": None, "time": "integer", "state_bytes": 0}
    query |= {
        "plan": NASTY,
        "plans_of_slots": {},
        "migrating_to": NASTY,
        "quarantine": NASTY,
        "adaptivity": "off",
        "latency": None,
    }
    account: dict[str, Any] = {
        "name": NASTY,
        "phase": "running",
        "stopped": None,
        "checkpoint": NASTY,
        "batch": 1,
        "dead_letters": 0,
        "migrations": [],
    }
    account |= {"recent": {"rows": [], "seconds": []}, "batch_seconds": None, "rows_per_second": 0}
    account |= {
        "results_per_second": 0,
        "state_bytes": 0,
        "checkpoint_bytes": 0,
        "commit_bytes": 0,
        "queries": [query],
        "streams": [],
        "slots": [],
    }
    Console(width=300).print(drawn(account, 300))
    written = capsys.readouterr()
    assert not commands(written.out + written.err)
    assert written.out.count(r"\x1b]52") >= 5 and written.err.count(r"\x1b]52") == 2


def test_ordinary_text_is_shown_as_it_is():
    text = "größe 東京 👩‍👩‍👧 a\u00a0b"
    assert visible(text) == text and visible_lines(f"{text}\n\t{text}") == f"{text}\n\t{text}"
    assert json.loads(visible_json({"k": NASTY + text})) == {"k": NASTY + text}
