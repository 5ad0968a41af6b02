"""Joins whose keys differ, on Spark: the cascade that Spark's own operators accept, and the same through a session.

Stream i joins the next by its column `b`, which is equal to the next one's `a`. All sides read the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.lab.yardsticks.joins import IN_MEMORY, Timed, streaming_query, trigger_seconds

SCHEMA = "ts timestamp, a bigint, b bigint, v bigint"


def native_chain(spark: SparkSession, folders: Sequence[Path], window: str, work: Path) -> Timed:
    """Spark's stream-stream interval joins, one after another, in the order of the chain."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", IN_MEMORY)
    first, *others = [_watermarked(spark, folder, i) for i, folder in enumerate(folders)]
    joined = first
    for i, other in enumerate(others, 1):
        near = [f"t{i} BETWEEN t{j} - INTERVAL {window} AND t{j} + INTERVAL {window}" for j in range(i)]
        joined = joined.join(other, F.expr(f"b{i - 1} = a{i} AND " + " AND ".join(near)))
        # Only one event-time column may enter the next stateful operator: the others become plain ones.
        plain = [F.expr(f"timestamp_micros(unix_micros(t{j}))").alias(f"t{j}") for j in range(1, i + 1)]
        kept = ["t0", f"b{i}", *(f"v{j}" for j in range(i + 1))]
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


def our_chain(
    spark: SparkSession,
    folders: Mapping[str, Path],
    cql: str,
    work: Path,
    plan: str | None = None,
    kernel: Callable[[float], None] | None = None,
) -> Timed:
    """The same through a session, in executors; `kernel` is told the seconds of all slots' operators in every batch."""
    with CheckpointSession(spark, checkpoint=str(work / "checkpoint"), small_batches=0) as session:
        for name, folder in folders.items():
            session.stream(name, _files(spark, folder), time="ts")
        query = session.query("join", cql, plan=plan)
        if kernel is not None:
            session.on_progress(lambda event: kernel(event["seconds"]["kernel"]))
        session.process_available()
        seconds = trigger_seconds(streaming_query(session))
        session.finish()
        return Timed(seconds, query.table().num_rows)


def _files(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def _watermarked(spark: SparkSession, folder: Path, i: int) -> DataFrame:
    frame = _files(spark, folder).selectExpr(f"ts AS t{i}", f"a AS a{i}", f"b AS b{i}", f"v AS v{i}")
    return frame.withWatermark(f"t{i}", "0 seconds")
