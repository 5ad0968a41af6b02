"""What does not fit into memory, in local files without a name.

Such a file is gone with the process that made it, however that ends, so nothing is ever left behind. It is read where
it lies: its pages are the file's, and the machine may drop them whenever it needs the room.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.checkpoint.failures import storage_errors
from midstream.checkpoint.parquet import parquet_bytes, written_as


def spill_folder() -> str:
    """Where such files are made: Spark's local folder where there is one."""
    for name in ("SPARK_LOCAL_DIRS", "LOCAL_DIRS"):
        first = os.environ.get(name, "").split(",")[0].strip()
        if first and os.path.isdir(first):
            return first
    return tempfile.gettempdir()


class Spill:
    """Record batches of one schema, written one after the other and then read back."""

    def __init__(self, schema: pa.Schema) -> None:
        self.folder = spill_folder()
        with storage_errors("write a temporary file in", self.folder):
            self.file: IO[Any] = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115
            self.writer = pa.ipc.new_stream(self.file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds a batch."""
        with storage_errors("write a temporary file in", self.folder):
            self.writer.write_batch(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All batches, in the order written; nothing can be added any more."""
        with storage_errors("write a temporary file in", self.folder):
            self.writer.close()
            content = mapped(self.file)
        yield from pa.ipc.open_stream(content)


class ParquetSpool:
    """A Parquet file in the making: tables in memory while they are small, row groups of a file beyond."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows = 0
        self.held: list[pa.Table] = []
        self.bytes = 0
        self.file: IO[Any] | None = None
        self.writer: pq.ParquetWriter | None = None

    def add(self, table: pa.Table) -> None:
        """Adds the rows of a table."""
        self.rows += table.num_rows
        self.bytes += table.nbytes
        self.held.append(table)
        if self.bytes > self.most:
            self._write()

    def _write(self) -> None:
        table = pa.concat_tables(self.held)
        with storage_errors("write a temporary file in", spill_folder()):
            if self.writer is None:
                self.file = tempfile.TemporaryFile(dir=spill_folder())  # noqa: SIM115
                self.writer = pq.ParquetWriter(self.file, table.schema, **written_as(table.schema))
            self.writer.write_table(table)
        self.held, self.bytes = [], 0

    def content(self) -> pa.Buffer | None:
        """The whole file; None if nothing was added."""
        if self.writer is None or self.file is None:
            return parquet_bytes(pa.concat_tables(self.held)) if self.held else None
        if self.held:
            self._write()
        with storage_errors("write a temporary file in", spill_folder()):
            self.writer.close()
            return mapped(self.file)


def mapped(file: IO[Any]) -> pa.Buffer:
    """The content of a file, mapped; the file can be forgotten."""
    file.flush()
    content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    file.close()
    return pa.py_buffer(content)
