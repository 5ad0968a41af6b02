"""`midstream bench spark-join`: window joins on Spark, Midstream against Spark's own operators, in one run.

All sides of a part read the same files, one per stream and trigger, in one Spark session. Before anything is measured
each side works through some small batches, because Java compiles what has run often enough; then they take turns.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.lab.bench.figures import Report
from midstream.lab.bench.on_spark import SparkBench

if TYPE_CHECKING:
    from midstream.lab.yardsticks.joins import Timed

RATE = 2000
WINDOW_SECONDS = 10
WARM_UP = 2
"""Batches of a run until the windows are full and the files are in the machine's memory."""

WARM_BATCHES, WARM_ROWS = 15, 20_000
"""What each side works through before it is measured."""


def bench_spark_join(batches: int = 7, seed: int = 3, only: Sequence[str] = ()) -> Report:
    """The parts that are asked for, or all."""
    from midstream.cluster.spark.environment import spark_session

    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as temporary:
        bench = Bench(spark_session(), Path(temporary), batches, seed, Report("spark-join"))
        for part in only or PARTS:
            PARTS[part](bench)
        return bench.report


@dataclass(slots=True)
class Bench(SparkBench):
    """Joins by one key, by each of the sides that are compared."""

    def side(self, name: str, names: str, folders: dict[str, Path], window: int = WINDOW_SECONDS) -> Timed:
        """One run of a side over the files."""
        from midstream.lab.yardsticks import joins as yardstick

        work = self.work()
        if name == "ours":
            return yardstick.our_join(self.spark, folders, _query(names, window), work)
        if name == "counting":
            return yardstick.counting_job(self.spark, list(folders.values()), work, 2)
        provider = yardstick.ROCKSDB if name == "rocksdb" else yardstick.IN_MEMORY
        return yardstick.native_join(self.spark, list(folders.values()), f"{window} seconds", work, provider)

    def data(self, names: str, rows: int, batches: int, keys: int = 20_000) -> dict[str, Path]:
        """Files with so many rows a batch, over all streams."""
        folder = self.root / f"{names}-{rows}-{batches}-{keys}"
        if folder.exists():
            return {name: folder / name for name in names}
        return _write(folder, names, rows // len(names), batches, self.seed, keys)

    def in_turns(self, names: str, rows: int, rounds: int, *sides: str) -> dict[str, Compared]:
        """Each side's times and results, taken in turns once all are warm."""
        self.warm_up(names, *sides)
        folders = self.data(names, rows, self.batches)
        found: dict[str, Compared] = {side: Compared() for side in sides}
        for _ in range(rounds):
            for side in sides:
                found[side].add(self.side(side, names, folders))
        return found

    def warm_up(self, names: str, *sides: str) -> None:
        """Has each side run for a while, once."""
        small = self.data(names, WARM_ROWS, WARM_BATCHES)
        for side in sides:
            if self.is_cold(side + names):
                self.side(side, names, small)


@dataclass(slots=True)
class Compared:
    """The steady triggers of all runs of a side."""

    seconds: list[float] = field(default_factory=list)
    results: int = 0

    def add(self, timed: Timed) -> None:
        """Takes a run in."""
        self.seconds += timed.seconds[WARM_UP:]
        self.results = timed.results

    @property
    def median(self) -> float:
        """The median trigger."""
        return statistics.median(self.seconds)


def _against_memory(bench: Bench, names: str, rows: int, rounds: int, bar: float, aim: str) -> None:
    label = f"{len(names)}-way, {rows // 1000}k rows a batch"
    found = bench.in_turns(names, rows, rounds, "ours", "memory")
    ours, memory = found["ours"], found["memory"]
    bench.report.add(f"{label}: Midstream", rows / ours.median, "rows/s")
    bench.report.add(f"{label}: Spark, state in memory", rows / memory.median, "rows/s")
    bench.report.add(f"{label}: Midstream / Spark in memory{aim}", memory.median / ours.median, "ratio", bar)
    _same_results(bench, label, ours, memory)


def _same_results(bench: Bench, label: str, ours: Compared, theirs: Compared) -> None:
    bench.report.add(f"{label}: results", float(ours.results), "rows", 1.0)
    difference = abs(ours.results - theirs.results)
    bench.report.add(f"{label}: results more or less than Spark's", float(difference), "rows", 0.0, "at most")


def two_way_100k(bench: Bench) -> None:
    """Two streams, 100,000 rows a batch, against state in memory."""
    _against_memory(bench, "AB", 100_000, 2, 2.0, " (aim 3)")


def two_way_500k(bench: Bench) -> None:
    """Two streams, 500,000 rows a batch, against state in memory."""
    _against_memory(bench, "AB", 500_000, 1, 5.0, "")


def four_way_200k(bench: Bench) -> None:
    """Four streams, 200,000 rows a batch, against the cascade that Spark accepts."""
    _against_memory(bench, "ABCD", 200_000, 2, 4.0, " (aim 6)")


def rocksdb(bench: Bench) -> None:
    """Two streams, 100,000 rows a batch, against state in RocksDB."""
    label = "2-way, 100k rows a batch"
    found = bench.in_turns("AB", 100_000, 1, "ours", "rocksdb")
    ratio = found["rocksdb"].median / found["ours"].median
    bench.report.add(f"{label}: Spark, state in RocksDB", 100_000 / found["rocksdb"].median, "rows/s")
    bench.report.add(f"{label}: Midstream / Spark with RocksDB", ratio, "ratio", 10.0)
    _same_results(bench, f"{label}, RocksDB", found["ours"], found["rocksdb"])


def own_part(bench: Bench) -> None:
    """What is ours of a batch of 100,000 rows, against the same job with a step that only counts rows."""
    label = "2-way, 100k rows a batch"
    found = bench.in_turns("AB", 100_000, 3, "ours", "counting")
    ours, alone = found["ours"].median, found["counting"].median
    bench.report.add(f"{label}: a job that only counts", 100_000 / alone, "rows/s")
    bench.report.add(f"{label}: our own part / Spark's part", (ours - alone) / alone, "ratio", 0.25, "at most")


def larger_window(bench: Bench) -> None:
    """The same rows and as many results, over a window twenty times as large with twenty times the keys."""
    bench.warm_up("AB", "ours")
    filled, factors = 8, (1, 20)
    seconds: dict[int, list[float]] = {factor: [] for factor in factors}
    results = {}
    for _ in range(2):
        for factor in factors:
            folders = bench.data("AB", 100_000, bench.batches + filled, 20_000 * factor)
            timed = bench.side("ours", "AB", folders, WINDOW_SECONDS * factor)
            seconds[factor] += timed.seconds[filled:]
            results[factor] = timed.results
    ratio = statistics.median(seconds[20]) / statistics.median(seconds[1])
    bench.report.add("window 20 times larger: results / those of the small one", results[20] / results[1], "ratio")
    bench.report.add("window 20 times larger / small, time of a batch", ratio, "ratio", 1.3, "at most")


GENMIG_WINDOW, GENMIG_ROWS, GENMIG_START, GENMIG_BATCHES = 50, 100_000, 8, 18
"""A window of four batches, so that a migration lasts some; it begins once the windows are full."""


def genmig(bench: Bench) -> None:
    """The batches of a migration by GenMig, against the same batches of a run that does not migrate."""
    from midstream.lab.yardsticks.joins import our_join

    plans = ("(((A B) C) D)", "(A (B (C D)))")
    bench.warm_up("ABCD", "ours")
    folders = bench.data("ABCD", GENMIG_ROWS, GENMIG_BATCHES, 20_000 * GENMIG_WINDOW // WINDOW_SECONDS)
    cql = _query("ABCD", GENMIG_WINDOW)
    change = (GENMIG_START, plans[1], "genmig")
    normal: list[float] = []
    during: list[float] = []
    for turn in range(2):
        plain = our_join(bench.spark, folders, cql, bench.root / f"genmig-plain-{turn}", plans[0])
        moved = our_join(bench.spark, folders, cql, bench.root / f"genmig-moved-{turn}", plans[0], change)
        assert moved.migrated is not None, "the migration did not end"
        first, last = moved.migrated
        normal += plain.seconds[first : last + 1]
        during += moved.seconds[first : last + 1]
    ratio = statistics.median(during) / statistics.median(normal)
    mute = sum(1 for a, b in zip(plain.released, moved.released, strict=False) if a > 0 and b == 0)
    label = f"4-way, {GENMIG_ROWS // 1000}k rows a batch"
    bench.report.add(f"{label}: batches of a migration by GenMig", float(last + 1 - first), "batches", 3.0)
    bench.report.add(f"{label}: batch during GenMig / normal", ratio, "ratio", 2.2, "at most")
    bench.report.add(f"{label}: batches without output due to GenMig", float(mute), "batches", 0.0, "at most")
    lost = abs(plain.results - moved.results)
    bench.report.add(f"{label}: results lost or doubled by GenMig", float(lost), "rows", 0.0, "at most")


PARTS: dict[str, Callable[[Bench], None]] = {
    "two-way-100k": two_way_100k,
    "rocksdb": rocksdb,
    "two-way-500k": two_way_500k,
    "four-way-200k": four_way_200k,
    "own-part": own_part,
    "larger-window": larger_window,
    "genmig": genmig,
}
"""The parts by name, in the order in which they run."""


def _query(names: str, seconds: int = WINDOW_SECONDS) -> str:
    streams = ", ".join(f"{name} [RANGE {seconds} SECONDS]" for name in names)
    equal = " AND ".join(f"{a}.k = {b}.k" for a, b in zip(names[:-1], names[1:], strict=True))
    return f"SELECT A.k, {', '.join(f'{n}.v AS v{n}' for n in names)} FROM {streams} WHERE {equal}"


def _write(folder: Path, names: str, rows: int, batches: int, seed: int, keys: int = 20_000) -> dict[str, Path]:
    """One file per stream and batch, in order of time."""
    random = np.random.default_rng(seed)
    span = rows * 1_000_000 // RATE
    first = time.time() - batches - 10
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
            path = folders[name] / f"{i:05d}.parquet"
            pq.write_table(table, path)
            # Spark reads files in order of their modification.
            os.utime(path, (first + i, first + i))
    return folders
