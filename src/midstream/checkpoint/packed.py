"""Rows that nobody looks into for long, in few bytes: whole numbers by what they are above the least of their column.

Nothing is lost, and both ways are a pass over a column. A column of one number is not stored at all, so that of rows in
windows of one length the ends are not; neither are hashes, which only number such rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from midstream.operators.elements import Hashes
from midstream.operators.state.segment import numbering
from midstream.operators.vectors import Numbers, column_of, numbers_of, storage_of

_SCHEMA, _ROWS, _LEAST = b"midstream schema", b"midstream rows", b"midstream least"
_WIDTHS = ((8, np.uint8), (16, np.uint16), (32, np.uint32))

Narrowed = tuple[int | None, pa.Array | None]
"""The least number of a column, and what each is above it; no number: the column as it is; no column: all are equal."""


def is_numbered(hashes: Hashes) -> bool:
    """Whether hashes only number rows, which are in no order by key: nobody looks anything up in these."""
    return bool(hashes[0] == 0 and np.array_equal(hashes, numbering(len(hashes))))


def packed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A segment's times and columns, packed; its hashes number its rows."""
    _, since, until, *payload = batch.columns
    lengths = pa.array(numbers_of(until) - numbers_of(since))
    found = [_narrowed(column) for column in (since, lengths, *payload)]
    stored = [column for _, column in found if column is not None]
    least = [(number, column is not None) for number, column in found]
    metadata = {
        _SCHEMA: batch.schema.serialize().to_pybytes(),
        _ROWS: str(batch.num_rows),
        _LEAST: json.dumps(least),
    }
    fields = [pa.field(str(place), column.type) for place, column in enumerate(stored)]
    return pa.RecordBatch.from_arrays(stored, schema=pa.schema(fields, metadata))


def is_packed(batch: pa.RecordBatch) -> bool:
    """Whether a stored segment is packed."""
    return _LEAST in (batch.schema.metadata or {})


def rows_of(batch: pa.RecordBatch) -> int:
    """How many rows a stored segment has."""
    return int(batch.schema.metadata[_ROWS]) if is_packed(batch) else batch.num_rows


def unpacked(batch: pa.RecordBatch, part: Callable[[Hashes], tuple[int, int]]) -> pa.RecordBatch:
    """The part of a packed segment that is chosen by its hashes, as it was."""
    metadata = batch.schema.metadata
    schema, rows = pa.ipc.read_schema(pa.py_buffer(metadata[_SCHEMA])), int(metadata[_ROWS])
    columns = iter(batch.columns)
    stored = [(least, next(columns) if there else None) for least, there in json.loads(metadata[_LEAST])]
    hashes = numbering(rows)
    start, end = part(hashes)
    kinds = [field.type for field in schema][1:]
    since, lengths, *payload = (_widened(*one, kind, start, end) for one, kind in zip(stored, kinds, strict=True))
    until = pa.array(numbers_of(since) + numbers_of(lengths))
    return pa.RecordBatch.from_arrays([pa.array(hashes[start:end]), since, until, *payload], schema=schema)


def _narrowed(column: pa.Array) -> Narrowed:
    kind = storage_of(column.type)
    if kind is None or kind.kind not in "iu" or column.null_count or not len(column):
        return None, column
    numbers = numbers_of(column)
    least, most = int(numbers.min()), int(numbers.max())
    if least == most:
        return least, None
    needed = (most - least).bit_length()
    width = next((width for bits, width in _WIDTHS if needed <= bits < 8 * kind.itemsize), None)
    return (None, column) if width is None else (least, pa.array((numbers - kind.type(least)).astype(width)))


def _widened(least: int | None, column: pa.Array | None, kind: pa.DataType, start: int, end: int) -> pa.Array:
    if column is not None:
        column = column.slice(start, end - start)
    if least is None:
        return column
    dtype = storage_of(kind)
    assert dtype is not None
    numbers: Numbers = np.full(end - start, least, dtype)
    if column is not None:
        numbers += numbers_of(column).astype(dtype)
    return column_of(numbers, kind)
