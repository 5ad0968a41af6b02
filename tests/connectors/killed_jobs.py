"""A job that is run by the command line, and killed again and again while rows are written to its source."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from midstream import api

JOB = """[job]
checkpoint = "checkpoint"
on = "local"
[streams.s]
{source}
options = {{ maxRowsPerTrigger = "50" }}
lateness = 1000000
[queries.q]
cql = "SELECT id FROM s [UNBOUNDED]"
"""


def killed(folder: Path, source: str, write: Callable[[int], object], kills: int, seed: int = 0) -> list[int]:
    """Runs a job over a source and kills it so often; gives the ids of its results, in order, and prints what it did.

    `write(number)` adds a row with that id and time.
    """
    random, number, batches = Random(seed), 0, list[int]()
    (folder / "job.toml").write_text(JOB.format(source=source))
    command = [sys.executable, "-m", "midstream", "run", str(folder / "job.toml")]
    for _ in range(kills):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as job:
            assert job.stderr is not None
            for _ in range(random.randrange(150, 300)):
                write(number)
                number += 1
            for _ in range(random.randrange(1, 4)):
                while not (line := job.stderr.readline()).startswith(b"batch"):
                    assert line, "the job does not start again"
            time.sleep(random.uniform(0, 0.1))  # no synchronisation: the law holds at any moment
            job.send_signal(signal.SIGKILL)
        batches.append(api.open(folder / "checkpoint").batch)
    subprocess.run([*command, "--finish"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(f"{kills} kills, {number} rows, batches after each: {batches}")
    found = sorted(api.open(folder / "checkpoint").results("q").column("id").to_pylist())
    assert found == list(range(number))
    return found
