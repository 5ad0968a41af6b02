"""What the bytes of messages mean: rows of JSON, Avro or Protobuf, changes as Debezium writes them, or bytes.

A message is one row. One that is none is a bad row, which says where the message is; others are read all the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from midstream.connectors.files.bad_rows import BadRow, shown, with_bad_rows
from midstream.connectors.files.json_text import read_json
from midstream.connectors.halving import in_halves
from midstream.connectors.schema_registry import Row, SchemaRegistry
from midstream.connectors.values import columns_of_values
from midstream.errors import InputError
from midstream.inputs.ddl import schema_of_ddl

FORMATS = ("json", "debezium", "raw")
WITH_REGISTRY = ("avro", "protobuf")
"""The formats of messages that name a schema, which a registry has."""

CHANGES: Mapping[str, str] = {"c": "insert", "r": "insert", "u": "update", "d": "delete"}
"""What Debezium's letters mean; `r` is a row that was there before changes were read."""


Where: TypeAlias = Callable[[int], Mapping[str, str | int]]
"""Where the message of a number is."""

About: TypeAlias = Mapping[str, Callable[[], Sequence[Any]]]
"""What is known of messages besides their bytes, by column."""


@dataclass(frozen=True, slots=True)
class Messages:
    """How the messages of a source are read; `about` are the columns that it knows besides their bytes."""

    format: str
    schema: pa.Schema
    about: frozenset[str] = frozenset()
    registry: SchemaRegistry | None = None

    @staticmethod
    def of(format: str, schema: str | None, about: pa.Schema, name: str, registry: str | None = None) -> Messages:
        """Messages that have the columns of a schema; raw ones have their bytes and all that is known besides."""
        if (registry is not None) != (format in WITH_REGISTRY):
            missing = f"{name} of the format {format} needs a schema registry"
            spare = f"{name} has a schema registry, which its format {format} does not use"
            raise InputError(missing if registry is None else spare, hint='such as registry = "http://host:8081"')
        if format == "raw":
            if schema is not None:
                raise InputError(f"{name} of the format raw has no schema of its own", hint="leave it out")
            return Messages(format, pa.schema([("value", pa.binary()), *about]), frozenset(about.names))
        if schema is None:
            hint = 'add for instance schema = "id BIGINT, ts TIMESTAMP"'
            raise InputError(f"{name} of the format {format} needs a schema", hint=hint)
        found = schema_of_ddl(schema, f"the schema of {name}")
        for field in found:
            if field.name in about.names and about.field(field.name).type != field.type:
                kind = about.field(field.name).type
                raise InputError(f"column {field.name} of {name} is {kind}, and its schema says {field.type}")
        known = None if registry is None else SchemaRegistry(registry)
        return Messages(format, found, frozenset(about.names) & set(found.names), known)

    def rows(self, values: Sequence[bytes | None], where: Where, about: About) -> pa.Table:
        """The rows of messages, by their bytes, where they are, and what is known besides, by column."""
        if self.format == "debezium" and None in values:  # one follows each deletion, for compaction, and is no change
            kept = [number for number, value in enumerate(values) if value is not None]
            known = {name: partial(_chosen, give, kept) for name, give in about.items()}
            return self.rows([values[number] for number in kept], lambda number: where(kept[number]), known)
        own = pa.schema([field for field in self.schema if field.name not in self.about])
        found, bad = self._read(values, own)
        good = [number for number in range(len(values)) if number not in bad] if bad else []
        columns = []
        for field in self.schema:
            if field.name in self.about:
                known = pa.array(about[field.name](), field.type)
                columns.append(known.take(pa.array(good, pa.int64())) if bad else known)
            else:
                columns.append(found.column(field.name))
        letters = [BadRow(where(n), shown(values[n] or b""), why) for n, why in sorted(bad.items())]
        return with_bad_rows(pa.Table.from_arrays(columns, schema=self.schema), letters)

    def _read(self, values: Sequence[bytes | None], schema: pa.Schema) -> tuple[pa.Table, dict[int, str]]:
        """The rows of messages that are good, and why others are not, by their numbers."""
        if self.format == "raw":
            return pa.table([pa.array(values, pa.binary())], schema=schema), {}
        if self.format == "json":
            return _json_rows(values, schema)
        if self.registry is not None:
            return _registered_rows(values, schema, self.format, self.registry)
        texts, bad = list[bytes | None](), dict[int, str]()
        for number, value in enumerate(values):
            try:
                texts.append(_changed_row(value))
            except (ValueError, TypeError, AttributeError) as error:
                bad[number] = f"it is no change as Debezium writes it: {error}"
        rows, more = _json_rows(texts, schema)
        places = [number for number in range(len(values)) if number not in bad]
        return rows, bad | {places[number]: reason for number, reason in more.items()}


