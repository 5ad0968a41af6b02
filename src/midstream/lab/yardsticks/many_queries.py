"""Queries over the same streams in one session, timed by Spark's own account of each trigger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.lab.yardsticks.joins import streaming_query, trigger_seconds

SCHEMA = "ts bigint, k bigint, v bigint"


@dataclass(frozen=True, slots=True)
class Asked:
    """How long each trigger with rows took; results in all; rows of state after the last batch, each counted once."""

    seconds: tuple[float, ...]
    results: int
    state_rows: int


def many_queries(spark: SparkSession, folders: Mapping[str, Path], queries: Mapping[str, str], work: Path) -> Asked:
    """Runs queries over files, one per stream and trigger."""
    with CheckpointSession(spark, checkpoint=str(work)) as session:
        for name, folder in folders.items():
            files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
            session.stream(name, files, time="ts")
        for name, cql in queries.items():
            session.query(name, cql)
        session.process_available()
        stream, manifest = streaming_query(session), session._job.manifest
        assert manifest is not None
        held = {entry.place: entry.rows for entry in manifest.entries()}
        return Asked(
            trigger_seconds(stream), sum(account.results for account in manifest.accounts.values()), sum(held.values())
        )
