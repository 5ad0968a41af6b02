"""Whoever sends rows cannot command the terminal of whoever reads them: every command shows them as escapes."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from rich.console import Console
from typer.testing import CliRunner

import midstream as ms
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.records import Fault
from midstream.checkpoint.stored import StoredMigration
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


def test_notes_errors_logs_sinks_and_the_live_view_do_so_too(checkpoint, capsys):
    show_text(NASTY)
    note(NASTY)
    complain(NASTY)
    console("q")(pa.table({"k": [NASTY.replace("\udc80", "")]}), 3)
    record = logging.LogRecord("midstream", logging.WARNING, "", 0, "refused: %s", (NASTY,), None)
    print(JsonLines().format(record))
    job = StoredJob.open(str(checkpoint))
    named = replace(job.manifest, settings=replace(job.manifest.settings, job=NASTY))
    shown = StoredJob(job.store, named)
    (query,) = job.queries.values()
    moving = StoredMigration(query.name, NASTY, NASTY, "genmig", "under way", "", None)
    entry, account = replace(query.entry, plan=NASTY), replace(query.account, fault=Fault(1, NASTY))
    odd = replace(query, entry=entry, account=account, migration=moving)
    shown.__dict__["queries"] = {query.name: odd}
    Console(width=300).print(drawn(shown, 300))
    written = capsys.readouterr()
    assert not commands(written.out + written.err)
    assert written.out.count(r"\x1b]52") >= 5 and written.err.count(r"\x1b]52") == 2


def test_ordinary_text_is_shown_as_it_is():
    text = "größe 東京 👩‍👩‍👧 a\u00a0b"
    assert visible(text) == text and visible_lines(f"{text}\n\t{text}") == f"{text}\n\t{text}"
    assert json.loads(visible_json({"k": NASTY + text})) == {"k": NASTY + text}
