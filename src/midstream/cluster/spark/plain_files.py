"""Files that the driver reads by itself as Spark's tasks would read them, so that a small batch needs no Spark job.

Which files a batch has is in Spark's log. Text has one reader wherever it is read. Parquet is read here only where
there is nothing to interpret: local files right in the stream's folder, all columns of the stream there under their
very names, in the very types that the stream declares, and no SQL expression over them. In any other case, and if
anything fails, Spark reads them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.checkpoint.failures import MissingFile
from midstream.checkpoint.spark_log import LoggedFile, SparkLog
from midstream.cluster.spark.frames.sources import text_contents
from midstream.cluster.spark.frames.tagging import StreamInput
from midstream.connectors.files.contents import FileContents
from midstream.connectors.files.options import OWN
from midstream.inputs import NamedSource
from midstream.inputs.folder_paths import is_local, local_folder
from midstream.job.circumstances import Incoming
from midstream.job.task.exchange import PORT, Layout

OPTIONS = frozenset({"maxfilespertrigger", "maxbytespertrigger", "maxfileage", "latestfirst"})
"""Options that say which files a batch has, not how they are read."""

Logged = Mapping[str, Sequence[LoggedFile]]
"""Files by source, as Spark's log names it."""

LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""What files say whose dates are of another calendar."""


@dataclass(frozen=True, slots=True)
class PlainFolder:
    """The folder of a stream, and how its files are read if they are text."""

    port: int
    folder: Path
    text: FileContents | None = None

    @staticmethod
    def of(port: int, source: NamedSource | None) -> PlainFolder | None:
        """The folder of a source; None if Spark has to read it."""
        if source is None or source.path is None or not is_local(source.path):
            return None
        folder = local_folder(source.path)
        if source.format.lower() in OWN:
            text, by_spark = text_contents(source)
            return None if by_spark else PlainFolder(port, folder, text)
        plain = source.format == "parquet" and not source.columns and {k.lower() for k in source.options} <= OPTIONS
        return PlainFolder(port, folder) if plain else None


@dataclass(frozen=True, slots=True)
class PlainFiles:
    """The folders of all streams, by the names that Spark's log has for them."""

    log: SparkLog
    folders: Mapping[str, PlainFolder]
    left_out: frozenset[str] = frozenset()
    """Files that were read already."""

    @staticmethod
    def of(
        log: SparkLog, inputs: Sequence[StreamInput], left_out: Mapping[str, frozenset[str]] | None = None
    ) -> PlainFiles | None:
        """The folders of a session's streams; None if one of them is no plain folder of files."""
        folders: dict[str, PlainFolder] = {}
        for port, stream in enumerate(inputs):
            folder = None if stream.declaration.timestamps != "external" else PlainFolder.of(port, stream.source)
            if stream.source is None or folder is None:
                return None
            folders[str(port)] = folders[stream.source.name] = folder
        return PlainFiles(log, folders, frozenset().union(*(left_out or {}).values()))

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

    def _pieces(self, incoming: Incoming, read: Logged, most: int) -> Iterator[pa.RecordBatch]:
        for source, files in read.items():
            folder = self.folders[source]
            for path in (file.path for file in files if file.path not in self.left_out):
                if folder.text is not None:
                    most -= os.path.getsize(path)
                    if most < 0:
                        raise _NotPlain
                    yield from _tagged(folder.text.of_path(path), folder.port, incoming.layout)
                    continue
                if Path(path).parent != folder.folder:
                    raise _NotPlain
                file = pq.ParquetFile(path)
                most -= file.metadata.num_rows * incoming.layout.row_bytes
                if most < 0:
                    raise _NotPlain
                yield from _tagged(_plain(file, folder.port, incoming), folder.port, incoming.layout)


class _NotPlain(Exception):
    """Spark is to read the files."""


def _plain(file: pq.ParquetFile, port: int, incoming: Incoming) -> pa.Table:
    """The rows of a Parquet file, if there is nothing to interpret."""
    names, found = incoming.layout.schemas[port].names, file.schema_arrow
    read = incoming.read.get(incoming.streams[port].name, names)
    for name in names:
        declared = incoming.streams[port].columns.field(name).type
        if found.field(name).type != declared or (pa.types.is_nested(declared) and name in read):
            raise _NotPlain
        if pa.types.is_temporal(declared) and any(key in (file.metadata.metadata or {}) for key in LEGACY):
            raise _NotPlain
    return file.read(columns=names)


def _tagged(table: pa.Table, port: int, layout: Layout) -> Iterator[pa.RecordBatch]:
    schema = layout.schemas[port]
    for rows in table.select(schema.names).cast(schema).combine_chunks().to_batches():
        ports = pa.array(np.full(rows.num_rows, port, np.int32))
        wide = layout.wide(port, rows.columns, rows.num_rows)
        yield pa.RecordBatch.from_arrays([ports, *wide], names=[PORT, *(field.name for field in layout.columns)])
