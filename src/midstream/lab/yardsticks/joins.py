"""Yardsticks on Spark: the same join by Spark's own operators, and the same job with a step that only counts rows.

All of them read the same files at the same rate, write their results as Parquet and are timed by Spark's own account of
each trigger, so that their times can be held against each other.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.spark.backend import SparkBackend
from midstream.cluster.spark.environment import ship_package

SCHEMA = "ts timestamp, k bigint, v bigint"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


@dataclass(frozen=True, slots=True)
class Timed:
    """How long each trigger with rows took, in seconds, and how many results there were in the end.

    `released` are the results that each batch of ours gave out; `migrated` are the first and the last batch of a
    migration; `plans` are those that a query went over to, each with the batch in which it had.
    """

    seconds: tuple[float, ...]
    results: int
    released: tuple[int, ...] = ()
    migrated: tuple[int, int] | None = None
    plans: tuple[tuple[int, str], ...] = ()

    def steady(self, warm_up: int) -> float:
        """The median trigger after some to warm up."""
        return statistics.median(self.seconds[warm_up:] or self.seconds)


def native_join(
    spark: SparkSession, folders: Sequence[Path], window: str, work: Path, provider: str = IN_MEMORY
) -> Timed:
    """Spark's stream-stream interval join by one key; a cascade where there are more than two streams."""
    frames = [watermarked(spark, SCHEMA, folder, i) for i, folder in enumerate(folders)]
    return native_cascade(spark, frames, window, work, lambda i: f"k0 = k{i}", lambda i: "k0", provider)


def native_cascade(
    spark: SparkSession,
    frames: Sequence[DataFrame],
    window: str,
    work: Path,
    condition: Callable[[int], str],
    key: Callable[[int], str],
    provider: str = IN_MEMORY,
) -> Timed:
    """Spark's interval joins, one stream after another; the columns of stream i end with i.

    `condition(i)` is what joins stream i to those before it, `key(i)` the column that the next one is joined by.
    """
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    joined, *others = frames
    for i, other in enumerate(others, 1):
        near = [f"t{i} BETWEEN t{j} - INTERVAL {window} AND t{j} + INTERVAL {window}" for j in range(i)]
        joined = joined.join(other, F.expr(f"{condition(i)} AND " + " AND ".join(near)))
        # Only one event-time column may enter the next stateful operator: the others become plain ones.
        plain = [F.expr(f"timestamp_micros(unix_micros(t{j}))").alias(f"t{j}") for j in range(1, i + 1)]
        kept = ["t0", key(i), *(f"v{j}" for j in range(i + 1))]
        joined = joined.select(*kept, *(plain if i < len(others) else []))
    query = (
        joined.writeStream.format("parquet")
        .option("path", str(work / "results"))
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    return Timed(trigger_seconds(query), spark.read.parquet(str(work / "results")).count())


def our_join(
    spark: SparkSession,
    folders: Mapping[str, Path],
    cql: str,
    work: Path,
    plan: str | None = None,
    migrate: tuple[int, str, str] | None = None,
) -> Timed:
    """The same join through a session; `migrate` is a batch, the plan to go over to before it, and the strategy."""
    frontiers: list[int] = []
    with CheckpointSession(spark, checkpoint=str(work / "checkpoint"), small_batches=0) as session:
        for name, folder in folders.items():
            session.stream(name, files(spark, SCHEMA, folder), time="ts")
        query = session.query("join", cql, plan=plan)
        session.on_progress(lambda _: frontiers.append(session.job.manifest.released["join"]))
        if migrate is not None:
            at, target, strategy = migrate
            session.before_batch(lambda batch: query.migrate(target, strategy) if batch == at else None)
        session.process_available()
        stream = streaming_query(session)
        seconds, released = trigger_seconds(stream), _released(query.table(), frontiers)
        past = query.history[-1].record if query.history else {}
        session.finish()
        migrated = (past["start_batch"], past["end_batch"]) if past.get("end_batch") is not None else None
        return Timed(seconds, session.results("join").count(), released, migrated)


def _released(results: pa.Table, frontiers: Sequence[int]) -> tuple[int, ...]:
    """How many results each batch gave out: those that start before its frontier, and not before the last one."""
    starts = np.sort(results.column("valid_from").cast(pa.int64()).to_numpy())
    return tuple(int(n) for n in np.diff(np.searchsorted(starts, frontiers), prepend=0))


def counting_job(spark: SparkSession, folders: Sequence[Path], work: Path, slots: int) -> Timed:
    """A job of the same shape whose step only counts its rows: Spark's own part of a batch."""
    ship_package(spark)
    frames = [files(spark, SCHEMA, f).withColumn("port", F.lit(i)) for i, f in enumerate(folders)]
    union = frames[0]
    for frame in frames[1:]:
        union = union.unionByName(frame)
    counted: list[int] = []

    def on_batch(batch: DataFrame, _: int) -> None:
        slot = F.pmod(F.xxhash64("k"), F.lit(slots)).cast("int")
        steps = batch.repartitionById(slots, slot).mapInArrow(_count, "rows bigint")
        counted.append(sum(row[0] for row in steps.collect()))

    query = (
        union.writeStream.foreachBatch(on_batch)
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return Timed(trigger_seconds(query), sum(counted))


def _count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def files(spark: SparkSession, schema: str, folder: Path) -> DataFrame:
    """A folder of Parquet files as a stream, one file a trigger."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def watermarked(spark: SparkSession, schema: str, folder: Path, i: int) -> DataFrame:
    """The same as stream i of a cascade: its time is `ti`, its other columns end with i too."""
    frame = files(spark, schema, folder)
    names = {name: "t" if name == "ts" else name for name in frame.columns}
    return frame.selectExpr(*(f"{name} AS {new}{i}" for name, new in names.items())).withWatermark(f"t{i}", "0 seconds")


def streaming_query(session: CheckpointSession) -> StreamingQuery:
    """Spark's query under a session that has been started."""
    backend = session._backend
    assert isinstance(backend, SparkBackend) and backend.streaming_query is not None
    return backend.streaming_query


def trigger_seconds(query: StreamingQuery, unread: bool = False) -> tuple[float, ...]:
    """The length of every trigger that had rows; if Spark left some `unread`, of every one that ran a batch."""
    taken = []
    for progress in query.recentProgress:
        record = progress if isinstance(progress, dict) else json.loads(progress.json)
        if record.get("numInputRows") or (unread and "addBatch" in record["durationMs"]):
            taken.append(record["durationMs"]["triggerExecution"] / 1000)
    return tuple(taken)
