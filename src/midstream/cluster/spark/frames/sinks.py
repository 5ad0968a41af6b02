"""Where results go besides the results table: each is called with the results that a batch released.

A batch can be repeated after a crash, with the same number and the same results, so a sink that must not double
anything looks at the number. The folder sink writes one file per batch under a name made of it, and only once.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame

from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.failures import AlreadyThere
from midstream.job.task.spill import parquet_bytes

Sink = Callable[[DataFrame, int], None]


def console(name: str, rows: int = 20) -> Sink:
    """Shows the first rows of each batch."""

    def show(frame: DataFrame, batch_id: int) -> None:
        print(f"{name}, batch {batch_id}", flush=True)
        frame.show(rows, truncate=False)

    return show


class Memory:
    """Keeps the results of each batch in the driver; for tests and small jobs."""

    def __init__(self) -> None:
        self.batches: dict[int, pa.Table] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Takes the results of a batch; a repeated batch replaces itself."""
        self.batches[batch_id] = frame.toArrow()

    @property
    def table(self) -> pa.Table:
        """All results so far, in order."""
        return pa.concat_tables([self.batches[i] for i in sorted(self.batches)])


def folder(uri: str) -> Sink:
    """Writes one Parquet file per batch into a folder, which Spark can read as a stream."""
    files = files_at(uri)

    def write(frame: DataFrame, batch_id: int) -> None:
        table = frame.toArrow()
        if table.num_rows == 0:
            return
        try:
            files.write_atomic(f"{batch_id:012d}.parquet", parquet_bytes(table), only_if_absent=True, point="sink")
        except AlreadyThere:
            return

    return write
