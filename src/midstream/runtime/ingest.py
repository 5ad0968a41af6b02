"""From rows to elements: time becomes ticks, and what has no usable time becomes a dead letter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.declarations import StreamDeclaration
from midstream.errors import InputError
from midstream.operators.elements import Ticks


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Rows of a stream that could not be used, and why."""

    stream: str
    reason: str
    rows: pa.Table

    def __len__(self) -> int:
        return int(self.rows.num_rows)


def ticks_of(column: pa.Array | pa.ChunkedArray, stream: str) -> tuple[Ticks, np.ndarray | None]:
    """A time column as ticks, and which rows have one (None: all)."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    valid = None
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
    kind = column.type
    try:
        if pa.types.is_timestamp(kind):
            numbers = column.cast(pa.timestamp("us", kind.tz)).view(pa.int64())
        elif pa.types.is_integer(kind):
            numbers = column.cast(pa.int64())
        else:
            raise InputError(f"the time of stream {stream} must be an integer or a timestamp, not {kind}")
    except pa.ArrowInvalid as error:
        raise InputError(
            f"the time of stream {stream} does not fit into ticks",
            detail=str(error),
            hint="time is counted in whole microseconds (timestamps) or 64-bit integers",
        ) from None
    return pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False), valid


def checked(declaration: StreamDeclaration, table: pa.Table) -> pa.Table:
    """A table with exactly the declared columns; anything else is refused by name."""
    if table.schema.equals(declaration.columns):
        return table
    for field in declaration.columns:
        if field.name not in table.schema.names:
            raise InputError(f"rows for stream {declaration.name} lack column {field.name}")
        got = table.schema.field(field.name).type
        if got != field.type:
            raise InputError(
                f"column {field.name} of stream {declaration.name} is {field.type}, but these rows have {got}"
            )
    return table.select(declaration.columns.names).cast(declaration.columns)
