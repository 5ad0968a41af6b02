"""Texts as values of a type, each by itself: whether one can be read does not depend on the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from midstream.connectors.halving import in_halves

BLANKS = " \t"
"""What may surround a value that is no text."""


FAILURES = 4
"""How many times as much as there is may be read at once in vain."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A part of a file that is no row: the line that it begins in, its bytes, and why."""

    line: int
    text: bytes
    reason: str


RecordOf = Callable[[int], tuple[int, bytes]]
"""Gives the line that a row begins in, and its bytes."""


@dataclass(frozen=True, slots=True)
class TextRows:
    """What a text holds: rows, and records that are none."""

    rows: pa.Table
    bad: Sequence[BadRecord] = ()
    record_of: RecordOf | None = None
    """The line and the bytes of a row, if rows were read one by one."""

    @staticmethod
    def among(rows: pa.Table, wrong: Mapping[int, str], bad: Sequence[BadRecord], record_of: RecordOf) -> TextRows:
        """Those of some rows of which nothing is wrong; the others are bad, too."""
        if not wrong:
            return TextRows(rows, bad, record_of)
        kept = [place for place in range(rows.num_rows) if place not in wrong]
        more = [BadRecord(*record_of(place), reason) for place, reason in wrong.items()]
        found = sorted([*bad, *more], key=lambda record: record.line)
        return TextRows(rows.take(pa.array(kept, pa.int64())), found, lambda place: record_of(kept[place]))


def in_parts(
    length: int,
    at_once: Callable[[int, int], pa.Table | None],
    one_by_one: Callable[[int, int], TextRows],
    middle: Callable[[int, int], int | None],
) -> TextRows:
    """Rows that are read at once as far as they can be; where that fails, in halves, and in the end one by one.

    Parts are given by their bounds within the length; `middle` is where one is divided, None if it is small enough.
    Where failures are many, dividing costs more than it saves: it ends when `FAILURES` times the length was in vain.
    """
    rows, bad, waiting, in_vain = list[pa.Table](), list[BadRecord](), [(0, length)], 0
    while waiting:
        start, stop = waiting.pop()
        divides = in_vain <= FAILURES * length
        found = at_once(start, stop) if divides else None
        in_vain += stop - start if found is None else 0
        if divides and found is None and (cut := middle(start, stop)) is not None:
            waiting += [(cut, stop), (start, cut)]
        else:
            read = one_by_one(start, stop) if found is None else TextRows(found)
            rows.append(read.rows)
            bad += read.bad
    return TextRows(pa.concat_tables(rows), bad)


def texts_as(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """Texts as values of a type, and of those that are none the reasons; these are null among the values.

    >>> texts_as(pa.array([" 1", "x", None]), pa.int64())[1]
    {1: "'x' is no int64"}
    """
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        texts = pc.utf8_trim(texts, BLANKS)
    bad: dict[int, str] = {}

    def refuse(place: int, _: Exception) -> pa.Array:
        bad[place] = f"{texts[place].as_py()!r:.200} is no {kind}"
        return pa.nulls(1, kind)

    refusals = (pa.ArrowException, ValueError)
    parts = list(in_halves(len(texts), lambda a, b: cast_texts(texts.slice(a, b - a), kind), refusals, refuse))
    return pa.chunked_array(parts, kind).combine_chunks() if len(parts) != 1 else parts[0], bad


def cast_texts(texts: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Texts as values of a type; raises if one is none. Times without a zone are in UTC, days begin at midnight."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        day = pc.match_substring_regex(texts, r"^\d{4}-\d\d-\d\d$")
        zoned = pc.match_substring_regex(texts, r":\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d(:?\d\d)?)$")
        missing = pc.if_else(day, "T00:00Z", pc.if_else(zoned, "", "Z"))
        return pc.binary_join_element_wise(texts, missing, "").cast(kind)
    return texts if pa.types.is_string(kind) else texts.cast(kind)


def rows_of(columns: Sequence[pa.Array | None], schema: pa.Schema, length: int) -> pa.Table:
    """A table of columns; those that are missing are null."""
    found = zip(columns, schema, strict=True)
    return pa.Table.from_arrays([pa.nulls(length, f.type) if c is None else c for c, f in found], schema=schema)


def as_declared_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column of texts, or of the type that it is to have, as values of that type."""
    return column if column.type == kind else cast_texts(column, kind)
