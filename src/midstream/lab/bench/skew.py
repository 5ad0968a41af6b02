"""`midstream bench skew`: how even slots are after balancing when some keys come much more often, on Spark.

A stream with Zipf keys is joined with one in which all keys are alike. After some batches the job is rebalanced;
the busiest slot's load in a batch, its processor seconds, is held against the mean of all slots. Another part gives 40
percent of the rows to one key, which no dealing of groups divides: where that is more than a slot's share, several
slots share its group. Spark's own join reads the same files in the same run.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.lab.bench.figures import Report

if TYPE_CHECKING:
    from midstream.lab.yardsticks.slots import Watched

KEYS, ROWS, RATE = 20_000, 40_000, 20_000
"""Keys, rows of a stream in a batch, and rows of a stream in a second of event time."""

WINDOW = 2
BALANCED_AT, BATCHES = 3, 9
"""The batch before which groups are dealt anew, and how many there are."""

CQL = f"SELECT A.k, A.v AS a, B.v AS b FROM A [RANGE {WINDOW} SECONDS], B [RANGE {WINDOW} SECONDS] WHERE A.k = B.k"


def bench_skew(slots: Sequence[int] = (2, 4, 8), seed: int = 5) -> Report:
    """The busiest slot against the mean, before and after balancing, and batches against Spark's."""
    from midstream.cluster.spark.environment import spark_session
    from midstream.lab.yardsticks.joins import native_join
    from midstream.lab.yardsticks.slots import watched_job

    spark, report = spark_session(), Report("skew")
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as temporary:
        root = Path(temporary)
        for label, hot, bar in (("Zipf keys", 0.0, 1.15), ("one key with 40 %", 0.4, 1.4)):
            folders = write(root / f"data-{hot}", seed, hot)
            native = native_join(spark, list(folders.values()), f"{WINDOW} seconds", root / f"native-{hot}")
            for count in slots:
                work = root / f"slots-{count}-{hot}"
                schema = "ts timestamp, k bigint, v bigint"
                change = {BALANCED_AT: lambda session: session.rebalance()}
                ours = watched_job(spark, folders, schema, CQL, work, count, change)
                _add(report, f"{label}, {count} slots", ours, bar)
                batch = statistics.median(ours.seconds[BALANCED_AT + 1 :])
                name = f"{label}, {count} slots: Spark's join / ours, time of a batch"
                report.add(name, statistics.median(native.seconds[BALANCED_AT + 1 :]) / batch, "ratio")
                difference = abs(ours.results - native.results)
                report.add(
                    f"{label}, {count} slots: results more or less than Spark's", difference, "rows", 0, "at most"
                )
    return report


def _add(report: Report, label: str, ours: Watched, bar: float) -> None:
    before, after = _unevenness(ours, 1, BALANCED_AT), _unevenness(ours, BALANCED_AT + 1, BATCHES)
    report.add(f"{label}: busiest slot / mean before", before, "ratio")
    report.add(f"{label}: busiest slot / mean after balancing", after, "ratio", bar, "at most")
    report.add(
        f"{label}: bytes written by moving groups", sum(m["bytes_written"] for m in ours.moves), "bytes", 0, "at most"
    )
    report.add(f"{label}: groups moved", sum(m["groups"] for m in ours.moves), "groups")
    report.add(f"{label}: groups spread over slots", sum(len(m.get("spread", ())) for m in ours.moves), "groups")


def _unevenness(ours: Watched, start: int, end: int) -> float:
    """The busiest slot's median load in some batches against the mean of all slots'."""
    batches = ours.slots[start:end]
    each = [statistics.median(batch.get(slot, 0.0) for batch in batches) for slot in batches[0]]
    return max(each) / statistics.mean(each)


def write(folder: Path, seed: int, hot: float) -> dict[str, Path]:
    """One file per stream and batch: keys of A by Zipf's law, one with the part `hot` besides; those of B are alike."""
    random = np.random.default_rng(seed)
    weights = 1 / np.arange(1, KEYS + 1)
    weights /= weights.sum()
    names = random.permutation(KEYS)
    span, first = ROWS * 1_000_000 // RATE, time.time() - BATCHES - 10
    folders = {name: folder / name for name in "AB"}
    for name, place in folders.items():
        place.mkdir(parents=True)
        for i in range(BATCHES):
            keys: npt.NDArray[np.int64] = random.integers(0, KEYS, ROWS)
            if name == "A":
                keys = names[random.choice(KEYS, ROWS, p=weights)]
                keys = np.where(random.random(ROWS) < hot, names[0], keys)
            ticks = np.sort(random.integers(i * span, (i + 1) * span, ROWS))
            table = pa.table(
                {
                    "ts": pa.array(ticks, pa.timestamp("us", "UTC")),
                    "k": keys,
                    "v": random.integers(0, 1_000_000, ROWS),
                }
            )
            path = place / f"{i:05d}.parquet"
            pq.write_table(table, path)
            # Spark reads files in order of their modification.
            os.utime(path, (first + i, first + i))
    return folders
