"""The same windowed count over two streams, one of which falls silent, through a session and by Spark's own operators.

Both read the same files, one per stream and trigger. What is noted is which windows each batch gave out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from midstream.cluster.checkpoint_session import CheckpointSession

SCHEMA = "ts timestamp, k bigint"
Given = dict[tuple[int, int], tuple[int, int]]
"""By window (the second it ends at) and key: the batch that gave it out, and the count."""


def our_counts(spark: SparkSession, folders: Mapping[str, Path], seconds: int, skew: str | None, work: Path) -> Given:
    """The windows that a session gives out; `skew` is declared for the stream that falls silent, the second."""
    window = f"[TUMBLE {seconds} SECONDS]"
    parts = " UNION ALL ".join(f"SELECT {name}.k FROM {name} {window}" for name in folders)
    frontiers: list[int] = []
    with CheckpointSession(spark, checkpoint=str(work / "checkpoint")) as session:
        for name, folder in folders.items():
            silent = name == list(folders)[-1]
            session.stream(name, _files(spark, folder), time="ts", skew=skew if silent else None)
        query = session.query("counted", f"SELECT k, count(*) AS n FROM ({parts}) AS u GROUP BY k")
        session.on_progress(lambda _: frontiers.append(session.job.manifest.released["counted"]))
        session.process_available()
        results = query.table()
    starts = results.column("valid_from").cast(pa.int64()).to_numpy()
    batches = np.searchsorted(frontiers, starts, side="right")
    ends = (starts // 1_000_000).tolist()
    keys, counts = results.column("k").to_pylist(), results.column("n").to_pylist()
    return {(end, k): (int(b), n) for end, k, n, b in zip(ends, keys, counts, batches, strict=True)}


def native_counts(spark: SparkSession, folders: Mapping[str, Path], seconds: int, work: Path) -> Given:
    """The windows that Spark's own aggregation gives out, once its watermark has passed them."""
    frames = [_files(spark, folder).withWatermark("ts", "0 seconds") for folder in folders.values()]
    united = frames[0].unionByName(frames[1])
    grouped = united.groupBy(F.window("ts", f"{seconds} seconds").alias("w"), "k").agg(F.count("*").alias("n"))
    shown = grouped.select(F.unix_seconds("w.end").alias("end"), "k", "n")
    given: Given = {}

    def on_batch(rows: DataFrame, batch: int) -> None:
        for row in rows.collect():
            given[row.end, row.k] = (batch, row.n)

    query = (
        shown.writeStream.foreachBatch(on_batch)
        .outputMode("append")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return given


def _files(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
