"""Streams of files for sessions: one file is one batch."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = "k BIGINT, v BIGINT, ts BIGINT"


class Feed:
    """A folder that a stream is read from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self.first = time.time() - 10_000
        folder.mkdir(parents=True, exist_ok=True)

    def rows(self, *rows: tuple[Any, ...]) -> pa.Table:
        """Adds a batch of rows (k, v, ts)."""
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        table = pa.table({n: pa.array(c, pa.int64()) for n, c in zip(("k", "v", "ts"), columns, strict=True)})
        draft = self.folder / f".{self.count:06d}.parquet"  # a session that runs must not find half a file
        pq.write_table(table, draft)
        os.utime(draft, (self.first + self.count, self.first + self.count))
        draft.rename(self.folder / f"{self.count:06d}.parquet")
        self.count += 1
        return table

    def frame(self, spark: Any) -> Any:
        """The stream."""
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder))