def _chosen(give: Callable[[], Sequence[Any]], numbers: Sequence[int]) -> list[Any]:
    given = give()
    return [given[number] for number in numbers]


def _registered_rows(
    values: Sequence[bytes | None], schema: pa.Schema, format: str, registry: SchemaRegistry
) -> tuple[pa.Table, dict[int, str]]:
    """The rows of messages whose schemas a registry has; columns that a message lacks are null."""
    rows, bad = list[Row](), dict[int, str]()
    for number, value in enumerate(values):
        try:
            rows.append(registry.decoded(format, value))
        except ValueError as error:
            bad[number] = str(error)
    table, wrong = columns_of_values([[row.get(field.name) for row in rows] for field in schema], schema)
    if not wrong:
        return table, bad
    places = [number for number in range(len(values)) if number not in bad]
    kept = pa.array([number for number in range(len(rows)) if number not in wrong], pa.int64())
    return table.take(kept), bad | {places[number]: reason for number, reason in wrong.items()}


def _changed_row(value: bytes | None) -> bytes | None:
    """A change as a row: the columns after it, or before it if it is a deletion; which change it is, and when."""
    if value is None:
        raise ValueError("it has no value")
    change = json.loads(value)
    change = change.get("payload", change)
    kind = CHANGES.get(change.get("op", ""))
    row = change.get("before" if kind == "delete" else "after")
    if kind is None or not isinstance(row, dict):
        raise ValueError(f"op is {change.get('op')!r}")
    at = change.get("ts_ms")
    when = None if at is None else str(pa.scalar(at, pa.timestamp("ms")).cast(pa.string()))
    return json.dumps({**row, "change": kind, "changed_at": when}).encode()


def _json_rows(values: Sequence[bytes | None], schema: pa.Schema) -> tuple[pa.Table, dict[int, str]]:
    """Messages that are objects of JSON, read at once; where some are bad, in halves, until these are alone.

    A line has one message. No two of them that begin and end with braces are an object together, so if there are as
    many rows as messages, each message is a row.
    """
    bad: dict[int, str] = {}

    def read(start: int, stop: int) -> pa.Table:
        text = _lines(values[start:stop])
        found = None if text is None else read_json(text, schema)
        if found is None or found.bad or found.rows.num_rows != stop - start:
            raise ValueError
        return found.rows

    def refuse(place: int, _: Exception) -> pa.Table:
        why = read_json(values[place] or b"", schema).bad
        bad[place] = why[0].reason if why else "it is not one object of JSON"
        return schema.empty_table()

    return pa.concat_tables([schema.empty_table(), *in_halves(len(values), read, (ValueError,), refuse)]), bad


def _lines(values: Sequence[bytes | None]) -> bytes | None:
    """Messages, each on a line that begins and ends with braces; None if one of them does not."""
    present = [value for value in values if value is not None]
    if len(present) < len(values):
        return None
    text = b"\n".join(present)
    if _has_lines(text, len(values)):
        return text
    text = b"\n".join(value.replace(b"\n", b" ").strip() for value in present)
    return text if _has_lines(text, len(values)) else None


def _has_lines(text: bytes, count: int) -> bool:
    """Whether a text has so many lines, each of which begins and ends with a brace.

    >>> _has_lines(b'{"k": 1}\\n{}', 2), _has_lines(b'{"k": \\n1}', 2)
    (True, False)
    """
    if text[:1] != b"{" or text[-1:] != b"}":
        return False
    letters = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(letters == ord("\n"))
    between = (letters[ends - 1] == ord("}")) & (letters[ends + 1] == ord("{"))
    return len(ends) == count - 1 and bool(between.all())
