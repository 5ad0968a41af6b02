"""The shift workload end to end on Spark: an adaptive query against the plan both start with, on the same streams.

What adapting gains by the clock depends on how much of a batch is work on rows, so the workload is repeated over a map
of loads: rows a batch, and how many partners a row has where a link of the chain multiplies.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.api import Question
from midstream.cluster.local.embedded import StreamProgress, batches
from midstream.cluster.local.observing import observe
from midstream.lab.bench.adaptivity_runs import question_of
from midstream.lab.bench.adaptivity_streams import Phase, chain_columns, chain_query, hot_chain, record
from midstream.lab.bench.figures import Report
from midstream.optimizer.plans import plan_query

NAMES, WINDOW, TICKS = "ABCD", 200, 2100
HOT = [(0,), (1,), (2,)]
BATCHES_PER_PHASE = 12
WARM_UP = 4
AT_A_TIME = 4
PARTS = ("kernel", "state", "write", "transfer", "spark", "commit", "watch", "decide")
"""Where the time of a batch may go."""


@dataclass(frozen=True, slots=True)
class Load:
    """Rows a tick of each stream, and how many partners a row has at the link that multiplies."""

    rate: float = 16.0
    fan: float = 60.0

    def phases(self, hot: Sequence[tuple[int, ...]]) -> list[Phase]:
        """The phases of the shift."""
        return hot_chain(NAMES, hot, TICKS, self.rate, WINDOW, self.fan)


AS_EVER = Load()
MAP = [Load(rate, fan) for rate in (4.0, 16.0, 48.0) for fan in (15.0, 60.0, 240.0)]


@dataclass(slots=True)
class SparkRun:
    """A session over files: an account of each batch, and in the end the results and the migrations."""

    folder: Path
    session: Any
    query: Any
    events: list[dict[str, Any]] = field(default_factory=list)
    results: pa.Table | None = None
    migrations: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    def opened(spark: Any, folder: Path, query: str, plan: str, adaptive: Any) -> SparkRun:
        """A session on folders that are empty yet."""
        from midstream.cluster.checkpoint_session import CheckpointSession

        session = CheckpointSession(spark, checkpoint=str(folder / "checkpoint"))
        for stream in NAMES:
            (folder / stream).mkdir(parents=True)
            columns = ", ".join(f"{column} BIGINT" for column in ["ts", *chain_columns(NAMES)[stream]])
            files = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
            session.stream(stream, files.parquet(str(folder / stream)), time="ts")
        run = SparkRun(folder, session, session.query("shift", query, plan=plan, adaptive=adaptive))
        session.on_progress(run.events.append)
        return run

    def go_on(self, parts: Sequence[dict[str, pa.RecordBatch]], start: int) -> None:
        """Works through some more batches."""
        _write(self.folder, parts, start)
        self.session.process_available()

    def end(self) -> None:
        """Gives out what waits for the end."""
        with self.session as session:
            session.finish()
            self.results = self.query.table()
            self.migrations = [dict(change.record) for change in self.query.history if change.status == "done"]

    def seconds(self, *names: str) -> float:
        """The seconds of some parts of all batches after the warm-up; over slots, the slowest counts."""
        return float(sum(event["seconds"].get(name, 0.0) for event in self.events[WARM_UP:] for name in names))

    def spent(self) -> dict[str, float]:
        """The seconds of each part of a batch."""
        return {part: self.seconds(part) for part in PARTS}

    @property
    def rows(self) -> int:
        """All rows after the warm-up."""
        return sum(sum(event["rows"].values()) for event in self.events[WARM_UP:])

    @property
    def work(self) -> int:
        """Rows looked up, candidate pairs and rows stored, after the warm-up."""
        return sum(sum(event["work"].values()) for event in self.events[WARM_UP:])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pair of runs says."""

    rows: int
    """Rows a batch."""
    faster: float
    """The clock's time of the static run over the adaptive one's."""
    saved: float
    """The same by work."""
    different: int
    migrations: int
    watching: float
    deciding: float
    """Shares in per cent."""
    spent: tuple[dict[str, float], dict[str, float]]
    """Seconds by part of both runs."""


def bench_adaptivity_on_spark(seed: int = 7, seeds: int = 1) -> Report:
    """This part alone; with several seeds, in every load of the map."""
    report = Report("adaptivity-on-spark")
    for load in MAP if seeds > 1 else [AS_EVER]:
        add_figures_on_spark(report, range(seed, seed + seeds), load)
    return report


