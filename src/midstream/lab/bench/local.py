"""`midstream bench local`: a durable job in this process against the same job on Spark, on the same files.

Both read one file per stream and batch and commit a manifest after each. A batch of Spark's is timed from trigger to
trigger, one in this process from the first look at the folders to the end of its commit. On Spark batches run in
executors, which the bars are about, and also where a job runs them by default, which is the driver for these sizes.
`midstream bench spark-floor` holds a batch on Spark against one that does nothing at all, which is the least that Spark
takes.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.lab.bench.figures import Report

CQL = "SELECT A.k, A.v AS a, B.v AS b FROM A [RANGE 2000], B [RANGE 2000] WHERE A.k = B.k"
SCHEMA = "ts BIGINT, k BIGINT, v BIGINT"
EXECUTORS, DRIVER = "Spark in executors", "Spark by default"
WARM_UP = 5
"""Batches until the windows are full and Java has compiled what runs."""


def bench_local(small: int = 1_000, large: int = 100_000, batches: int = 25, seed: int = 7) -> Report:
    """Rows a second and the time of small batches, in this process and on Spark."""
    from midstream.cluster.spark.environment import spark_session

    spark = spark_session()
    report = Report("local")
    times: dict[tuple[str, int], float] = {}
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as temporary:
        for rows in (small, large):
            folders = write(Path(temporary) / f"data-{rows}", rows, batches, seed)
            for on in ("local", EXECUTORS, DRIVER):
                work = Path(temporary) / f"{on}-{rows}"
                taken, results = run(None if on == "local" else spark, folders, work, 0 if on == EXECUTORS else None)
                times[on, rows] = statistics.median(taken["batch"][WARM_UP:])
                report.add(f"{on}: results of batches of {rows:,} rows", results, "rows")
                report.add(f"{on}: a batch of {rows:,} rows", times[on, rows] * 1000, "ms")
                if on == "local":
                    commit = statistics.median(taken["commit"][WARM_UP:]) * 1000
                    report.add(f"local: commit of a batch of {rows:,} rows", commit, "ms", 20.0, "at most")
    for on in (EXECUTORS, DRIVER):
        faster, shorter = times[on, large] / times["local", large], times["local", small] / times[on, small]
        barred = on == EXECUTORS
        report.add(f"rows a second at {large:,} rows a batch, local / {on}", faster, "ratio", 3.0 if barred else None)
        label = f"time of a batch of {small:,} rows, local / {on}"
        report.add(label, shorter, "ratio", 1 / 20 if barred else None, "at most")
    return report


def bench_spark_floor(rows: int = 1_000, batches: int = 25, seed: int = 7) -> Report:
    """A batch on Spark against a batch of a query that does nothing with its rows."""
    from midstream.cluster.spark.environment import spark_session
    from midstream.lab.yardsticks.floor import idle_batches

    spark = spark_session()
    bare: list[float] = []
    ours: list[float] = []
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as temporary:
        folders = write(Path(temporary) / "data", rows, batches, seed)
        for turn in range(2):
            bare += idle_batches(spark, folders, SCHEMA, Path(temporary) / f"bare-{turn}")[WARM_UP:]
            taken, _ = run(spark, folders, Path(temporary) / f"ours-{turn}")
            ours += taken["batch"][WARM_UP:]
    report = Report("spark-floor")
    report.add("a batch that does nothing", statistics.median(bare) * 1000, "ms")
    report.add(f"a batch of {rows:,} rows", statistics.median(ours) * 1000, "ms")
    report.add("ratio", statistics.median(ours) / statistics.median(bare), "ratio", 1.5, "at most")
    return report


def write(root: Path, rows: int, batches: int, seed: int) -> dict[str, Path]:
    """Folders of the two streams, a file per batch."""
    folders = {name: root / name for name in "AB"}
    for number, folder in enumerate(folders.values()):
        folder.mkdir(parents=True)
        for batch in range(batches):
            random = np.random.default_rng([seed, number, batch])
            times = np.sort(random.integers(batch * 1000, (batch + 1) * 1000, rows))
            table = pa.table({"ts": times, "k": random.integers(0, rows, rows), "v": random.integers(0, 100, rows)})
            path = folder / f"{batch:06d}.parquet"
            pq.write_table(table, path)
            # Files are read in the order in which they were written; a clock does not tell all of these apart.
            os.utime(path, (batch, batch))
    return folders


def run(
    spark: Any, folders: Mapping[str, Path], work: Path, small_batches: int | None = None
) -> tuple[dict[str, list[float]], int]:
    """The seconds of batches and of their commits, and how many results there were."""
    taken: dict[str, list[float]] = {"batch": [], "commit": []}
    last = time.perf_counter()

    def note_batch(event: dict[str, Any]) -> None:
        nonlocal last
        now = time.perf_counter()
        taken["batch"].append(now - last)
        taken["commit"].append(event["seconds"]["commit"])
        last = now

    on = "local" if spark is None else "spark"
    with CheckpointSession(spark, checkpoint=str(work), on=on, small_batches=small_batches) as session:
        for name, folder in folders.items():
            options = {"maxFilesPerTrigger": "1"}
            session.open_stream(name, "parquet", path=str(folder), schema=SCHEMA, options=options)
        query = session.query("join", CQL)
        session.on_progress(note_batch)
        session.process_available()
        return taken, query.table().num_rows
