"""Types as the language sees them: what can stand side by side, and in which type it then does."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kind

INTEGER = pa.int64()
DOUBLE = pa.float64()
TEXT = pa.string()
BOOLEAN = pa.bool_()
DURATION = pa.duration("us")
DECIMAL_DIGITS = 38


def common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type in which values of both can stand side by side; None if there is none.

    >>> common_type(pa.int32(), pa.int64())
    DataType(int64)
    >>> common_type(pa.int32(), pa.string()) is None
    True
    """
    if a == b:
        return plain(a)
    if kind.is_null(a) or kind.is_null(b):
        return plain(b if kind.is_null(a) else a)
    a, b = plain(a), plain(b)
    if a == b:
        return a
    if is_number(a) and is_number(b):
        return _common_number(a, b)
    if is_instant(a) and is_instant(b):
        return _common_instant(a, b)
    if kind.is_duration(a) and kind.is_duration(b):
        return pa.duration(_finest(a.unit, b.unit))
    return None


def mixed_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type in which values of both can be given: anything plain beside a text is a text.

    >>> mixed_type(pa.int32(), pa.string())
    DataType(string)
    """
    text = any(kind.is_string(plain(t)) for t in (a, b))
    if text and not any(is_nested(t) or kind.is_binary(plain(t)) for t in (a, b)):
        return TEXT
    return common_type(a, b) or _common_nested(a, b)


def _common_nested(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type of lists and maps whose elements are given in their common types.

    >>> mixed_type(pa.list_(pa.int32()), pa.list_(pa.int64()))
    ListType(list<item: int64>)
    """
    if has_elements(a) and has_elements(b):
        both = common_type(a.value_type, b.value_type)
        return None if both is None else pa.list_(both)
    if kind.is_map(a) and kind.is_map(b):
        key, value = common_type(a.key_type, b.key_type), common_type(a.item_type, b.item_type)
        return None if key is None or value is None else pa.map_(key, value)
    return None


def as_number(type_: pa.DataType) -> pa.DataType:
    """The type in which a value is calculated with: truths are 0 and 1, texts are read."""
    type_ = plain(type_)
    return INTEGER if kind.is_boolean(type_) else DOUBLE if kind.is_string(type_) else type_


def comparable_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type in which values of both are compared: a text is read as what it is compared with.

    >>> comparable_type(pa.int32(), pa.string())
    DataType(double)
    """
    for one, other in ((plain(a), plain(b)), (plain(b), plain(a))):
        if kind.is_string(one) and is_number(other):
            return DOUBLE
        if kind.is_string(one) and (is_instant(other) or kind.is_boolean(other)):
            return other
        if kind.is_boolean(one) and kind.is_integer(other):
            return INTEGER
    return common_type(a, b)


def plain(type_: pa.DataType) -> pa.DataType:
    """The type without its way of storage: dictionaries and large strings are strings."""
    if kind.is_dictionary(type_):
        return plain(type_.value_type)
    if kind.is_large_string(type_) or kind.is_string_view(type_):
        return TEXT
    if kind.is_large_binary(type_) or kind.is_binary_view(type_) or kind.is_fixed_size_binary(type_):
        return pa.binary()
    return pa.date32() if kind.is_date64(type_) else type_


def is_number(type_: pa.DataType) -> bool:
    """Whether values can be added."""
    return bool(kind.is_integer(type_) or kind.is_floating(type_) or kind.is_decimal(type_))


def is_instant(type_: pa.DataType) -> bool:
    """Whether values are dates or timestamps."""
    return bool(kind.is_date(type_) or kind.is_timestamp(type_))


def is_nested(type_: pa.DataType) -> bool:
    """Whether values are lists, structs or maps: payload that is carried, never compared."""
    return bool(kind.is_nested(type_))


def has_elements(type_: pa.DataType) -> bool:
    """Whether values are lists."""
    return bool(kind.is_list(type_) or kind.is_large_list(type_) or kind.is_fixed_size_list(type_))


def show_type(type_: pa.DataType) -> str:
    """A type as error messages name it."""
    return "NULL" if kind.is_null(type_) else str(type_)


def _common_number(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if kind.is_floating(a) or kind.is_floating(b):
        return DOUBLE
    if kind.is_decimal(a) or kind.is_decimal(b):
        return wide_decimal(max(scale_of(a), scale_of(b)))
    return INTEGER


def _common_instant(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if kind.is_date(a):
        return _microseconds(b)
    if kind.is_date(b):
        return _microseconds(a)
    if (a.tz is None) != (b.tz is None):
        return None
    return pa.timestamp(_finest(a.unit, b.unit), a.tz)


def _microseconds(type_: pa.DataType) -> pa.DataType:
    return type_ if type_.unit == "ns" else pa.timestamp("us", type_.tz)


def _finest(*units: str) -> str:
    return max(units, key=("s", "ms", "us", "ns").index)


def scale_of(type_: pa.DataType) -> int:
    """The number of decimals."""
    return int(type_.scale) if kind.is_decimal(type_) else 0


def wide_decimal(scale: int) -> pa.DataType:
    """The decimal type that calculations use."""
    return pa.decimal128(DECIMAL_DIGITS, scale)


def castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a cast between two types means anything."""
    if kind.is_nested(source) or kind.is_duration(source) != kind.is_duration(target):
        return False
    if kind.is_string(target) or _is_text(source):
        return not kind.is_binary(source) and not (kind.is_binary(target) and not _is_text(source))
    groups = (_is_numeric_or_boolean, is_instant, kind.is_duration, kind.is_binary)
    return any(group(source) and group(target) for group in groups)


def _is_text(type_: pa.DataType) -> bool:
    return bool(kind.is_string(type_) or kind.is_large_string(type_))


def _is_numeric_or_boolean(type_: pa.DataType) -> bool:
    return bool(kind.is_boolean(type_) or kind.is_integer(type_) or kind.is_floating(type_) or kind.is_decimal(type_))