def add_figures_on_spark(report: Report, seeds: Sequence[int], load: Load = AS_EVER) -> None:
    """Runs the shift in two sessions, one of them adaptive, in turns; compares time, work and results."""
    found = [_compared(load, seed) for seed in seeds]
    name = f"shift on Spark, {found[0].rows:,} rows a batch, {load.fan:g} partners"
    for number, mode in enumerate(("static", "adaptive")):
        for part in PARTS:
            report.profile[f"{name}: {mode}, {part}"] = sum(outcome.spent[number].get(part, 0.0) for outcome in found)
    faster, saved = [outcome.faster for outcome in found], [outcome.saved for outcome in found]
    report.add(f"{name}: throughput by the clock, adaptive / static", median(faster), "ratio", 1.0)
    if len(found) > 1:
        report.add(f"{name}: the least of {len(found)} seeds", min(faster), "ratio")
        report.add(f"{name}: the most of {len(found)} seeds", max(faster), "ratio")
    report.add(f"{name}: work, static / adaptive", median(saved), "ratio", 1.0)
    report.add(f"{name}: results that differ", float(sum(o.different for o in found)), "rows", 0.0, "at most")
    report.add(f"{name}: migrations", median(outcome.migrations for outcome in found), "count")
    watching, deciding = median(o.watching for o in found), median(o.deciding for o in found)
    report.add(f"{name}: watching, share of the steps", watching, "%", 3.0, "at most")
    report.add(f"{name}: deciding, share of the batch", deciding, "%", 3.0, "at most")


def _compared(load: Load, seed: int) -> Outcome:
    from midstream.cluster.spark.environment import spark_session

    query = chain_query(NAMES, WINDOW)
    question = question_of(query, record(chain_columns(NAMES), load.phases(HOT), seed))
    plan = _first_plan(query, load, seed)
    spark = spark_session(name="midstream bench")
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as folder:
        parts = _parts(question)
        static, adaptive = (SparkRun.opened(spark, Path(folder) / mode, query, plan, mode) for mode in ("off", "auto"))
        # In turns, so that a busy moment of the machine strikes both.
        for start in range(0, len(parts), AT_A_TIME):
            for run in (static, adaptive):
                run.go_on(parts, start)
        for run in (static, adaptive):
            run.end()
    step = adaptive.seconds("job") - adaptive.seconds("spark", "transfer")
    return Outcome(
        rows=adaptive.rows // (len(parts) - WARM_UP),
        faster=static.seconds("batch") / adaptive.seconds("batch"),
        saved=static.work / adaptive.work,
        different=_different(static.results, adaptive.results),
        migrations=len(adaptive.migrations),
        watching=100 * adaptive.seconds("watch") / step,
        deciding=100 * adaptive.seconds("decide") / adaptive.seconds("batch"),
        spent=(static.spent(), adaptive.spent()),
    )


def _first_plan(query: str, load: Load, seed: int) -> str:
    """The plan that is best for the first phase, as the optimizer knows it from these streams."""
    first = question_of(query, record(chain_columns(NAMES), load.phases(HOT[:1]), seed))
    statistics = observe(first.plan, first.tables, first.catalog)
    return plan_query(first.plan, None, statistics=statistics, spread=True).text


def _parts(question: Question) -> list[dict[str, pa.RecordBatch]]:
    streams = {name: StreamProgress(question.catalog.streams[name]) for name in NAMES}
    rows = sum(table.num_rows for table in question.tables.values())
    return list(batches(streams, question.tables, rows // (BATCHES_PER_PHASE * len(HOT)) + 1))


def _write(folder: Path, parts: Sequence[dict[str, pa.RecordBatch]], start: int) -> None:
    """One file per batch and stream, in order of modification, as Spark reads them."""
    first = time.time() - AT_A_TIME - 1
    for i, part in enumerate(parts[start : start + AT_A_TIME]):
        for name in NAMES:
            rows = [part[name]] if name in part else []
            path = folder / name / f"{start + i:05d}.parquet"
            pq.write_table(pa.Table.from_batches(rows, parts[0][name].schema), path)
            os.utime(path, (first + i, first + i))


def _different(one: pa.Table | None, other: pa.Table | None) -> int:
    """How many rows are in one table and not in the other, as multisets."""
    assert one is not None and other is not None
    names = one.column_names
    counted = [
        table.append_column("n", pa.array([sign] * table.num_rows, pa.int64()))
        .group_by(names)
        .aggregate([("n", "sum")])
        for table, sign in ((one, 1), (other, -1))
    ]
    left = pa.concat_tables(counted).group_by(names).aggregate([("n_sum", "sum")])
    return int(sum(abs(n) for n in left.column("n_sum_sum").to_pylist()))
