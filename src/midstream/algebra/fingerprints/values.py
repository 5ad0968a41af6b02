"""Values that are described by what they hold: equal values have equal parts, in every process.

No part depends on a memory address, on the order of a hash table or on a `repr` that a user wrote.
"""

from __future__ import annotations

import array
import datetime
import decimal
import enum
import fractions
import hashlib
import operator
import pathlib
import re
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

PLAIN = (str, bytes, int, float, complex, bool, type(None))
_PLAIN = frozenset(PLAIN)


def is_plain(value: Any) -> bool:
    """Whether a value is of one of the plain types itself; a subclass may mean something else by it."""
    return type(value) in _PLAIN


def plain_text(value: Any, kind: Any) -> str:
    """The text of a value of a plain type, or of a subclass as its plain type writes it."""
    if kind is bytes:
        return f"bytes {hashlib.blake2b(value).hexdigest()}"
    text = int.__format__(value, "x") if kind is int else kind.__repr__(value)
    return f"{kind.__name__} {text}"


def is_known_by_value(value: Any) -> bool:
    """Whether a value is described by what it holds."""
    return is_plain(value) or any(kind in _PARTS for kind in type(value).__mro__)


def value_parts(value: Any) -> tuple[Any, ...] | None:
    """What a value that is described by value consists of, the name of its type first; None for all others.

    >>> value_parts(decimal.Decimal("1.10"))
    ('decimal.Decimal', '1.10')
    >>> value_parts(object()) is None
    True
    """
    for kind in type(value).__mro__:
        if kind in _PARTS:
            own_kind = type(value).__qualname__ if isinstance(value, enum.Enum) else kind.__qualname__
            return f"{kind.__module__}.{own_kind}", *_PARTS[kind](value)
    return None


def _wall_clock(value: Any) -> tuple[Any, ...]:
    return value.replace(tzinfo=None).isoformat(), value.fold, value.tzinfo


def _bounds(value: Any) -> tuple[Any, ...]:
    return value.start, value.stop, value.step


def _numpy_array(value: Any) -> tuple[Any, ...]:
    # The bytes of an object array are addresses, those of records and long doubles have padding.
    whole = value.dtype.kind in "biufcSUmM" and value.dtype.char not in "gG"
    return str(value.dtype), value.shape, value.tobytes() if whole else value.tolist()


def _numpy_scalar(value: Any) -> tuple[Any, ...]:
    return str(value.dtype), value.item() if isinstance(value, np.void) else str(value)


def _arrow_table(value: Any) -> tuple[Any, ...]:
    return str(value.schema), [column.to_pylist() for column in value.columns]


def _text(value: Any) -> tuple[Any, ...]:
    return (str(value),)


def _arguments(value: Any) -> tuple[Any, ...]:
    return tuple(value.__reduce__())


_PARTS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    array.array: lambda value: (value.typecode, value.tobytes()),
    bytearray: lambda value: (bytes(value),),
    datetime.date: lambda value: (value.isoformat(),),
    datetime.datetime: _wall_clock,
    datetime.time: _wall_clock,
    datetime.timedelta: lambda value: (value.days, value.seconds, value.microseconds),
    datetime.timezone: lambda value: (value.utcoffset(None), value.tzname(None)),
    decimal.Decimal: lambda value: (decimal.Decimal.__str__(value),),
    enum.Enum: lambda value: (value._name_, value._value_),
    fractions.Fraction: lambda value: (value.numerator, value.denominator),
    memoryview: lambda value: (value.tobytes(),),
    operator.attrgetter: _arguments,
    operator.itemgetter: _arguments,
    operator.methodcaller: _arguments,
    pathlib.PurePath: lambda value: (value.as_posix(),),
    range: _bounds,
    re.Pattern: lambda value: (value.pattern, value.flags),
    slice: _bounds,
    uuid.UUID: lambda value: (value.int,),
    zoneinfo.ZoneInfo: lambda value: (value.key,),
    np.dtype: _text,
    np.generic: _numpy_scalar,
    np.ndarray: _numpy_array,
    np.ufunc: lambda value: (value.__name__,),
    pa.Array: lambda value: (str(value.type), value.to_pylist()),
    pa.ChunkedArray: lambda value: (str(value.type), value.to_pylist()),
    pa.DataType: _text,
    pa.Field: _text,
    pa.RecordBatch: _arrow_table,
    pa.Scalar: lambda value: (str(value.type), value.as_py()),
    pa.Schema: _text,
    pa.Table: _arrow_table,
}
