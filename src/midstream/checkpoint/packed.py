"""Rows that nobody looks into for long, in few bytes: of whole numbers the low bytes, and the least of each column.

Nothing is lost, and both ways are a pass over a column. A column of one number is not stored at all, so that of rows in
windows of one length the ends are not; neither is one that repeats another, as times do, and neither are hashes, which
only number such rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from midstream.operators.elements import Hashes
from midstream.operators.state.segment import FROM, HASH, TO, Segment, numbering
from midstream.operators.vectors import Numbers, column_of, numbers_of, storage_of

_COLUMNS, _ROWS, _FOUND = b"midstream columns", b"midstream rows", b"midstream found"
_WIDTHS = ((8, np.uint8), (16, np.uint16), (32, np.uint32))

Stored = Sequence[int | None]
"""The least number of a column, or none if it is stored as it is; where it lies, or nowhere if all are equal."""


def packed(segment: Segment) -> pa.RecordBatch:
    """The times and columns of a segment whose hashes number its rows."""
    elements = segment.elements
    since, until, columns, lasting = elements.valid_from, elements.valid_to, elements.columns, elements.lasting
    stored: list[pa.Array] = []
    known: list[tuple[Numbers, Stored]] = []
    bounds = None if lasting is None else (segment.earliest_from, segment.latest_to - lasting)
    times = [
        _added(pa.array(since), stored, known, bounds),
        (lasting, None) if lasting is not None else _added(pa.array(until - since), stored, known),
    ]
    found = [*times, *(_added(column, stored, known) for column in columns.columns)]
    metadata = {
        _COLUMNS: columns.schema.serialize().to_pybytes(),
        _ROWS: str(len(segment)),
        _FOUND: json.dumps(found),
    }
    fields = [pa.field(str(place), column.type) for place, column in enumerate(stored)]
    return pa.RecordBatch.from_arrays(stored, schema=pa.schema(fields, metadata))


def is_packed(batch: pa.RecordBatch) -> bool:
    """Whether a stored segment is packed."""
    return _FOUND in (batch.schema.metadata or {})


def rows_of(batch: pa.RecordBatch) -> int:
    """How many rows a stored segment has."""
    return int(batch.schema.metadata[_ROWS]) if is_packed(batch) else batch.num_rows


def unpacked(batch: pa.RecordBatch, part: Callable[[Hashes], tuple[int, int]]) -> pa.RecordBatch:
    """The part of a packed segment that is chosen by its hashes, as it was."""
    metadata = batch.schema.metadata
    schema, hashes = pa.ipc.read_schema(pa.py_buffer(metadata[_COLUMNS])), numbering(int(metadata[_ROWS]))
    start, end = part(hashes)
    kinds: Sequence[pa.DataType] = [pa.int64(), pa.int64(), *schema.types]
    found = zip(json.loads(metadata[_FOUND]), kinds, strict=True)
    since, lengths, *columns = (_widened(batch, stored, kind, slice(start, end)) for stored, kind in found)
    until = pa.array(numbers_of(since) + numbers_of(lengths))
    arrays = [pa.array(hashes[start:end]), since, until, *columns]
    return pa.RecordBatch.from_arrays(arrays, names=[HASH, FROM, TO, *schema.names])


def _added(
    column: pa.Array,
    stored: list[pa.Array],
    known: list[tuple[Numbers, Stored]],
    bounds: tuple[int, int] | None = None,
) -> Stored:
    """Where a column is found again; it is `stored`, unless its numbers are `known`. These may have known `bounds`."""
    kind = storage_of(column.type)
    if kind is None or kind.kind not in "iu" or column.null_count:
        stored.append(column)
        return None, len(stored) - 1
    numbers = numbers_of(column)
    for others, place in known:
        if others.dtype == kind and others[0] == numbers[0] and pa.py_buffer(others).equals(pa.py_buffer(numbers)):
            return place
    least, most = bounds or (int(numbers.min()), int(numbers.max()))
    if least == most:
        return least, None
    needed = (most - least).bit_length()
    width = next((width for bits, width in _WIDTHS if needed <= bits < 8 * kind.itemsize), None)
    stored.append(column if width is None else pa.array(numbers.astype(width)))
    known.append((numbers, (None if width is None else least, len(stored) - 1)))
    return known[-1][1]


def _widened(batch: pa.RecordBatch, stored: Stored, kind: pa.DataType, rows: slice) -> pa.Array:
    least, place = stored
    column = None if place is None else batch.column(place)[rows]
    if least is None:
        assert column is not None
        return column if column.type == kind else column.view(kind)
    dtype = storage_of(kind)
    assert dtype is not None
    numbers: Numbers = np.full(rows.stop - rows.start, least, dtype)
    if column is not None:
        low = numbers_of(column)
        numbers += (low - np.array(least).astype(dtype).astype(low.dtype)).astype(dtype)
    return column_of(numbers, kind)
