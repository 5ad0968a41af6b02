"""Few, plain types: encodings say how a value is stored, not what it is.

Dictionaries, views and large offsets become plain columns; times of any unit become microseconds, the tick of the
engine. A value that would change on the way is refused by name.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from midstream.errors import InputError

FAILURES = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What Arrow raises when values do not fit."""


def plain(name: str, table: pa.Table) -> pa.Table:
    """The table with every column in its plain type."""
    unique_columns(name, table.column_names)
    schema = plain_schema(name, table.schema)
    columns = [_as_plain(name, f, column) for f, column in zip(schema, table.columns, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _as_plain(name: str, field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        return pa.chunked_array([_decoded(chunk).cast(field.type) for chunk in column.chunks], field.type)
    except FAILURES as error:
        raise InputError(
            f"column {field.name!r} of stream {name} is {column.type} and does not fit {field.type}",
            detail=str(error).split("\n")[0],
            hint=f"cast it to {field.type} yourself, and say there what is to be lost",
        ) from error


def _decoded(chunk: pa.Array) -> pa.Array:
    """The chunk without the outer encodings that Arrow's cast does not know."""
    if pa.types.is_run_end_encoded(chunk.type):
        return pc.run_end_decode(chunk)
    if pa.types.is_dictionary(chunk.type):
        return chunk.dictionary.cast(plain_type(chunk.type.value_type)).take(chunk.indices)
    if isinstance(chunk.type, pa.BaseExtensionType):
        return chunk.storage
    return chunk


def plain_schema(name: str, schema: pa.Schema) -> pa.Schema:
    """The columns a stream has once its values are stored plainly; metadata and nullability say nothing here."""
    if not isinstance(schema, pa.Schema):
        raise InputError(f"stream {name} is described by a {type(schema).__name__}, not by a pyarrow Schema")
    return pa.schema([pa.field(f.name, plain_type(f.type)) for f in schema])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The plain type that holds the same values.

    >>> plain_type(pa.dictionary(pa.int32(), pa.large_string()))
    DataType(string)
    >>> plain_type(pa.timestamp("ns", "Europe/Berlin"))
    TimestampType(timestamp[us, tz=Europe/Berlin])
    """
    is_ = pa.types
    if is_.is_dictionary(kind) or is_.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if is_.is_large_string(kind) or is_.is_string_view(kind):
        return pa.string()
    if is_.is_large_binary(kind) or is_.is_binary_view(kind):
        return pa.binary()
    if is_.is_nested(kind):
        return _plain_nested(kind)
    return _plain_number(kind)


def _plain_nested(kind: pa.DataType) -> pa.DataType:
    is_ = pa.types
    if is_.is_struct(kind):
        return pa.struct([pa.field(f.name, plain_type(f.type)) for f in kind])
    if is_.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if is_.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type), kind.list_size)
    if is_.is_union(kind):
        return kind
    return pa.list_(plain_type(kind.value_type))


def _plain_number(kind: pa.DataType) -> pa.DataType:
    is_ = pa.types
    if is_.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if is_.is_duration(kind):
        return pa.duration("us")
    if is_.is_time(kind):
        return pa.time64("us")
    if is_.is_date(kind):
        return pa.date32()
    if is_.is_float16(kind):
        return pa.float32()
    if is_.is_decimal32(kind) or is_.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    return kind


def unique_columns(name: str, columns: list[str]) -> None:
    """Refuses two columns of the same name."""
    repeated = sorted({c for c in columns if columns.count(c) > 1})
    if repeated:
        raise InputError(f"stream {name} has two columns of the same name: {', '.join(repeated)}")
