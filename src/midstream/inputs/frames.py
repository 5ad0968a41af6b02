"""What users bring becomes Arrow tables: frames of any library, rows, columns, batches, files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from midstream.errors import InputError
from midstream.inputs.files import read_table

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


NO_COLUMNS = pa.schema([])


def table_of(name: str, value: object, declared: pa.Schema = NO_COLUMNS) -> pa.Table:
    """One stream's rows: Arrow, pandas, Polars, rows or batches in a list or as they come, columns, or a file's path.

    Python values take the types that are declared for their columns, where any are.
    """
    rows = _raw_table(name, value, declared)
    return rows if len(declared) and rows.schema.equals(declared, check_metadata=True) else plain(name, rows)


def polars_of(table: pa.Table) -> Any:
    """A table as a Polars DataFrame."""
    try:
        import polars
    except ImportError as error:
        raise InputError("Polars is not installed", hint="pip install polars") from error
    return polars.from_arrow(table)


def _raw_table(name: str, value: object, declared: pa.Schema) -> pa.Table:
    match value:
        case pa.Table():
            return value
        case pa.RecordBatch():
            return pa.Table.from_batches([value])
        case str() | os.PathLike():
            return read_table(Path(value))
        case Mapping():
            return _from_columns(name, dict(value), declared)
    if _is_from(value, "pandas", "DataFrame"):
        return _from_pandas(name, value)
    if _is_from(value, "polars", "LazyFrame"):
        value = value.collect()  # type: ignore[attr-defined]
    if hasattr(value, "__arrow_c_stream__"):
        return _from_capsule(name, value)
    if isinstance(value, Iterator):
        value = list(value)
    if isinstance(value, Sequence) and value and all(isinstance(v, pa.RecordBatch) for v in value):
        return _from_batches(name, value)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return _from_rows(name, value, declared)
    raise InputError(
        f"stream {name} is a {type(value).__name__}, which is not a table",
        hint="give a pyarrow Table, a pandas or Polars frame, a list of rows as dicts, or the path of a file",
    )


def _is_from(value: object, package: str, kind: str) -> bool:
    # By name, so that nobody has to install what they do not use.
    return any(c.__module__.split(".")[0] == package and c.__name__ == kind for c in type(value).__mro__)


def _from_capsule(name: str, value: object) -> pa.Table:
    try:
        return pa.table(value)
    except FAILURES as error:
        raise InputError(f"stream {name} cannot be turned into an Arrow table", detail=str(error)) from error


def _from_batches(name: str, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    try:
        return pa.Table.from_batches(batches)
    except FAILURES as error:
        raise InputError(f"the batches of stream {name} differ in their columns", detail=str(error)) from error


def _from_pandas(name: str, frame: Any) -> pa.Table:
    if all(level is not None for level in frame.index.names):
        frame = frame.reset_index()
    columns = [str(c) for c in frame.columns]
    unique_columns(name, columns)
    return pa.table({column: _array(name, column, frame.iloc[:, i]) for i, column in enumerate(columns)})


def _from_rows(name: str, rows: Sequence[object], declared: pa.Schema) -> pa.Table:
    dicts = [row for row in rows if isinstance(row, Mapping)]
    if len(dicts) < len(rows):
        wrong = next(i for i, row in enumerate(rows) if not isinstance(row, Mapping))
        raise InputError(f"row {wrong} of stream {name} is a {type(rows[wrong]).__name__}, not a dict of columns")
    # The union of all keys: a key that the first row lacks is a column too.
    columns = list(dict.fromkeys(key for row in dicts for key in row)) if dicts else declared.names
    return _from_columns(name, {column: [row.get(column) for row in dicts] for column in columns}, declared)


def _from_columns(name: str, columns: dict[Any, Any], declared: pa.Schema) -> pa.Table:
    for key in columns:
        if not isinstance(key, str):
            raise InputError(f"stream {name} has a column whose name is {key!r}, not text")
    kinds = {field.name: field.type for field in declared}
    arrays = {key: _array(name, key, values, kinds.get(key)) for key, values in columns.items()}
    lengths = {key: len(values) for key, values in arrays.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        raise InputError(f"the columns of stream {name} differ in length", detail=shown)
    return pa.table(arrays)


def _array(name: str, column: str, values: Any, kind: pa.DataType | None = None) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InputError(f"column {column!r} of stream {name} is a {type(values).__name__}, not a list of values")
    try:
        return pa.array(values, kind, from_pandas=_is_from(values, "pandas", "Series"))
    except FAILURES as error:
        if kind is not None:
            text = f"column {column} of stream {name} is {kind}, and not all of these values fit it"
            raise InputError(text, detail=str(error).split("\n")[0]) from error
        kinds = _kinds(values)
        raise InputError(
            f"column {column!r} of stream {name} mixes types"
            if len(kinds) > 1
            else f"column {column!r} of stream {name} has values that no column can hold",
            detail=", ".join(f"row {row} is {kind}" for kind, row in kinds.items()) if len(kinds) > 1 else str(error),
            hint="give every value of a column the same type",
        ) from error


def _kinds(values: Iterable[object]) -> dict[str, int]:
    """The types among the values, each with the first row it stands in."""
    kinds: dict[str, int] = {}
    for row, value in enumerate(values):
        if value is not None and value == value:
            kinds.setdefault(type(value).__name__, row)
    return kinds
