"""Spark's Python workers: what a task does once for all tasks after it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from midstream.cluster.spark.in_task import in_task


class Watching:
    """A step that tells how many objects no collection looks at."""

    def run(self, slot: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.record_batch(
            {"worker": [os.getpid()], "kept": [gc.get_freeze_count()], "left": [len(gc.get_objects())]}
        )


def test_a_worker_does_not_look_through_all_modules_after_every_task(spark):
    def run() -> Any:
        return spark.range(0, 2, 1, 2).mapInArrow(in_task(Watching()), "worker long, kept long, left long").collect()

    assert all(row["kept"] > 10_000 and row["left"] < row["kept"] / 2 for row in (*run(), *run()))
