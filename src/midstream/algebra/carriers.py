"""Types that carry values through Spark, which does not know all of Arrow's."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from midstream.errors import InputError


@lru_cache(maxsize=1_024)
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


def restored(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column that was carried by another type in its own again."""
    if pa.types.is_null(kind):
        return pa.nulls(len(column))
    return column.cast(kind)
