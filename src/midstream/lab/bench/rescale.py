"""`midstream bench rescale`: from two slots to eight and back while rows come, on Spark, with a given size of state.

The windows are filled first. Then equal batches come, and the number of slots changes twice. A batch during which state
moves is held against the median batch with as many slots, and the results against those of a run that stays with two.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.job.task.memory import bytes_of
from midstream.lab.bench.figures import Report

if TYPE_CHECKING:
    from midstream.lab.yardsticks.slots import Watched

FEW, MANY = 2, 8
FILLING, UP, DOWN, BATCHES = 4, 8, 13, 18
"""The batches that fill the windows, those before which slots change, and how many there are."""

ROWS, KEYS, TEXT = 4_000, 200_000, 200
"""Rows of a stream in a batch once the windows are full, keys, and the bytes of each row's text."""

ROW_BYTES = 8 + 16 + 8 + TEXT + 4
"""What a row takes in a state: hash, times, key and text."""

SECOND = 1_000_000
CQL = "SELECT A.k, B.k AS other FROM A [RANGE 1 DAYS], B [RANGE 1 DAYS] WHERE A.k = B.k AND A.s = B.s"


def bench_rescale(state: int | str = "64 MB", seed: int = 9) -> Report:
    """The longest batch against the median one, and results against those of a run without changes."""
    from midstream.cluster.spark.environment import spark_session
    from midstream.lab.yardsticks.slots import watched_job

    spark, report = spark_session(), Report("rescale")
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as temporary:
        root = Path(temporary)
        folders = write(root / "data", bytes_of(state, "state"), seed)
        schema = "ts timestamp, k bigint, s string"
        changes = {UP: lambda session: session.rescale(MANY), DOWN: lambda session: session.rescale(FEW)}
        still = watched_job(spark, folders, schema, CQL, root / "still", FEW, {})
        moved = watched_job(spark, folders, schema, CQL, root / "moved", FEW, changes)
    _add(report, still, moved)
    return report


def _add(report: Report, still: Watched, moved: Watched) -> None:
    steady = moved.seconds[FILLING + 1 :]
    few = [*moved.seconds[FILLING + 1 : UP], *moved.seconds[DOWN + 1 :]]
    many = moved.seconds[UP + 1 : DOWN]
    report.add("state", moved.state_bytes[-1] / 1e6, "MB")
    report.add("a batch in two slots", statistics.median(few), "seconds")
    report.add("a batch in eight slots", statistics.median(many), "seconds")
    report.add("longest batch / median", max(steady) / statistics.median(steady), "ratio", 2.0, "at most")
    report.add("first batch in eight slots / median in eight", moved.seconds[UP] / statistics.median(many), "ratio")
    report.add("first batch in two slots again / median in two", moved.seconds[DOWN] / statistics.median(few), "ratio")
    report.add("changes of slots", len(moved.moves), "moves", 2)
    report.add("bytes written by moving", sum(m["bytes_written"] for m in moved.moves), "bytes", 0, "at most")
    report.add("results", moved.results, "rows", 1)
    same = (still.results, still.checksum) == (moved.results, moved.checksum)
    report.add("results equal to those of a run that stays", float(same), "yes is 1", 1)


def write(folder: Path, state: int, seed: int) -> dict[str, Path]:
    """One file per stream and batch: the first ones fill the windows."""
    random = np.random.default_rng(seed)
    filling = max(ROWS, (state // (2 * ROW_BYTES) - (BATCHES - FILLING) * ROWS) // FILLING)
    first = time.time() - BATCHES - 10
    folders = {name: folder / name for name in "AB"}
    for place in folders.values():
        place.mkdir(parents=True)
        for i in range(BATCHES):
            rows = filling if i < FILLING else ROWS
            table = pa.table(
                {
                    "ts": pa.array(
                        np.sort(random.integers(i * SECOND, (i + 1) * SECOND, rows)), pa.timestamp("us", "UTC")
                    ),
                    "k": random.integers(0, KEYS, rows),
                    "s": _texts(random, rows),
                }
            )
            path = place / f"{i:05d}.parquet"
            pq.write_table(table, path)
            # Spark reads files in order of their modification.
            os.utime(path, (first + i, first + i))
    return folders


def _texts(random: np.random.Generator, rows: int) -> pa.Array:
    """Long texts of which few are different."""
    different = pa.array([chr(97 + i) * TEXT for i in range(20)])
    return different.take(pa.array(random.integers(0, len(different), rows)))
