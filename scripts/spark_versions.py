"""Runs jobs on every Spark that it is given, and prints the table of docs/how-to/deploy.md.

`python -m scripts.spark_versions get FOLDER [VERSION…]` installs each version into a folder of its own there (no
environment is changed); `python -m scripts.spark_versions FOLDER` runs the trials on each and on the Spark of this
environment.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import midstream as ms

VERSIONS = ("4.0.5", "4.1.4", "4.2.1")
"""The newest of each line besides the one that the project is developed on."""

BRIDGE = "py4j==0.10.9.9"

QUERY = "SELECT A.k, A.v, C.v AS w FROM A [RANGE 60], B [RANGE 60], C [RANGE 60] WHERE A.k = B.k AND B.k = C.k"
FILES = 10
JOB = """
[job]
checkpoint = "checkpoint"
on = "spark"
master = "local[2]"
slots = 2
small_batches = 0
"""
STREAM = """
[streams.{name}]
format = "parquet"
path = "{name}"
schema = "ts BIGINT, k BIGINT, v BIGINT"
options = {{ maxFilesPerTrigger = "1" }}
"""
CONNECT = """
from pyspark.sql import SparkSession
import midstream as ms
spark = SparkSession.builder.remote("local[1]").getOrCreate()
try:
    ms.Session(spark, checkpoint="checkpoint")
except ms.JobError as error:
    print(error.message)
finally:
    spark.stop()
