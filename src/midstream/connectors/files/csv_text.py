"""What the bytes of a CSV file mean.

A record has as many values as the file has columns, divided by one character. A value that begins with a quote ends
with one; quotes within it are doubled, and line breaks within it are part of it. Empty lines are no records. The
columns of a file are those of its header, found by name, or else those of the stream's schema, in order. A value that
is not in quotes and is the null word is null; so is an empty one, unless the column is a text. Blanks around values
that are no texts do not count.

A record that has another number of values, or values that are none of their column's type, is bad. Of a record without
its right number of values only the first line is bad, and reading goes on with the next line: so a quote that is not
closed does not take the rest of the file with it.

Arrow reads a whole file at once and is fast. What it refuses is divided between records until only a few around each
bad one are left, and these are read one by one, which gives the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.csv

from midstream.connectors.files.columns import declared_names
from midstream.connectors.files.options import CsvOptions
from midstream.connectors.files.text_values import BadRecord, TextRows, as_declared_type, in_parts, rows_of, texts_as

_MARK = b"\xef\xbb\xbf"
"""What UTF-8 texts may begin with."""

_BLOCKS = (1 << 20, 1 << 24, 1 << 30)
"""In blocks of how many bytes text is read: larger ones if rows are longer."""

_BREAK = re.compile(rb"\r\n|\n|\r")
_EMPTY_LINES = re.compile(rb"[\r\n]*")
_QUOTE = b'"'
_BODY = rb'"([^"]*(?:""[^"]*)*)'
_QUOTED = re.compile(_BODY + rb'(?:"|\Z)(.*)', re.S)
"""What is written in quotes, and what follows them."""


FEW_RECORDS = 256
"""Fewer are not divided."""


def read_csv(text: bytes, schema: pa.Schema, options: CsvOptions, one_by_one: bool = False) -> TextRows:
    """The rows of a text, with the columns of a schema; only if they are read one by one the line of each is known."""
    text = text.removeprefix(_MARK)
    columns, start = _columns(text, schema, options)
    if not text[start:].strip(b"\r\n"):
        return TextRows(schema.empty_table())
    fast = None if one_by_one else _at_once(text[start:] if start else text, schema, columns, options)
    if fast is not None:
        return TextRows(fast)
    records, bad = _divided(text, start, columns.count, options.separator)

    def read_at_once(first: int, last: int) -> pa.Table | None:
        if first == last or (first, last) == (0, len(records)):
            return None
        found = _at_once(text[records[first].start : records[last - 1].stop], schema, columns, options)
        return found if found is not None and found.num_rows == last - first else None

    def read_one_by_one(first: int, last: int) -> TextRows:
        return _one_by_one(text, records[first:last], schema, columns, options)

    def middle(first: int, last: int) -> int | None:
        return (first + last) // 2 if last - first > FEW_RECORDS else None

    whole = read_one_by_one(0, len(records)) if one_by_one else None
    read = whole or in_parts(len(records), read_at_once, read_one_by_one, middle)
    return TextRows(read.rows, sorted([*bad, *read.bad], key=lambda record: record.line), read.record_of)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a file; `declared` are the places of those of the schema, None for one that the file lacks."""

    count: int
    declared: tuple[int | None, ...]


def _columns(text: bytes, schema: pa.Schema, options: CsvOptions) -> tuple[_Columns, int]:
    """The columns of a file, and where its records begin."""
    if not options.header:
        return _Columns(len(schema), tuple(range(len(schema)))), 0
    at = _EMPTY_LINES.match(text).end()  # type: ignore[union-attr]
    if at == len(text):
        return _Columns(len(schema), tuple(range(len(schema)))), 0
    first = _values_at(text, at, options.separator)
    names = [_value(value)[0].decode("utf-8", "backslashreplace").strip() for value in first.raw]
    declared = declared_names(names, schema.names)
    places = {declared[name]: place for place, name in enumerate(names) if name in declared}
    return _Columns(len(names), tuple(places.get(name) for name in schema.names)), first.stop


