"""`midstream bench spark-join`: window joins on Spark, Midstream against Spark's own operators, in one run."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.interface.bench.figures import Report

RATE = 2000
WINDOW_SECONDS = 10
WARM_UP = 2


def bench_spark_join(batches: int = 7, seed: int = 3) -> Report:
    """Two- and four-way joins at several batch sizes, and what Spark alone takes."""
    from midstream.runtime.spark.environment import spark_session
    from midstream.runtime.spark.yardstick import ROCKSDB, counting_job, native_join, our_join

    report = Report("spark-join")
    spark = spark_session()
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as temporary:
        root = Path(temporary)
        runs = (("AB", 100_000, (2.0, 10.0)), ("AB", 500_000, (5.0, None)), ("ABCD", 200_000, (4.0, None)))
        for names, rows, bars in runs:
            label = f"{len(names)}-way, {rows // 1000}k rows a batch"
            data = root / f"{names}-{rows}"
            folders = _write(data, names, rows // len(names), batches, seed)
            if rows == 100_000:
                # Whoever runs first in a fresh JVM pays for warming it up: let nobody that is measured be first.
                our_join(spark, folders, _query(names), data / "warm-up")
                counting_job(spark, list(folders.values()), data / "warm-up-alone", 2)
            ours = our_join(spark, folders, _query(names), data / "ours")
            native = native_join(spark, list(folders.values()), f"{WINDOW_SECONDS} seconds", data / "native")
            report.add(f"{label}: Midstream", rows / ours.steady(WARM_UP), "rows/s")
            report.add(f"{label}: Spark, state in memory", rows / native.steady(WARM_UP), "rows/s")
            ratio = native.steady(WARM_UP) / ours.steady(WARM_UP)
            report.add(f"{label}: Midstream / Spark in memory", ratio, "ratio", bars[0])
            report.add(f"{label}: results less Spark's", float(ours.results - native.results), "rows", 0.0, "at most")
            if rows == 100_000:
                rocks = native_join(spark, list(folders.values()), f"{WINDOW_SECONDS} seconds", data / "rocks", ROCKSDB)
                ratio = rocks.steady(WARM_UP) / ours.steady(WARM_UP)
                report.add(f"{label}: Midstream / Spark with RocksDB", ratio, "ratio", bars[1])
                alone = counting_job(spark, list(folders.values()), data / "alone", 2)
                own = (ours.steady(WARM_UP) - alone.steady(WARM_UP)) / alone.steady(WARM_UP)
                report.add(f"{label}: a job that only counts", rows / alone.steady(WARM_UP), "rows/s")
                report.add(f"{label}: our own part / Spark's part", own, "ratio", 0.25, "at most")
        _larger_window(report, root, batches, seed)
    return report


def _larger_window(report: Report, root: Path, batches: int, seed: int) -> None:
    """The same rows and as many results, over a window twenty times as large with twenty times the keys."""
    from midstream.runtime.spark.environment import spark_session
    from midstream.runtime.spark.yardstick import our_join

    steady = []
    for factor in (1, 20):
        data = root / f"window-{factor}"
        folders = _write(data, "AB", 50_000, batches + 8, seed, keys=20_000 * factor)
        ours = our_join(spark_session(), folders, _query("AB", WINDOW_SECONDS * factor), data / "ours")
        steady.append(ours.steady(8))
    report.add("window 20 times larger / small, time of a batch", steady[1] / steady[0], "ratio", 1.3, "at most")


def _query(names: str, seconds: int = WINDOW_SECONDS) -> str:
    streams = ", ".join(f"{name} [RANGE {seconds} SECONDS]" for name in names)
    equal = " AND ".join(f"{a}.k = {b}.k" for a, b in zip(names[:-1], names[1:], strict=True))
    return f"SELECT A.k, {', '.join(f'{n}.v AS v{n}' for n in names)} FROM {streams} WHERE {equal}"


def _write(folder: Path, names: str, rows: int, batches: int, seed: int, keys: int = 20_000) -> dict[str, Path]:
    """One file per stream and batch, in order of time."""
    random = np.random.default_rng(seed)
    span = rows * 1_000_000 // RATE
    folders = {}
    for name in names:
        folders[name] = folder / name
        folders[name].mkdir(parents=True)
        for i in range(batches):
            ticks = np.sort(random.integers(i * span, (i + 1) * span, rows))
            table = pa.table(
                {
                    "ts": pa.array(ticks, pa.timestamp("us", "UTC")),
                    "k": random.integers(0, keys, rows),
                    "v": random.integers(0, 1_000_000, rows),
                }
            )
            pq.write_table(table, folders[name] / f"{i:05d}.parquet")
    return folders
