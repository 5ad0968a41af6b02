"""Schemas as Spark writes them in text: `id BIGINT, ts TIMESTAMP, tags ARRAY<STRING>`."""

from __future__ import annotations

import re

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from midstream.errors import InputError

_PLAIN: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "CHAR": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMPLTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMPNTZ": pa.timestamp("us"),
}


_MOST_DIGITS = 38

_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.uint8(): "SMALLINT",
    pa.uint16(): "INT",
    pa.uint32(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.large_string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.null(): "STRING",
}


class SchemaError(InputError):
    """A schema that cannot be read; `part` is the piece of its text that is wrong."""

    part: str | None = None


_COLUMN = re.compile(
    r"\s*(?:`((?:[^`]|``)+)`|(\w+))\s*:?\s+(.+?)(?:\s+NOT\s+NULL)?(?:\s+COMMENT\s+'.*')?\s*", re.I | re.S
)
"""A name, plain or in backquotes, and a type."""


def schema_of_ddl(ddl: str, place: str = "the schema") -> pa.Schema:
    """The Arrow columns that a schema's text describes; `place` is what errors call it.

    >>> schema_of_ddl("id BIGINT, ts TIMESTAMP").names
    ['id', 'ts']
    """
    return pa.schema([_field(part, place, ddl) for part in _parts(ddl)])


def ddl_of_schema(schema: pa.Schema) -> str | None:
    """The text of a schema, as Spark writes it; None if Spark has no type for one of its columns.

    >>> ddl_of_schema(pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))]))
    'id BIGINT, tags ARRAY<STRING>'
    """
    kinds = [(field.name, _written(field.type)) for field in schema]
    if any(kind is None for _, kind in kinds):
        return None
    return ", ".join(f"{_written_name(name)} {kind}" for name, kind in kinds)


def _written_name(name: str) -> str:
    return name if re.fullmatch(r"\w+", name, re.ASCII) else "`" + name.replace("`", "``") + "`"


def _written(kind: pa.DataType) -> str | None:
    """The name of a type; unsigned integers get the next wider one."""
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_map(kind):
        inner = [_written(kind.key_type), _written(kind.item_type)]
        return None if None in inner else f"MAP<{inner[0]}, {inner[1]}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        value = _written(kind.value_type)
        return None if value is None else f"ARRAY<{value}>"
    if pa.types.is_struct(kind):
        parts = [(part.name, _written(part.type)) for part in kind]
        if any(part is None for _, part in parts):
            return None
        return f"STRUCT<{', '.join(f'{_written_name(name)}: {part}' for name, part in parts)}>"
    return _NAMES.get(kind)


def _parts(ddl: str) -> list[str]:
    """The text between the commas that are inside nothing."""
    parts, depth, quoted = [""], 0, False
    for sign in ddl:
        quoted ^= sign == "`"
        depth += 0 if quoted else (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def _field(part: str, place: str, ddl: str) -> pa.Field:
    found = _COLUMN.fullmatch(part)
    if found is None:
        raise _unreadable(place, ddl, f"{part.strip()!r} is not a name and a type", part.strip())
    name = found[2] if found[1] is None else found[1].replace("``", "`")
    try:
        kind = exp.DataType.build(found[3], dialect="spark")
    except (SqlglotError, TypeError):  # of other things than types, its compiled form makes the latter
        raise _unreadable(place, ddl, f"column {name}: there is no type {found[3]}", found[3]) from None
    return pa.field(name, _type(kind, place, ddl))


def _type(kind: exp.DataType, place: str, ddl: str) -> pa.DataType:
    name = kind.this.name if isinstance(kind.this, exp.DataType.Type) else str(kind.this)
    inner = kind.expressions
    if name == "DECIMAL":
        return _decimal(kind, place, ddl)
    if name in ("ARRAY", "LIST") and len(inner) == 1:
        return pa.list_(_type(inner[0], place, ddl))
    if name == "MAP" and len(inner) == 2:
        return pa.map_(_type(inner[0], place, ddl), _type(inner[1], place, ddl))
    if name == "STRUCT" and inner and all(isinstance(part, exp.ColumnDef) and part.args.get("kind") for part in inner):
        return pa.struct([pa.field(part.name, _type(part.args["kind"], place, ddl)) for part in inner])
    if name not in _PLAIN:
        raise _unreadable(place, ddl, f"there is no type {kind.sql(dialect='spark')}")
    return _PLAIN[name]


def _decimal(kind: exp.DataType, place: str, ddl: str) -> pa.DataType:
    """Ten digits before the point, unless the text says otherwise, as for Spark."""
    written = [part.name for part in kind.expressions]
    if len(written) <= 2 and all(re.fullmatch("[0-9]{1,2}", digits) for digits in written):
        precision, scale = [*map(int, written), *(10, 0)[len(written) :]]
        if scale <= precision and 1 <= precision <= _MOST_DIGITS:
            return pa.decimal128(precision, scale)
    text = kind.sql(dialect="spark")
    limits = f"DECIMAL(precision, scale) has 1 to {_MOST_DIGITS} digits, at most all of them after the point"
    raise _unreadable(place, ddl, f"there is no type {text}: {limits}")


def _unreadable(place: str, ddl: str, detail: str, part: str | None = None) -> SchemaError:
    error = SchemaError(
        f"{place} cannot be read: {ddl}",
        detail=detail,
        hint="write name TYPE pairs as Spark does, for instance: id BIGINT, ts TIMESTAMP, price DOUBLE",
    )
    error.part = part
    return error