def _at_once(text: bytes, schema: pa.Schema, columns: _Columns, options: CsvOptions) -> pa.Table | None:
    """The rows as Arrow reads them; None if it does not, or takes the end of a file for the end of a quote."""
    names = [str(place) for place in range(columns.count)]
    present = [(str(place), f.type) for place, f in zip(columns.declared, schema, strict=True) if place is not None]
    kinds = {names[-1]: pa.string()} | {name: _parsed_as(kind) for name, kind in present}
    convert_options = pyarrow.csv.ConvertOptions(
        column_types=kinds,
        include_columns=list(kinds),
        null_values=[options.null_word],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse_options = pyarrow.csv.ParseOptions(delimiter=options.separator, newlines_in_values=True)

    def read(block: int) -> pa.Table:
        read_options = pyarrow.csv.ReadOptions(column_names=names, block_size=block)
        return pyarrow.csv.read_csv(pa.BufferReader(text), read_options, parse_options, convert_options)

    try:
        table = in_blocks(read)
        if _QUOTE in text and _may_be_open(text, table.column(names[-1])):
            return None
        found = [None if place is None else table.column(str(place)) for place in columns.declared]
        cast = [None if c is None else as_declared_type(c, f.type) for c, f in zip(found, schema, strict=True)]
    except (pa.ArrowException, ValueError):
        return None
    return rows_of(cast, schema, table.num_rows)


def _may_be_open(text: bytes, last: pa.ChunkedArray) -> bool:
    """Whether the last value of a text may lack the quote that ends it."""
    if not text.endswith((b"\n", b"\r")) or not len(last):
        return True
    value = last[-1].as_py()
    return isinstance(value, str) and value.endswith(("\n", "\r"))


def _parsed_as(kind: pa.DataType) -> pa.DataType:
    """The type that text is first read as: Arrow forgets the zones of times unless they stay text."""
    return pa.string() if pa.types.is_timestamp(kind) else kind


def in_blocks(read: Callable[[int], pa.Table]) -> pa.Table:
    """What is read in blocks of so many bytes; a row must not be longer than one, so they grow if need be."""
    for block in _BLOCKS[:-1]:
        try:
            return read(block)
        except pa.ArrowInvalid as error:
            if "straddles two block boundaries" not in str(error):
                raise
    return read(_BLOCKS[-1])


@dataclass(frozen=True, slots=True)
class _Record:
    """Where a record is, and the line that it begins in."""

    line: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Values:
    """The raw values of a record, and where it ends; `open`: its last quote is not closed."""

    raw: list[bytes]
    stop: int
    open: bool


@lru_cache(maxsize=8)
def _field(separator: str) -> re.Pattern[bytes]:
    """A value, and what ends it; the group `open` is the end of a text in quotes that are not closed."""
    mark = re.escape(separator.encode())
    plain = rb"[^%b\r\n]*" % mark
    quoted = _BODY.replace(b"(", b"(?:", 1) + rb'(?:"%b|(?P<open>\Z))' % plain
    return re.compile(rb"(?P<value>%b|%b)(?P<end>%b|\r\n|\n|\r|\Z)" % (quoted, plain, mark))


@lru_cache(maxsize=8)
def _record(separator: str, count: int) -> re.Pattern[bytes]:
    """A record of so many values, none of whose quotes is open."""
    mark = re.escape(separator.encode())
    plain = rb"[^%b\r\n]*+" % mark
    value = rb'(?>"[^"]*+(?:""[^"]*+)*+"%b|(?!")%b)' % (plain, plain)
    return re.compile(rb"%b(?:%b%b){%d}(?:\r\n|\n|\r|\Z)" % (value, mark, value, count - 1))


def _divided(text: bytes, at: int, count: int, separator: str) -> tuple[list[_Record], list[BadRecord]]:
    """The records of a text from a place on that have so many values, and the lines that are none."""
    good, bad, record, line = list[_Record](), list[BadRecord](), _record(separator, count), 1
    line += len(_BREAK.findall(text, 0, at))
    while True:
        start = _EMPTY_LINES.match(text, at).end()  # type: ignore[union-attr]
        line += len(_BREAK.findall(text, at, start)) if start > at else 0
        if start == len(text):
            return good, bad
        found = record.match(text, start)
        if found is not None:
            at = found.end()
            good.append(_Record(line, start, at))
        else:
            at, values = _next_line(text, start), _values_at(text, start, separator)
            reason = "a quote is not closed" if values.open else _other_number(len(values.raw), count)
            bad.append(BadRecord(line, text[start:at], reason))
        line += len(_BREAK.findall(text, start, at)) if text.find(_QUOTE, start, at) >= 0 else 1


def _values_at(text: bytes, at: int, separator: str) -> _Values:
    """The raw values of the record at a place."""
    field, mark, raw = _field(separator), separator.encode(), list[bytes]()
    while True:
        found = field.match(text, at)
        assert found is not None  # an empty value matches everywhere
        raw.append(found["value"])
        at = found.end()
        if found["end"] != mark:
            return _Values(raw, at, found["open"] is not None)


def _value(raw: bytes) -> tuple[bytes, bool]:
    """What is written as a value, and whether it was in quotes."""
    if not raw.startswith(_QUOTE):
        return raw, False
    found = _QUOTED.match(raw)
    assert found is not None  # what begins with a quote
    return found[1].replace(b'""', _QUOTE) + found[2], True


def _one_by_one(
    text: bytes, records: Sequence[_Record], schema: pa.Schema, columns: _Columns, options: CsvOptions
) -> TextRows:
    """The rows of records, each read by itself."""
    bad: list[BadRecord] = []
    good: list[_Record] = []
    texts: list[list[str | None]] = [[] for _ in schema]
    for record in records:
        values = _values_at(text, record.start, options.separator).raw
        try:
            row = [_text(values, p, f, options) for p, f in zip(columns.declared, schema, strict=True)]
        except UnicodeDecodeError:
            bad.append(BadRecord(record.line, text[record.start : record.stop], "it is not UTF-8"))
        else:
            good.append(record)
            for column, value in zip(texts, row, strict=True):
                column.append(value)
    return _cast(text, good, texts, schema, bad)


def _next_line(text: bytes, at: int) -> int:
    found = _BREAK.search(text, at)
    return len(text) if found is None else found.end()


def _other_number(found: int, columns: int) -> str:
    return f"it has {found} value{'s' if found != 1 else ''}, not {columns}"


def _text(values: Sequence[bytes], place: int | None, field: pa.Field, options: CsvOptions) -> str | None:
    """A value of a record as a text; None if it is null."""
    if place is None:
        return None
    raw, quoted = _value(values[place])
    text = raw.decode()
    if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
        return None if not quoted and text == options.null_word else text
    return None if text == options.null_word or not text.strip(" \t") else text


def _cast(
    text: bytes, records: Sequence[_Record], values: Sequence[list[str | None]], schema: pa.Schema, bad: list[BadRecord]
) -> TextRows:
    """The rows whose values are all of their columns' types; the others are added to those that are bad."""
    columns, reasons = [], dict[int, str]()
    for field, column in zip(schema, values, strict=True):
        found, wrong = texts_as(pa.array(column, pa.string()), field.type)
        columns.append(found)
        for place, reason in wrong.items():
            reasons.setdefault(place, f"{field.name}: {reason}")

    def record_of(place: int) -> tuple[int, bytes]:
        return records[place].line, text[records[place].start : records[place].stop]

    return TextRows.among(rows_of(columns, schema, len(records)), reasons, bad, record_of)
