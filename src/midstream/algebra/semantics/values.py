"""The oracle's values: plain Python, one at a time.

A timestamp is a whole number of nanoseconds since 1970 UTC and a duration a whole number of nanoseconds, whatever
their Arrow unit and zone: instants compare as numbers, and no clock change can confuse two of them. All other values
are what Arrow calls their Python form.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import pyarrow as pa

from midstream.errors import InputError

Row = tuple[Any, ...]

NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}

_NOT_A_NUMBER = object()


def is_counted(data_type: pa.DataType) -> bool:
    """Whether values of the type are held as a count of nanoseconds."""
    return bool(pa.types.is_timestamp(data_type) or pa.types.is_duration(data_type))


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """An Arrow column as Python values."""
    if pa.types.is_dictionary(column.type):
        return python_values(column.cast(column.type.value_type))
    if is_counted(column.type):
        unit = NANOSECONDS[column.type.unit]
        return [None if v is None else v * unit for v in column.cast(pa.int64()).to_pylist()]
    return list(column.to_pylist())


def python_value(value: Any, data_type: pa.DataType) -> Any:
    """A literal's value in the oracle's form."""
    return python_values(pa.array([value], data_type))[0]


def arrow_array(values: list[Any], data_type: pa.DataType) -> pa.Array:
    """Python values as an Arrow array of the given type."""
    if pa.types.is_dictionary(data_type):
        return arrow_array(values, data_type.value_type).cast(data_type)
    if is_counted(data_type):
        unit = NANOSECONDS[data_type.unit]
        return pa.array([None if v is None else v // unit for v in values], pa.int64()).cast(data_type)
    return pa.array(values, data_type)


def identity(value: Any) -> Hashable:
    """What two values share when grouping holds them equal: nulls are equal, NaN is equal to itself, 0.0 to -0.0."""
    match value:
        case float() if math.isnan(value):
            return _NOT_A_NUMBER
        case list() | tuple():
            return tuple(identity(v) for v in value)
        case dict():
            return tuple((k, identity(v)) for k, v in value.items())
        case _:
            return value  # type: ignore[no-any-return]


def row_identity(row: Row) -> Hashable:
    """The identity of a row: of all its values."""
    return tuple(identity(v) for v in row)


def order(value: Any) -> tuple[Any, ...]:
    """A sort key: nulls first, then values ascending, NaN last; nested values by elements, nulls in them last."""
    match value:
        case None:
            return (0,)
        case float() if math.isnan(value):
            return (2,)
        case list() | tuple():
            return (1, tuple((3,) if v is None else order(v) for v in value))
        case dict():
            return order(tuple(value.values()))
        case _:
            return (1, value)


def row_order(row: Row) -> tuple[Any, ...]:
    """The total order among rows of equal time: by all columns, as the schema lists them."""
    return tuple(order(v) for v in row)


def time_ticks(column: pa.Array | pa.ChunkedArray, name: str) -> list[int | None]:
    """A time column in ticks: integers as they are, timestamps in microseconds."""
    values = python_values(column)
    if not pa.types.is_timestamp(column.type):
        return values
    for value in values:
        if value is not None and value % 1000:
            raise InputError(
                f"time column {name} has an instant finer than a microsecond",
                detail=f"{value} nanoseconds since 1970",
                hint="round the column to microseconds",
            )
    return [None if v is None else v // 1000 for v in values]
