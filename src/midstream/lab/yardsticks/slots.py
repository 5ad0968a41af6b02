"""Jobs on Spark whose slots are watched: what each slot has to do in each batch, and what moves between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from midstream.cluster.checkpoint_session import CheckpointSession

Change = Callable[[CheckpointSession], object]
"""What is asked of a session before a batch."""


@dataclass(slots=True)
class Watched:
    """What a job did: seconds by batch, processor seconds by slot and batch, its moves, and its results."""

    seconds: list[float] = field(default_factory=list)
    slots: list[dict[int, float]] = field(default_factory=list)
    state_bytes: list[int] = field(default_factory=list)
    moves: list[dict[str, Any]] = field(default_factory=list)
    results: int = 0
    checksum: int = 0


def watched_job(
    spark: SparkSession,
    folders: Mapping[str, Path],
    schema: str,
    cql: str,
    work: Path,
    slots: int,
    changes: Mapping[int, Change],
) -> Watched:
    """Runs a query over files, one of each stream a batch, in so many slots; `changes` are made before batches."""
    found = Watched()

    def note(event: dict[str, Any]) -> None:
        found.seconds.append(event["seconds"]["batch"])
        found.slots.append(event["slots"])
        found.state_bytes.append(sum(query["state_bytes"] for query in event["queries"].values()))

    def change(batch: int) -> None:
        if batch in changes:
            changes[batch](session)

    with CheckpointSession(spark, checkpoint=str(work / "checkpoint"), slots=slots, small_batches=0) as session:
        for name, folder in folders.items():
            files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
            session.stream(name, files, time="ts")
        query = session.query("q", cql)
        session.on_progress(note)
        session.before_batch(change)
        session.process_available()
        session.finish()
        found.moves = session.moves
        results = query.table()
        found.results, found.checksum = results.num_rows, _checksum(results)
    return found


def _checksum(results: pa.Table) -> int:
    """A sum over all rows that their order does not change."""
    total = 0
    for name in results.column_names:
        column = results.column(name)
        if pa.types.is_temporal(column.type):
            column = column.cast(pa.int64())
        if pa.types.is_integer(column.type):
            total += int(pc.sum(pc.bit_wise_and(column, 0xFFFFF)).as_py() or 0)
    return total
