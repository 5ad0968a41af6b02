"""From rows to elements: time becomes ticks, and what has no usable time becomes a dead letter."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import FARTHEST
from midstream.errors import DeadLetterWarning, InputError, level_outside
from midstream.operators.elements import Mask, Ticks
from midstream.operators.vectors import numbers_of


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Rows of a stream that could not be used, and why."""

    stream: str
    reason: str
    rows: pa.Table

    def __len__(self) -> int:
        return int(self.rows.num_rows)


DEAD_LETTERS = b"midstream.dead_letters"
"""The key of a result's schema metadata under which dead letters are counted: JSON, stream to reason to count."""


def counted(dead: Iterable[DeadLetters]) -> dict[str, dict[str, int]]:
    """How many rows each stream lost for each reason."""
    counts: dict[str, dict[str, int]] = {}
    for letters in dead:
        reasons = counts.setdefault(letters.stream, {})
        reasons[letters.reason] = reasons.get(letters.reason, 0) + len(letters)
    return counts


def report(result: pa.Table, dead: Iterable[DeadLetters]) -> pa.Table:
    """The result with the dead letters counted in its metadata; warns if there are any."""
    counts = counted(dead)
    if not counts:
        return result
    warn_of(counts)
    return result.replace_schema_metadata({**(result.schema.metadata or {}), DEAD_LETTERS: json.dumps(counts)})


def warn_of(counts: Mapping[str, Mapping[str, int]]) -> None:
    """Warns of rows that could not be used, counted by stream and reason, if there are any."""
    parts = [f"{n} of {stream} ({why})" for stream, reasons in counts.items() for why, n in reasons.items() if n]
    if parts:
        warnings.warn(f"rows that could not be used: {', '.join(parts)}", DeadLetterWarning, level_outside())


def disorder(column: pa.Array | pa.ChunkedArray, stream: str) -> int:
    """By how many ticks rows come later than one before them, at most."""
    ticks, valid = ticks_of(column, stream)
    if valid is not None:
        ticks = ticks[valid]
    ticks = ticks[in_range(ticks)]
    return int((np.maximum.accumulate(ticks) - ticks).max()) if len(ticks) else 0


def ticks_of(column: pa.Array | pa.ChunkedArray, stream: str) -> tuple[Ticks, np.ndarray | None]:
    """A time column as ticks, and which rows have one (None: all)."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.null_count == 0 and column.type in (pa.int64(), pa.timestamp("us")):
        return numbers_of(column), None
    valid = None
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
    kind = column.type
    try:
        if pa.types.is_timestamp(kind):
            numbers = column.cast(pa.timestamp("us", kind.tz)).view(pa.int64())
        elif pa.types.is_uint64(kind):
            # Beyond the range of times all are alike.
            numbers = pc.min_element_wise(column, pa.scalar(FARTHEST, kind), skip_nulls=False).cast(pa.int64())
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


def in_range(ticks: Ticks) -> Mask:
    """Which ticks leave room for every window's end."""
    return (ticks > -FARTHEST) & (ticks < FARTHEST)


def checked(declaration: StreamDeclaration, table: pa.Table) -> pa.Table:
    """A table with exactly the declared columns; values that would not stay the same are refused by name."""
    if table.schema.equals(declaration.columns):
        return table
    columns = []
    for field in declaration.columns:
        if field.name not in table.schema.names:
            raise InputError(f"rows for stream {declaration.name} lack column {field.name}")
        columns.append(_fitted(declaration.name, field, table.column(field.name)))
    return pa.table(columns, schema=declaration.columns)


def _fitted(stream: str, field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column in its declared type, if that can hold the same values."""
    if column.type == field.type:
        return column
    said = f"column {field.name} of stream {stream} is {field.type}, but these rows have {column.type}"
    if not _alike(column.type, field.type):
        raise InputError(said)
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise InputError(said, detail=str(error).split("\n")[0]) from error


def _alike(got: pa.DataType, declared: pa.DataType) -> bool:
    """Whether values of one type are values of the other too, if they are not too large for it."""
    is_ = pa.types
    if is_.is_null(got):
        return True
    if is_.is_timestamp(got) and is_.is_timestamp(declared):
        return (got.tz is None) == (declared.tz is None)
    return any(kind(got) and kind(declared) for kind in (is_.is_integer, is_.is_decimal))
