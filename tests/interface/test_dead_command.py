"""`midstream dead`: rows that a job could not use are shown, and go back once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.processes import Program
from typer.testing import CliRunner

import midstream as ms
from midstream.checkpoint import replayed
from midstream.checkpoint.reading import StoredJob
from midstream.interface import replaying
from midstream.interface.cli import app
from midstream.interface.jobs.job_file import read_job

JOB = """
[job]
checkpoint = "{checkpoint}"
on = "local"
[streams.A]
format = "{format}"
path = "{path}"
schema = "k BIGINT, s STRING, unread DOUBLE, ts TIMESTAMP"
max_ahead = "{max_ahead}"
{more}
[queries.q]
cql = "SELECT k, s FROM A [RANGE 1 HOUR]"
"""
USUAL = {"k": 1, "s": "usual", "unread": 0.5, "ts": "2024-05-01T12:00:00Z"}
AHEAD = {"k": 2, "s": "\x1b[2Jahead", "unread": None, "ts": "2024-05-03T12:00:00Z"}
LATE = {"k": 3, "s": None, "unread": 2.5, "ts": "2024-05-01T11:00:00Z"}
TIMELESS = {"k": 4, "s": "timeless", "unread": 1.0, "ts": None}


def described(folder: Path, name: str = "job", **changes: str) -> Path:
    said = {"checkpoint": f"{name}.checkpoint", "format": "json", "path": "A", "max_ahead": "1 hour", "more": ""}
    file = folder / f"{name}.toml"
    file.write_text(JOB.format(**said | changes))
    (folder / (said | changes)["path"]).mkdir(exist_ok=True)
    return file


def midstream(*arguments: object, folder: Path) -> tuple[str, str]:
    """What the program prints and complains of, as a process of its own."""
    printed, errors = folder / "printed", folder / "errors"
    assert Program(list(map(str, arguments)), errors, printed).wait(240) == 0, errors.read_text()
    return printed.read_text(), errors.read_text()


def told(*arguments: object) -> dict[str, Any]:
    """What the program prints with --json."""
    answer = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)  # type: ignore[no-any-return]


def run(file: Path) -> None:
    assert CliRunner().invoke(app, ["--quiet", "run", str(file), "--available"]).exit_code == 0


def buried(folder: Path) -> Path:
    """A job that has buried three rows; gives its checkpoint."""
    file = described(folder)
    batches: list[list[dict[str, Any]]] = [[USUAL], [AHEAD, LATE, TIMELESS]]
    for i, rows in enumerate(batches):
        (folder / "A" / f"{i}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        run(file)
    return folder / "job.checkpoint"


def keys(checkpoint: Path) -> list[int]:
    return sorted(ms.open(str(checkpoint)).results("q")["k"].to_pylist())


def test_rows_go_back_once_when_the_declaration_is_mended(tmp_path: Path) -> None:
    checkpoint = buried(tmp_path)
    shown, _ = midstream("dead", checkpoint, folder=tmp_path)
    assert "too far ahead" in shown and "late" in shown and "null time" in shown and "\x1b" not in shown
    listed = told("dead", checkpoint, "--reason", "too far")
    assert listed["rows"] == 1 and listed["letters"][0]["row"]["s"] == AHEAD["s"]
    assert listed["letters"][0]["row"]["unread"] is None
    file = described(tmp_path, max_ahead="any")
    shown, complained = midstream("dead", checkpoint, "--replay", file, folder=tmp_path)
    assert "1 row of stream A" in shown
    assert "1 row of stream A stays: still late; a job with a checkpoint of its own takes them" in complained
    assert "without a time" in complained
    for _ in range(2):
        assert told("dead", checkpoint, "--replay", file)["replayed"][0]["rows"] == 0
    assert told("dead", checkpoint)["rows"] == 2
    run(file)
    assert CliRunner().invoke(app, ["--quiet", "run", str(file), "--finish"]).exit_code == 0
    assert keys(checkpoint) == [1, 2]


@pytest.mark.parametrize(("format", "more"), [("parquet", ""), ("csv", 'options = {header = "true", sep = ";"}')])
def test_a_job_of_its_own_takes_all_rows_in_its_own_format(format: str, more: str, tmp_path: Path) -> None:
    checkpoint = buried(tmp_path)
    other = described(tmp_path, "other", path="B", format=format, max_ahead="any", more=f'lateness = "7 days"\n{more}')
    assert told("dead", checkpoint, "--replay", other)["replayed"][0]["rows"] == 3
    assert told("dead", checkpoint)["rows"] == 0
    assert CliRunner().invoke(app, ["--quiet", "run", str(other), "--finish"]).exit_code == 0
    assert keys(tmp_path / "other.checkpoint") == [2, 3]
    (letter,) = told("dead", tmp_path / "other.checkpoint")["letters"]
    assert letter["reason"] == "null time" and letter["row"] == TIMELESS


def test_an_interrupted_replay_is_finished_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = StoredJob.open(str(buried(tmp_path)))
    file = read_job(described(tmp_path, max_ahead="any"))

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    for place in ("_put_in_place", "end"):
        with monkeypatch.context() as patched:
            patched.setattr(replaying, place, dies)
            with pytest.raises(KeyboardInterrupt):
                replaying.replay(job, replaying.letters_left(job), file)
        (record,) = replayed.replays_of(job.store.files)
        assert not record.done
    replaying.replay(job, replaying.letters_left(job), file)
    (record,) = replayed.replays_of(job.store.files)
    assert record.done and [path.name for path in (tmp_path / "A").glob("*replayed*")] == [Path(record.file).name]


def test_letters_that_are_alike_go_back_as_often_as_they_came() -> None:
    letter = replayed.Letter(1, "A", "late", "{}")
    record = replayed.ReplayRecord(0, "file", (letter.digest,))
    assert replayed.left([letter, letter, letter], [record]) == [letter, letter]


def test_rows_whose_columns_are_computed_and_unknown_streams_are_refused(tmp_path: Path) -> None:
    checkpoint = buried(tmp_path)
    computed = described(tmp_path, "computed", more='columns = ["k", "s", "unread", "ts"]')
    answer = CliRunner().invoke(app, ["dead", str(checkpoint), "--replay", str(computed)])
    assert answer.exit_code == 2 and "computed" in answer.output
    answer = CliRunner().invoke(app, ["dead", str(checkpoint), "--stream", "Z"])
    assert answer.exit_code == 2 and "no stream Z" in answer.output


def test_what_is_no_row_for_the_stream_stays() -> None:
    reasons = ["late", "query q: cannot cast 'x' to int64", "cannot be read: no number (line 2 of a.csv)"]
    letters = [replayed.Letter(1, "A", reason, "{}") for reason in reasons]
    chosen, kept = replaying._of_the_stream(letters)
    assert chosen == letters[:1] and sorted(kept.values()) == [1, 1]
