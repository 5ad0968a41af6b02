"""Parquet files that the driver reads by itself as Spark would read them, so that a small batch needs no Spark job.

Which files a batch has is in Spark's log. They are read here only where there is nothing to interpret: local files
right in the stream's folder, all columns that are needed there under their very names, in the very types that the
stream declares, and no SQL expression over them. In any other case, and if anything fails, Spark reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.algebra.declarations import StreamDeclaration
from midstream.checkpoint.failures import MissingFile
from midstream.checkpoint.spark_log import SparkLog
from midstream.cluster.spark.frames.tagging import StreamInput
from midstream.inputs.folder_paths import local_folder
from midstream.job.arriving.incoming import Incoming
from midstream.job.task.layout import PORT, Layout

OPTIONS = frozenset({"maxfilespertrigger", "maxbytespertrigger", "maxfileage", "latestfirst"})
"""Options that say which files a batch has, not how they are read."""

LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""What files say whose dates are of another calendar."""


@dataclass(frozen=True, slots=True)
class PlainFiles:
    """The folders of all streams, by the names that Spark's log has for them."""

    log: SparkLog
    folders: Mapping[str, tuple[int, Path]]

    @staticmethod
    def of(log: SparkLog, inputs: Sequence[StreamInput]) -> PlainFiles | None:
        """The folders of a session's streams; None if one of them is no plain folder of Parquet files."""
        folders: dict[str, tuple[int, Path]] = {}
        for port, stream in enumerate(inputs):
            source = stream.source
            if source is None or source.path is None or source.columns or stream.declaration.timestamps != "external":
                return None
            if source.format != "parquet" or not {key.lower() for key in source.options} <= OPTIONS:
                return None
            folders[str(port)] = folders[source.name] = port, local_folder(source.path)
        return PlainFiles(log, folders)

    def table(self, incoming: Incoming, number: int, entry: str, most: int) -> pa.Table | None:
        """The rows of a batch as they travel, if they are plain and of at most so many bytes."""
        try:
            before = "" if number == self.log.base else self.log.entry(number - 1)
            pieces = list(self._pieces(incoming, self.log.files_between(before, entry), most))
        except (_NotPlain, MissingFile, OSError, pa.ArrowException, KeyError, ValueError):
            return None
        names = [PORT, *(field.name for field in incoming.layout.columns)]
        kinds = [pa.int32(), *(field.type for field in incoming.layout.columns)]
        return pa.Table.from_batches(pieces, pa.schema(list(zip(names, kinds, strict=True))))

    def _pieces(self, incoming: Incoming, read: Mapping[str, Sequence[str]], most: int) -> Iterator[pa.RecordBatch]:
        for source, paths in read.items():
            port, folder = self.folders[source]
            for path in paths:
                if Path(path).parent != folder:
                    raise _NotPlain
                file = pq.ParquetFile(path)
                most -= file.metadata.num_rows * incoming.layout.row_bytes
                if most < 0:
                    raise _NotPlain
                yield from _tagged(file, port, incoming.streams[port], incoming.layout)


class _NotPlain(Exception):
    """Spark is to read the files."""


def _tagged(file: pq.ParquetFile, port: int, stream: StreamDeclaration, layout: Layout) -> Iterator[pa.RecordBatch]:
    names, found = layout.schemas[port].names, file.schema_arrow
    for name in names:
        declared = stream.columns.field(name).type
        if found.field(name).type != declared or pa.types.is_nested(declared):
            raise _NotPlain
        if pa.types.is_temporal(declared) and any(key in (file.metadata.metadata or {}) for key in LEGACY):
            raise _NotPlain
    for rows in file.read(columns=names).combine_chunks().to_batches():
        ports = pa.array(np.full(rows.num_rows, port, np.int32))
        wide = layout.wide(port, [rows.column(name) for name in names], rows.num_rows)
        yield pa.RecordBatch.from_arrays([ports, *wide], names=[PORT, *(field.name for field in layout.columns)])
