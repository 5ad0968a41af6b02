"""Types that carry values through Spark, which does not know all of Arrow's, and by which rows can be dealt there."""

from __future__ import annotations

import pyarrow as pa

from midstream.errors import InputError


def carrier(kind: pa.DataType) -> pa.DataType:
    """The type that carries values of a type through Spark, which does not know all of Arrow's.

    >>> carrier(pa.uint32()), carrier(pa.string())
    (DataType(int64), DataType(string))
    """
    types = pa.types
    if types.is_uint64(kind):
        return pa.decimal128(20, 0)
    if types.is_unsigned_integer(kind) or types.is_time(kind):
        return pa.int64()
    if types.is_null(kind):
        return pa.bool_()
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_decimal256(kind) or types.is_union(kind):
        raise InputError(f"a column of type {kind} cannot travel through Spark", hint="cast it to another type")
    return kind


def carried(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in the type that carries it."""
    return column if column.type == kind else column.cast(kind)


def restored(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A carried column in its own type again."""
    if column.type == kind:
        return column
    if pa.types.is_null(kind):
        return pa.nulls(len(column))
    return column.cast(kind)


def can_arrive_by(kind: pa.DataType) -> bool:
    """Whether rows can be dealt by a column of a type as they arrive.

    >>> can_arrive_by(pa.string()), can_arrive_by(pa.list_(pa.int64()))
    (True, False)
    """
    types = pa.types
    if types.is_dictionary(kind):
        return can_arrive_by(kind.value_type)
    if types.is_decimal256(kind) or types.is_nested(kind) or types.is_null(kind):
        return False
    kind = carrier(kind)
    plain = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    timed = types.is_date32(kind) or types.is_timestamp(kind) or types.is_duration(kind)
    texts = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return bool(plain or timed or texts or types.is_binary(kind) or types.is_large_binary(kind))