"""


class Trial:
    """Jobs of a folder on one Spark, as processes, as a user would start them."""

    def __init__(self, folder: Path, spark: Path | None) -> None:
        self.folder = folder
        known = [str(spark)] if spark is not None else []
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*known, os.environ.get("PYTHONPATH", "")])}

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A program that is waited for."""
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=600, check=False
        )

    def midstream(self, *arguments: str) -> str:
        """A command that has to succeed; what it prints."""
        answer = self.python("-m", "midstream", *arguments)
        if answer.returncode:
            raise AssertionError(f"midstream {' '.join(arguments)}: {answer.stderr[-2000:]}")
        return answer.stdout

    @property
    def version(self) -> str:
        """The version of Spark."""
        return self.python("-c", "import pyspark; print(pyspark.__version__)").stdout.strip()

    def job_migration_and_kill(self) -> Mapping[str, str]:
        """A job file on executors, which is migrated by a command, killed and started again; held to the reference."""
        streams = "".join(STREAM.format(name=name) for name in "ABC")
        (self.folder / "job.toml").write_text(f'{JOB}{streams}[queries.q]\ncql = "{QUERY}"\nplan = "((A B) C)"\n')
        for name in "ABC":
            (self.folder / name).mkdir()
        self._put(0)
        job = subprocess.Popen(
            [sys.executable, "-m", "midstream", "run", "job.toml"],
            cwd=self.folder,
            env=self.environment,
            stderr=(self.folder / "job.log").open("w"),
            start_new_session=True,
        )
        try:
            self._wait(job, lambda: self._batches() >= 1)
            for number in range(1, FILES // 2):
                self._put(number)
            asked = self.midstream("migrate", "checkpoint", "q", "(A (B C))", "--strategy", "genmig")
            self._wait(job, lambda: self._batches() >= 3)
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        for number in range(FILES // 2, FILES):
            self._put(number)
        self.midstream("run", "job.toml", "--finish")
        stored = ms.open(self.folder / "checkpoint")
        inputs = {s: pa.concat_tables([_drawn(s, i) for i in range(FILES)]) for s in "ABC"}
        same = ms.snapshot_equal(stored.results("q"), ms.reference(QUERY, inputs))
        assert same, same
        (migration,) = [change for change in stored.query("q").history if change.start_batch is not None]
        assert migration.status == "done" and stored.query("q").plan == "(A (B C))", (migration, asked)
        return {"job file": "same results", "migration": "done live", "kill -9": "nothing lost or doubled"}

    def source(self) -> Mapping[str, str]:
        """A source of ours, read by Spark over several batches and two starts."""
        (self.folder / "source.toml").write_text(
            JOB.replace('"checkpoint"', '"sourced"')
            + '[streams.s]\nsource = { kind = "sqlite", path = "in.db", table = "t" }\nschema = "ts BIGINT, k BIGINT"\n'
            'options = { maxRowsPerTrigger = "5" }\n[queries.q]\ncql = "SELECT k FROM s [NOW]"\n'
        )
        for start in range(2):
            with closing(sqlite3.connect(self.folder / "in.db")) as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS t (ts, k)")
                connection.executemany("INSERT INTO t VALUES (?, ?)", [(100 * start + n, n) for n in range(17)])
                connection.commit()
            self.midstream("run", "source.toml", *(["--finish"] if start else ["--available"]))
        found = sorted(ms.open(self.folder / "sourced").results("q").column("k").to_pylist())
        assert found == sorted([*range(17), *range(17)]), found
        return {"connectors": "same rows"}

    def upgrade(self) -> Mapping[str, str]:
        """A job that was begun on this Spark goes on with the Spark of this environment."""
        job = JOB.replace('"checkpoint"', '"upgraded"') + STREAM.format(name="U")
        (self.folder / "upgrade.toml").write_text(f'{job}[queries.q]\ncql = "SELECT k, v FROM U [NOW]"\n')
        (self.folder / "U").mkdir()
        self._put(0, "U")
        self.midstream("run", "upgrade.toml", "--available")
        self._put(1, "U")
        Trial(self.folder, None).midstream("run", "upgrade.toml", "--finish")
        assert ms.open(self.folder / "upgraded").results("q").num_rows == 30
        return {"goes on with the newest": "yes"}

    def connect(self) -> Mapping[str, str]:
        """What becomes of a session of Spark Connect."""
        answer = self.python("-c", CONNECT)
        if "cannot run through Spark Connect" in answer.stdout:
            return {"Connect": "refused by name"}
        missing = [line for line in answer.stderr.splitlines() if "is required" in line or "No module named" in line]
        assert missing, answer.stderr[-2000:]
        return {"Connect": f"not tried: {missing[-1].split('] ')[-1][:80]}"}

    def _put(self, number: int, names: str = "ABC") -> None:
        for name in names:
            draft = self.folder / name / f".{number}"
            pq.write_table(_drawn(name, number), draft)
            os.utime(draft, ns=(number * 10**9, number * 10**9))
            draft.rename(self.folder / name / f"{number:04d}.parquet")

    def _batches(self) -> int:
        return len(list((self.folder / "checkpoint" / "manifests").glob("*")))

    def _wait(self, job: subprocess.Popen[bytes], until: Callable[[], bool]) -> None:
        last = time.monotonic() + 300
        while not until():
            if job.poll() is not None or time.monotonic() > last:
                raise AssertionError((self.folder / "job.log").read_text()[-3000:])
            time.sleep(0.2)


def _drawn(stream: str, number: int) -> pa.Table:
    random = np.random.default_rng([ord(stream), number])
    times = np.sort(random.integers(number * 20, (number + 1) * 20, 15))
    return pa.table({"ts": times, "k": random.integers(0, 5, 15), "v": random.integers(0, 9, 15)})


def tried(spark: Path | None) -> dict[str, Any]:
    """All trials on one Spark."""
    with TemporaryDirectory(prefix="midstream-versions-") as folder:
        trial = Trial(Path(folder), spark)
        found: dict[str, Any] = {"Spark": trial.version}
        for each in (trial.job_migration_and_kill, trial.source, trial.upgrade, trial.connect):
            found |= each()
        return found


def get(folder: Path, versions: Sequence[str]) -> None:
    """Installs each version into a folder of its own."""
    for version in versions:
        wanted = ["--target", str(folder / version), "--no-deps", f"pyspark=={version}", BRIDGE]
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *wanted], check=True)


def main() -> None:
    """Prints the table."""
    if sys.argv[1:2] == ["get"]:
        return get(Path(sys.argv[2]), sys.argv[3:] or VERSIONS)
    folders = [*sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_dir()), None] if sys.argv[1:] else [None]
    rows = [tried(folder) for folder in folders]
    print(f"| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}")
    for row in rows:
        print(f"| {' | '.join(map(str, row.values()))} |")
    print(json.dumps(rows), file=sys.stderr)
    return None


if __name__ == "__main__":
    main()
