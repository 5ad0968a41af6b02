"""`midstream bench silent-stream`: how long results wait for a stream that has fallen silent, here and on plain Spark.

Rows of two streams are counted together by window and key. After a few batches the second stream brings nothing more;
each batch of the first then completes a window. A window is due in the batch whose rows pass its end.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.lab.bench.figures import Report

SECONDS = 10
"""The length of a window, and of a batch."""

TALKING, ROWS, KEYS = 4, 40, 4
"""Batches in which both streams have rows; rows of a stream in a batch; different keys."""


def bench_silent_stream(silent: int = 100, seed: int = 5) -> Report:
    """Delays in batches, and what plain Spark gives out in the meantime."""
    from midstream.cluster.spark.environment import spark_session
    from midstream.lab.yardsticks.silence import Given, native_counts, our_counts

    spark = spark_session()
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as temporary:
        root = Path(temporary)
        folders, expected = write_streams(root, TALKING, silent, seed)
        ours = our_counts(spark, folders, SECONDS, "1 seconds", root / "ours")
        native = native_counts(spark, folders, SECONDS, root / "native")
    last = TALKING + silent
    # The last batch's window is due in no batch, and the one before it can only be given with one more.
    due = {window: window[0] // SECONDS for window in expected if TALKING < window[0] // SECONDS < last - 1}

    def wrong(given: Given) -> int:
        return sum(1 for window, (_, count) in given.items() if expected.get(window) != count)

    def delay(given: Given) -> int:
        return max((given[w][0] if w in given else last) - batch for w, batch in due.items())

    report = Report("silent-stream")
    report.add("batches in which one of two streams is silent", float(silent), "batches", 100.0)
    report.add("results due meanwhile", float(len(due)), "rows")
    report.add("Midstream, with a skew: longest delay of a result", float(delay(ours)), "batches", 2.0, "at most")
    report.add("Midstream: results given meanwhile", float(sum(w in ours for w in due)), "rows", float(len(due)))
    report.add("Spark: results given meanwhile", float(sum(w in native for w in due)), "rows", 0.0, "at most")
    report.add("Spark: longest delay of a result, still waiting at the end", float(delay(native)), "batches")
    report.add("wrong counts, both", float(wrong(ours) + wrong(native)), "rows", 0.0, "at most")
    return report


def write_streams(root: Path, talking: int, silent: int, seed: int) -> tuple[dict[str, Path], Counter[tuple[int, int]]]:
    """Files of both streams, and the counts by window and key that are right."""
    random = np.random.default_rng(seed)
    folders = {name: root / name for name in "AB"}
    expected: Counter[tuple[int, int]] = Counter()
    first = time.time() - talking - silent - 10
    for name, batches in (("A", talking + silent), ("B", talking)):
        folders[name].mkdir(parents=True)
        for i in range(batches):
            ticks = np.sort(random.integers(i * SECONDS * 1_000_000, (i + 1) * SECONDS * 1_000_000, ROWS))
            keys = random.integers(0, KEYS, ROWS)
            for key in keys.tolist():
                expected[(i + 1) * SECONDS, key] += 1
            path = folders[name] / f"{i:05d}.parquet"
            pq.write_table(pa.table({"ts": pa.array(ticks, pa.timestamp("us", "UTC")), "k": keys}), path)
            # Spark reads files in order of their modification.
            os.utime(path, (first + i, first + i))
    return folders, expected
