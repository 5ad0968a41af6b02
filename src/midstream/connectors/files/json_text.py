"""What the bytes of a file of JSON lines mean.

A row is an object, or `null`, which is a row of nulls. Usually there is one on a line; several may be on one line, and
one may span several. The keys of an object are the names of columns; columns that it lacks are null. A value that is
none of its column's type makes its row bad: a text is no number, and a number is no text. Dates, times and bytes are
texts; decimals are numbers or texts.

What cannot be read as rows up to the end of a line is bad up to there, and reading goes on with the next line.

Arrow reads a whole file at once and is fast. What it refuses is divided until only a few rows around each bad one are
left, and these are read record by record, which gives the same rows. It is divided where a line ends with a brace and
the next begins with one: no value that can be read spans that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.json

from midstream.connectors.files.csv_text import in_blocks
from midstream.connectors.files.text_values import BadRecord, TextRows, as_declared_type, in_parts, rows_of, texts_as
from midstream.inputs.json_lines import without_leading_nulls

_MARK = b"\xef\xbb\xbf"
_BLANKS = re.compile(r"[ \t\r\n]*")
_TO_THE_END = re.compile(r"[ \t]*(\r\n|\n|\r|\Z)")
_BREAK = re.compile(r"\r\n|\n|\r")
_BREAK_BYTES = re.compile(rb"\r\n|\n|\r")
_BETWEEN = re.compile(rb"\}[ \t]*(?:\r\n|\n|\r)(?=\{)")
"""Where a line ends with a brace and the next begins with one."""


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_Number)


FEW_BYTES = 32_768
"""What is not longer is not divided."""


def read_json(text: bytes, schema: pa.Schema, one_by_one: bool = False) -> TextRows:
    """The rows of a text, with the columns of a schema; only if they are read one by one the line of each is known."""
    text = text.removeprefix(_MARK)
    if not text.strip():
        return TextRows(schema.empty_table())
    lines = _Lines(text)

    def read_at_once(start: int, stop: int) -> pa.Table | None:
        return _at_once(text[start:stop], schema)

    def read_one_by_one(start: int, stop: int) -> TextRows:
        # What is not UTF-8 is kept apart from other characters, so that the rest is read, and the row of it is bad.
        return _record_by_record(text[start:stop].decode("utf-8", "surrogateescape"), schema, lines.at(start))

    def middle(start: int, stop: int) -> int | None:
        found = _BETWEEN.search(text, (start + stop) // 2, stop) if stop - start > FEW_BYTES else None
        return None if found is None else found.end()

    if one_by_one:
        return read_one_by_one(0, len(text))
    return in_parts(len(text), read_at_once, read_one_by_one, middle)


@dataclass(slots=True)
class _Lines:
    """The numbers of the lines of a text, from its start to its end."""

    text: bytes
    _place: int = 0
    _line: int = 1

    def at(self, place: int) -> int:
        """The line of a place that is not before the last one."""
        self._line += len(_BREAK_BYTES.findall(self.text, self._place, place))
        self._place = place
        return self._line


def _parsed_as(kind: pa.DataType) -> pa.DataType:
    """The type that values are first read as: dates and times are texts."""
    return pa.string() if pa.types.is_temporal(kind) else kind


def _at_once(text: bytes, schema: pa.Schema) -> pa.Table | None:
    """The rows as Arrow reads them; None if it does not."""
    read_as = pa.schema([pa.field(f.name, _parsed_as(f.type)) for f in schema])
    try:
        text.decode()
    except UnicodeDecodeError:
        return None
    text = without_leading_nulls(text)
    parse_options = pyarrow.json.ParseOptions(explicit_schema=read_as, unexpected_field_behavior="ignore")

    def read(block: int) -> pa.Table:
        return pyarrow.json.read_json(pa.BufferReader(text), pyarrow.json.ReadOptions(block_size=block), parse_options)

    try:
        table = in_blocks(read)
        columns = [as_declared_type(table.column(f.name), f.type) for f in schema]
        made = rows_of(columns, schema, table.num_rows)
        made.validate(full=True)
        return made
    except (pa.ArrowException, ValueError, KeyError):
        return None


@dataclass(frozen=True, slots=True)
class _Found:
    """A value, and where it is: the line that it begins in, from and to which character."""

    value: Any
    line: int
    start: int
    stop: int


def _record_by_record(text: str, schema: pa.Schema, line: int) -> TextRows:
    bad: list[BadRecord] = []
    good: list[_Found] = []
    for found in _values(text, line):
        reason = _not_a_row(found.value, text[found.start : found.stop])
        if reason is None:
            good.append(found)
        else:
            bad.append(BadRecord(found.line, _bytes(text, found), reason))
    columns, reasons = [], dict[int, str]()
    for field in schema:
        values = [None if found.value is None else found.value.get(field.name) for found in good]
        column, wrong = _column(values, field.type)
        columns.append(column)
        for place, reason in wrong.items():
            reasons.setdefault(place, f"{field.name}: {reason}")

    def record_of(place: int) -> tuple[int, bytes]:
        return good[place].line, _bytes(text, good[place])

    return TextRows.among(rows_of(columns, schema, len(good)), reasons, bad, record_of)


def _bytes(text: str, found: _Found) -> bytes:
    return text[found.start : found.stop].encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class _NoValue:
    """What is in the place of a value that cannot be read."""

    reason: str


def _values(text: str, line: int) -> Iterator[_Found]:
    """The values of a text from a line on; where there is none, the rest of its line is one that cannot be read."""
    at = 0
    while (start := _BLANKS.match(text, at).end()) < len(text):  # type: ignore[union-attr]
        line += len(_BREAK.findall(text, at, start))
        found, at = _to_the_end_of_a_line(text, start, line)
        yield from found
        line += len(_BREAK.findall(text, start, at))


def _to_the_end_of_a_line(text: str, start: int, line: int) -> tuple[list[_Found], int]:
    """Values up to the first end of a line that follows one, and where that is."""
    found: list[_Found] = []
    at = start
    try:
        while True:
            value, stop = _DECODER.raw_decode(text, at)
            found.append(_Found(value, line + len(_BREAK.findall(text, start, at)), at, stop))
            end = _TO_THE_END.match(text, stop)
            if end is not None:
                return found, end.end()
            at = _BLANKS.match(text, stop).end()  # type: ignore[union-attr]
    except (ValueError, RecursionError) as error:
        ending = _BREAK.search(text, start)
        stop = len(text) if ending is None else ending.end()
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else f"it is no JSON: {_why(error)}"
        return [_Found(_NoValue(reason), line, start, stop)], stop


def _why(error: ValueError) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error).split("\n")[0]


def _not_a_row(value: Any, text: str) -> str | None:
    if isinstance(value, _NoValue):
        return value.reason
    if not (value is None or isinstance(value, dict)):
        return f"it is {_KINDS.get(type(value), 'no object')}, not an object"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "it is not UTF-8"
    return None


_KINDS: dict[type, str] = {list: "a list", str: "a text", _Number: "a number", bool: "a boolean"}


def _column(values: list[Any], kind: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """Values as a column, and of those that are none of its type the reasons."""
    if pa.types.is_nested(kind):
        return _nested_column(values, kind)
    texts, bad = list[str | None](), dict[int, str]()
    for place, value in enumerate(values):
        text = None if value is None else _as_text(value, kind)
        if text is None and value is not None:
            bad[place] = f"{_shown(value)} is no {kind}"
        texts.append(text)
    column, wrong = texts_as(pa.array(texts, pa.string()), kind)
    return column, bad | wrong


def _as_text(value: Any, kind: pa.DataType) -> str | None:
    """A value as the text that it is cast from; None if it is none of the type."""
    if isinstance(value, bool):
        return str(value).lower() if pa.types.is_boolean(kind) else None
    if isinstance(value, _Number):
        return str(value) if pa.types.is_integer(kind) or _is_fraction(kind) else None
    if isinstance(value, str):
        is_text = pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_temporal(kind)
        return _utf_8(value) if is_text or pa.types.is_decimal(kind) else None
    return None


def _is_fraction(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _utf_8(text: str) -> str | None:
    """The text, if it is one: escapes can make halves of pairs of UTF-16."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return f"{value:.200}" if isinstance(value, _Number) else f"{ascii(value):.200}"


def _nested_column(values: list[Any], kind: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """Lists and objects as Arrow reads each of them by itself."""
    bad: dict[int, str] = {}
    parts: list[pa.Array] = []
    schema = pa.schema([("v", kind)])
    for place, value in enumerate(values):
        row = None if value is None else _at_once((_dumped({"v": value}) + "\n").encode("utf-8", "replace"), schema)
        if value is not None and row is None:
            bad[place] = f"{_shown(value)} is no {kind}"
        parts += [pa.nulls(1, kind)] if row is None else row.column(0).chunks
    return pa.chunked_array(parts, kind).combine_chunks(), bad


def _dumped(value: Any) -> str:
    """A value as JSON, its numbers as they were written."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_dumped(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_dumped, value)) + "]"
    return json.dumps(value)
