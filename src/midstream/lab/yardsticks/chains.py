"""Joins whose keys differ, on Spark: the cascade that Spark's own operators accept, and the same through a session.

Stream i joins the next by its column `b`, which is equal to the next one's `a`. All sides read the same files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from midstream.adaptation.policy import Mode
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.lab.yardsticks.joins import Timed, native_cascade, streaming_query, trigger_seconds, watermarked

SCHEMA = "ts timestamp, a bigint, b bigint, v bigint"


def native_chain(spark: SparkSession, folders: Sequence[Path], window: str, work: Path) -> Timed:
    """Spark's stream-stream interval joins, one after another, in the order of the chain."""
    frames = [watermarked(spark, SCHEMA, folder, i) for i, folder in enumerate(folders)]
    return native_cascade(spark, frames, window, work, lambda i: f"b{i - 1} = a{i}", lambda i: f"b{i}")


def our_chain(
    spark: SparkSession,
    folders: Mapping[str, Path],
    cql: str,
    work: Path,
    plan: str | None = None,
    adaptive: Mode = "off",
    small_batches: int | None = 0,
) -> Timed:
    """The same through a session, in executors unless small batches are allowed (None: those that are by default)."""
    options = {"maxFilesPerTrigger": "1"}
    checkpoint = str(work / "checkpoint")
    with CheckpointSession(spark, checkpoint=checkpoint, small_batches=small_batches) as session:
        for name, folder in folders.items():
            session.open_stream(name, "parquet", path=str(folder), schema=SCHEMA, options=options, time="ts")
        query = session.query("join", cql, plan=plan, adaptive=adaptive)
        session.process_available()
        seconds = trigger_seconds(streaming_query(session), unread=True)
        session.finish()
        past = [migration.record for migration in query.history]
        plans = tuple((record["end_batch"], record["new_plan"]) for record in past if record["status"] == "done")
        return Timed(seconds, query.table().num_rows, plans=plans)
