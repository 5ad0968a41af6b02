"""Files of text in Spark's tasks: Spark says which files a task reads, and the reader of every cluster reads them.

Executors load this module and what it imports, so it may import only what they are said to need.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from midstream.connectors.files.bad_rows import unreadable_file
from midstream.connectors.files.contents import FileContents
from midstream.errors import InputError

PATH, CONTENT = "path", "content"
"""Columns of Spark's source of whole files."""

FILES = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
"""All columns of that source."""


@dataclass(frozen=True, slots=True)
class TextFiles:
    """Reads the files of a stream, but those that were read already; whoever has no file's bytes opens its path."""

    contents: FileContents
    read: frozenset[str] = frozenset()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of files."""
        for batch in batches:
            has_bytes = CONTENT in batch.schema.names
            for place, path in enumerate(batch.column(PATH).to_pylist()):
                path = without_scheme(path)
                if path not in self.read:
                    yield from self._rows(path, batch.column(CONTENT)[place].as_py() if has_bytes else None)

    def _rows(self, path: str, content: bytes | None) -> list[pa.RecordBatch]:
        try:
            rows = self.contents.of_path(path) if content is None else self.contents.of_bytes(path, content)
        except InputError as error:
            # As a row it reaches the driver with its message, not as the text of a failed task.
            rows = unreadable_file(self.contents.columns, path, error)
        return list(rows.combine_chunks().to_batches(max_chunksize=100_000))


def without_scheme(path: str) -> str:
    """An address of this machine's files as a path.

    >>> without_scheme("file:/a/b c.csv"), without_scheme("s3a://bucket/a.csv")
    ('/a/b c.csv', 's3a://bucket/a.csv')
    """
    return re.sub("^file:/+", "/", path)
