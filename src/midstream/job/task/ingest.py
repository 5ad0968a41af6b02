"""From rows to elements: time becomes ticks, and what has no usable time becomes a dead letter."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.declarations import ARRIVAL, StreamDeclaration
from midstream.algebra.physical import SourceNode
from midstream.algebra.time import BEGINNING, FARTHEST, INFINITY
from midstream.algebra.windows import Hop
from midstream.errors import DeadLetterWarning, InputError, level_outside
from midstream.operators.elements import Elements, Mask, Ticks, rows_without_columns
from midstream.operators.hops import boundary_after
from midstream.operators.stateless import arrived
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


def checked(declaration: StreamDeclaration, table: pa.Table, came: int | None = 0) -> pa.Table:
    """A table with exactly the declared columns; values that would not stay the same are refused by name.

    Rows that do not tell in which order they came are numbered as they lie in the table, from `came` on, if given.
    """
    declared = declaration.columns
    if ARRIVAL in declared.names and ARRIVAL not in table.schema.names:
        if came is None:
            declared = declared.remove(declared.get_field_index(ARRIVAL))
        else:
            table = table.add_column(0, ARRIVAL, pa.array(np.arange(came, came + table.num_rows)))
    if table.schema.equals(declared):
        return table
    columns = []
    for field in declared:
        if field.name not in table.schema.names:
            raise InputError(f"rows for stream {declaration.name} lack column {field.name}")
        columns.append(_fitted(declaration.name, field, table.column(field.name)))
    return pa.table(columns, schema=declared)


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


DAY = 86_400_000_000

ENOUGH = 10
"""How many rows beyond the reach show by themselves that their stream has gone on there."""

OUT_OF_RANGE, TOO_FAR_AHEAD = "time out of range", "too far ahead"
"""The reasons of dead letters."""

Span = tuple[int, int, int]
"""Rows that hang together: the first time, the last, and how many they are."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The latest time of a stream so far, and up to when rows are believed.

    With a `step`, rows beyond are reported as spans of rows at most so far apart: the stream may have gone on there.
    """

    latest: int = BEGINNING
    until: int = FARTHEST - 1
    step: int = 0


def reach_of(declaration: StreamDeclaration, latest: int, clock: int | None) -> Reach:
    """A stream's reach before anything is known of a batch but its clock."""
    bound = declaration.max_ahead
    if declaration.timestamps != "external" or bound == "any":
        return Reach(latest)
    if bound != "clock":
        return Reach(latest, BEGINNING if latest == BEGINNING else min(latest + bound, FARTHEST - 1), bound)
    if clock is None or declaration.domain.is_integer:
        return Reach(latest)
    return Reach(latest, min(max(latest, clock) + DAY, FARTHEST - 1))


def spans_of(ticks: Ticks, step: int) -> list[Span]:
    """Times as spans.

    >>> spans_of(np.array([9, 1, 2, 30]), 5)
    [(1, 2, 2), (9, 9, 1), (30, 30, 1)]
    """
    if not len(ticks):
        return []
    ordered = np.sort(ticks)
    starts = np.concatenate(([0], np.flatnonzero(np.diff(ordered) > step) + 1))
    ends = np.append(starts[1:], len(ordered))
    return [(int(ordered[a]), int(ordered[b - 1]), int(b - a)) for a, b in zip(starts, ends, strict=True)]


def merged(spans: Iterable[Span], step: int) -> list[Span]:
    """Spans of several slots as spans of all their rows.

    >>> merged([(9, 12, 2), (1, 5, 3), (14, 14, 1)], 4)
    [(1, 14, 6)]
    """
    found: list[Span] = []
    for first, last, rows in sorted(spans):
        if found and first - found[-1][1] <= step:
            found[-1] = (found[-1][0], max(found[-1][1], last), found[-1][2] + rows)
        else:
            found.append((first, last, rows))
    return found


def believed(reach: Reach, latest: int, within: int, beyond: Sequence[Span], doubted: bool = False) -> tuple[int, bool]:
    """Up to when the rows of a batch are believed, and whether the stream is doubted after it.

    `latest` is the latest time so far and among the batch's rows within the reach, `within` how many these are;
    `beyond` are the spans beyond.
    """
    if not beyond:
        return reach.until, doubted and not within
    if latest == BEGINNING:
        return _connected(_middle(beyond), beyond, reach.step)[0], False
    reached, rest = _connected(latest, beyond, reach.step)
    far = sum(rows for _, _, rows in rest)
    near = within + sum(rows for _, _, rows in beyond) - far
    if far <= near:
        return max(reached, reach.until), False
    if far < ENOUGH and not doubted:
        return max(reached, reach.until), True
    return _connected(_middle(rest), rest, reach.step)[0], doubted


def _connected(start: int, spans: Sequence[Span], step: int) -> tuple[int, list[Span]]:
    """The last time that hangs together with a start, and the spans after it."""
    reached = start
    rest = []
    for span in spans:
        if span[0] - reached <= step:
            reached = max(reached, span[1])
        else:
            rest.append(span)
    return reached, rest


def _middle(spans: Sequence[Span]) -> int:
    """The end of the span that the median row is in."""
    half = (sum(rows for _, _, rows in spans) + 1) // 2
    for _, last, rows in spans:
        half -= rows
        if half <= 0:
            return last
    return spans[-1][1]


def source_elements(
    source: SourceNode, rows: pa.RecordBatch, ticks: Ticks, common: dict[object, Any] | None = None
) -> Elements:
    """Rows of a stream as the windowed elements of a source; those that nobody has numbered came all at once.

    `common` is what is known of rows that others take too.
    """
    names = [name.removeprefix(f"{source.stream.alias}.") for name in source.schema.names]
    if ARRIVAL in names and ARRIVAL not in rows.schema.names:
        rows = rows.append_column(ARRIVAL, pa.array(np.zeros(rows.num_rows, np.int64)))
    arrays = [rows.column(name) for name in names]
    columns = pa.RecordBatch.from_arrays(arrays, schema=source.schema) if arrays else rows_without_columns(len(ticks))
    return arrived(columns, ticks, source.window, common)


def reached(sources: Iterable[SourceNode], registers: Mapping[str, int]) -> int:
    """The least instant at which something may still start, over all sources.

    A tuple at or after a register starts to count at the next boundary of its hop, if it has one.
    """
    least = INFINITY
    for source in sources:
        register = registers.get(source.stream.name, BEGINNING)
        if isinstance(source.window, Hop) and BEGINNING < register < INFINITY:
            register = int(boundary_after(register, source.window))
        least = min(least, register)
    return least
