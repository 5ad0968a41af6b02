"""The least that a batch on Spark takes: a query that does nothing with its rows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession


def idle_batches(spark: SparkSession, folders: Mapping[str, Path], schema: str, work: Path) -> list[float]:
    """The seconds between batches of a query over the same streams that does nothing with them."""
    ended: list[float] = []

    def on_batch(rows: object, number: int) -> None:
        ended.append(time.perf_counter())

    frames = [
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
        for folder in folders.values()
    ]
    union = frames[0].unionAll(frames[1])
    stream = union.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(work)).trigger(availableNow=True)
    stream.start().awaitTermination()
    return [b - a for a, b in zip(ended, ended[1:], strict=False)]
