"""What a file of results holds for a query: all of it, or the rows under one name where several queries share it.

A shared file has a column with the name that each row belongs to. It is sorted by that column and cut into row groups,
so that a reader of one query's results skips most of the others'; what counts is the name in the row.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from midstream.checkpoint.file_entries import ResultFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.outputs import Output, open_output
from midstream.operators.vectors import Numbers, numbers_of

QUERY = "#query"
"""The column that says whose a row is."""


AT_ONCE = 16_384
"""Of how many rows starts are read at a time."""


def read_results(files: Files, file: ResultFile) -> pa.Table:
    """The rows that a file has for a query."""
    content = pa.BufferReader(open_output(files, file))
    if not file.part:
        return pq.read_table(content, partitioning=None)
    parquet = pq.ParquetFile(content)
    rows = parquet.read_row_groups(_groups(parquet, file.part))
    return rows.filter(pc.equal(rows.column(QUERY), file.part)).drop_columns([QUERY])


def read_starts(files: Files, file: ResultFile) -> Iterator[Numbers]:
    """The starts of the rows that a file has for a query, in ticks, some at a time."""
    parquet = pq.ParquetFile(pa.BufferReader(open_output(files, file)))
    names = [name for name in parquet.schema_arrow.names if name != QUERY or not file.part]
    # Times follow what is selected, which may have the same names.
    start = names[-1] if names[-1] == "ts" else names[-2]
    groups = _groups(parquet, file.part) if file.part else None
    columns = [start, QUERY] if file.part else [start]
    for rows in parquet.iter_batches(AT_ONCE, groups, columns):
        mine = rows.filter(pc.equal(rows.column(QUERY), file.part)) if file.part else rows
        yield numbers_of(mine.column(mine.schema.get_field_index(start)))


def read_whole(files: Files, file: Output) -> pa.Table:
    """All rows of a file; of one that is shared with their names."""
    return pq.read_table(pa.BufferReader(open_output(files, file)), partitioning=None, use_threads=False)


def _groups(parquet: pq.ParquetFile, part: str) -> list[int]:
    """The row groups that can have rows of a name."""
    metadata, found = parquet.metadata, []
    column = parquet.schema_arrow.get_field_index(QUERY)
    for group in range(metadata.num_row_groups):
        known = metadata.row_group(group).column(column).statistics
        if known is None or not known.has_min_max or known.min <= part <= known.max:
            found.append(group)
    return found
