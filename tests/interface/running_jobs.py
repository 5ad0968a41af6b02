"""A job as users have it: `midstream run` as a process of its own, fed with files and commanded from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from typer.testing import CliRunner

import midstream as ms
from midstream.checkpoint.store import CheckpointStore
from midstream.interface.cli import app

MAIN = "from midstream.interface.cli import main; main()"
PATIENCE = 240.0

CQL = "SELECT A.k, A.v, B.v AS w, C.v AS x FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.k = C.k"
BESIDE = "SELECT k, SUM(aside) AS n FROM A [TUMBLE 10] GROUP BY k"
JOB = """
[job]
checkpoint = "job.checkpoint"
on = "{on}"
{more}
"""
STREAM = """
[streams.{name}]
format = "json"
path = "{name}"
schema = "k BIGINT, v BIGINT, aside BIGINT, ts BIGINT"
time = "ts"
"""
QUERY = """
[queries.{name}]
cql = "{cql}"
plan = "((A B) C)"
"""


def described(folder: Path, on: str = "local", more: str = "", queries: str | None = None) -> Path:
    """A job file with three streams, each from a folder beside it, and a query that joins them."""
    for name in "ABC":
        (folder / name).mkdir(exist_ok=True)
    asked = QUERY.format(name="joined", cql=CQL) if queries is None else queries
    text = JOB.format(on=on, more=more) + "".join(STREAM.format(name=name) for name in "ABC") + asked
    file = folder / "job.toml"
    file.write_text(text)
    return file


def rows_of(number: int) -> list[dict[str, int]]:
    """The rows that each stream has in its file of this number."""
    return [{"k": i % 3, "v": 10 * number + i, "aside": i, "ts": 10 * number + i} for i in range(10)]


def feed(folder: Path, number: int) -> None:
    """Lays a file into the folder of each stream."""
    for name in "ABC":
        waiting = folder / name / f".{number}.json"
        waiting.write_text("".join(json.dumps(row) + "\n" for row in rows_of(number)))
        waiting.rename(folder / name / f"{number}.json")


def command(*arguments: str) -> str:
    """What a command of this process says on standard output; it has to succeed."""
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, f"{arguments}: {done.output}"
    return done.stdout


class RunningJob:
    """`midstream run` at work."""

    def __init__(self, file: Path, *options: str) -> None:
        self.folder = file.parent
        self.checkpoint = str(self.folder / "job.checkpoint")
        self.errors = (self.folder / "stderr").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "run", str(file), *options],
            env={**os.environ, "COLUMNS": "200"},
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
        )

    @property
    def said(self) -> str:
        """What it has said on standard error so far."""
        return (self.folder / "stderr").read_text()

    def until(self, holds: Any, what: str) -> None:
        """Waits until something holds; the job must not have ended by then."""
        limit = time.monotonic() + PATIENCE
        while not holds():
            assert self.process.poll() is None, f"exit code {self.process.returncode} before {what}: {self.said}"
            assert time.monotonic() < limit, f"in vain for {what}: {self.said}"
            time.sleep(0.05)

    def take_in(self, number: int) -> None:
        """Feeds it with a file of each stream, and waits until all their rows are committed."""
        feed(self.folder, number)
        wanted = len(rows_of(number)) * len(list((self.folder / "A").glob("[0-9]*.json")))
        self.until(lambda: self.taken() == [wanted] * 3, f"file {number}")

    def taken(self) -> list[int]:
        """How many rows of each stream are in its newest manifest."""
        manifest = CheckpointStore(self.checkpoint).latest() if Path(self.checkpoint).exists() else None
        return [0 if manifest is None else manifest.streams.rows.get(name, 0) for name in "ABC"]

    def ask(self, name: str, *arguments: str) -> str:
        """Gives it a command."""
        return command(name, self.checkpoint, *arguments, "--timeout", str(PATIENCE))

    def end(self, sign: signal.Signals | None = None) -> int:
        """Its exit code, once it has ended."""
        if sign is not None:
            self.process.send_signal(sign)
        return self.process.wait(PATIENCE)


@contextmanager
def running(file: Path, *options: str) -> Iterator[RunningJob]:
    """A job at work; one that is left is killed."""
    job = RunningJob(file, *options)
    try:
        yield job
    finally:
        if job.process.poll() is None:
            job.process.kill()
            job.process.wait()
        job.errors.close()


def complete(folder: Path, files: int) -> None:
    """Compares the join of all files with the oracle."""
    schema = pa.schema([(name, pa.int64()) for name in ("k", "v", "aside", "ts")])
    rows = pa.Table.from_pylist([row for number in range(files) for row in rows_of(number)], schema)
    expected = ms.reference(CQL, dict.fromkeys("ABC", rows), time="ts")
    assert ms.snapshot_equal(ms.read_results(str(folder / "job.checkpoint"), "joined"), expected)


def obeys_every_command(folder: Path, on: str) -> None:
    """Has a job take all commands, each followed by rows, and compares its results with the oracle."""
    file = described(folder, on)
    with running(file) as job:
        job.take_in(0)
        assert "was added" in job.ask("add", "beside", BESIDE)
        job.take_in(1)
        assert "changes from ((A B) C) to (A (B C))" in job.ask("migrate", "joined", "(A (B C))")
        job.take_in(2)
        assert "from off to suggest" in job.ask("adapt", "joined", "suggest")
        job.take_in(3)
        job.ask("rescale", "3")
        job.take_in(4)
        job.ask("rebalance")
        job.take_in(5)
        assert "was dropped" in job.ask("drop", "beside")
        job.take_in(6)
        told = json.loads(job.ask("status", "--json"))
        assert (told["running"], told["slots"]["count"], list(told["queries"])) == (True, 3, ["joined"])
        assert told["queries"]["joined"]["plan"] == "(A (B C))"
        assert "the job has stopped" in job.ask("stop")
        assert job.end() == 0, job.said
        assert "Traceback" not in job.said and "the job has stopped, as it was asked to" in job.said
    command("run", str(file), "--finish", "--json")
    complete(folder, 7)
