"""What a value is in another type, one value at a time."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as is_type

from midstream.algebra.semantics.clock import EPOCH, first_instant, reading, zone_of
from midstream.algebra.semantics.values import NANOSECONDS
from midstream.errors import InternalError

EXACT = decimal.Context(prec=200, rounding=decimal.ROUND_HALF_UP)

_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NAMED_NUMBER = re.compile(r"[+-]?(inf|infinity|nan)", re.IGNORECASE)
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIMESTAMP = re.compile(
    _DATE.pattern
    + r"(?:[ T]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?\s*(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_BOOLEAN = {word: True for word in ("true", "t", "yes", "y", "1")} | {w: False for w in ("false", "f", "no", "n", "0")}


class DoesNotFit(ValueError):
    """The value has no counterpart in the other type."""


def cast(value: Any, source: pa.DataType, target: pa.DataType) -> Any:
    """A value that is not null, of type `source`, in type `target`."""
    if source == target:
        return value
    if is_type.is_dictionary(target):
        return cast(value, source, target.value_type)
    if is_type.is_dictionary(source):
        return cast(value, source.value_type, target)
    if is_type.is_integer(target):
        return _to_integer(value, source, target)
    if is_type.is_floating(target):
        return _to_float(value, target)
    if is_type.is_decimal(target):
        return fit_decimal(_to_decimal(value), target)
    if is_type.is_boolean(target):
        return _to_boolean(value)
    if _is_text(target):
        return _to_text(value, source)
    if _is_bytes(target):
        return value.encode() if isinstance(value, str) else value
    if is_type.is_date(target):
        return _to_date(value, source)
    if is_type.is_timestamp(target):
        return _to_timestamp(value, source, target)
    if is_type.is_duration(target):
        return value // NANOSECONDS[target.unit] * NANOSECONDS[target.unit]
    raise InternalError(f"the oracle cannot cast {source} to {target}")


def fit_integer(value: int, target: pa.DataType) -> int:
    """The integer, if its type can hold it."""
    unsigned = is_type.is_unsigned_integer(target)
    limit = 2 ** (target.bit_width - (0 if unsigned else 1))
    if not (0 if unsigned else -limit) <= value < limit:
        raise DoesNotFit(f"{value} is out of the range of {target}")
    return value


def fit_decimal(value: Decimal, target: pa.DataType) -> Decimal:
    """The decimal at the type's scale, half away from zero, if its precision can hold it."""
    if not value.is_finite():
        raise DoesNotFit(f"{value} is no decimal number")
    scaled = value.quantize(Decimal(1).scaleb(-target.scale), context=EXACT)
    if len(scaled.as_tuple().digits) > target.precision and scaled:
        raise DoesNotFit(f"{value} is out of the range of {target}")
    return scaled


def _to_integer(value: Any, source: pa.DataType, target: pa.DataType) -> int:
    match value:
        case str() if not _WHOLE.fullmatch(value):
            raise DoesNotFit(f"{value!r} is not a whole number")
        case float() if not math.isfinite(value):
            raise DoesNotFit(f"{value} is out of the range of {target}")
        case dt.date():
            return fit_integer((value - EPOCH.date()).days, target)
        case _ if is_type.is_timestamp(source) or is_type.is_duration(source):
            return fit_integer(value // NANOSECONDS[source.unit], target)
        case _:
            return fit_integer(int(value), target)


def _to_float(value: Any, target: pa.DataType) -> float:
    if isinstance(value, str) and not (_NUMBER.fullmatch(value) or _NAMED_NUMBER.fullmatch(value)):
        raise DoesNotFit(f"{value!r} is not a number")
    try:
        number = float(value)
    except OverflowError:
        raise DoesNotFit(f"{value} is out of the range of {target}") from None
    if target.bit_width == 32 and math.isfinite(number):
        try:
            return float(struct.unpack("f", struct.pack("f", number))[0])
        except OverflowError:
            return math.copysign(math.inf, number)
    return number


def _to_decimal(value: Any) -> Decimal:
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise DoesNotFit(f"{value!r} is not a decimal number")
    # A double goes by its shortest text: 0.1 is meant to be a tenth.
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _to_boolean(value: Any) -> bool:
    if isinstance(value, str):
        if value.lower() not in _BOOLEAN:
            raise DoesNotFit(f"{value!r} is neither true nor false")
        return _BOOLEAN[value.lower()]
    return bool(value != 0)


def _to_text(value: Any, source: pa.DataType) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise DoesNotFit(f"{value!r} is not UTF-8 text") from None
        case Decimal():
            return format(value, "f")
        case int() if is_type.is_timestamp(source):
            return _show_timestamp(value, source)
        case dt.date():
            return value.isoformat()
        case _:
            return repr(value) if isinstance(value, float) else str(value)


def _show_timestamp(value: int, source: pa.DataType) -> str:
    shown = reading(value // 1000, zone_of(source.tz))
    text = shown.strftime("%H:%M:%S") + (f".{shown.microsecond:06d}".rstrip("0") if shown.microsecond else "")
    return f"{shown.date().isoformat()} {text}"


def _to_date(value: Any, source: pa.DataType) -> dt.date:
    if is_type.is_timestamp(source):
        return reading(value // 1000, zone_of(source.tz)).date()
    if isinstance(value, dt.date):
        return value
    if not _DATE.fullmatch(value):
        raise _unreadable(value, "date")
    try:
        return dt.date.fromisoformat(value)
    except ValueError:
        raise _unreadable(value, "date") from None


def _to_timestamp(value: Any, source: pa.DataType, target: pa.DataType) -> int:
    if isinstance(value, dt.date):
        nanoseconds = first_instant(dt.datetime(value.year, value.month, value.day), zone_of(target.tz)) * 1000
    elif isinstance(value, str):
        nanoseconds = _read_timestamp(value, target)
    elif is_type.is_timestamp(source):
        nanoseconds = value
    else:
        nanoseconds = value * NANOSECONDS[target.unit]
    return int(nanoseconds // NANOSECONDS[target.unit] * NANOSECONDS[target.unit])


def _read_timestamp(text: str, target: pa.DataType) -> int:
    parts = _TIMESTAMP.fullmatch(text)
    if parts is None:
        raise _unreadable(text, "timestamp")
    *numbers, fraction, zone = parts.groups(default="")
    if zone and target.tz is None:
        raise DoesNotFit(f"{text!r} has a zone, but {target} has none")
    try:
        shown = dt.datetime(*(int(n or 0) for n in numbers))  # type: ignore[arg-type]
    except ValueError:
        raise _unreadable(text, "timestamp") from None
    if zone:
        zone = "+00:00" if zone == "Z" else zone if len(zone) > 3 else zone + ":00"
    return first_instant(shown, zone_of(zone or target.tz)) * 1000 + int(fraction.ljust(9, "0"))


def _unreadable(text: str, kind: str) -> DoesNotFit:
    return DoesNotFit(f"{text!r} is not a {kind}")


def _is_text(data_type: pa.DataType) -> bool:
    return bool(is_type.is_string(data_type) or is_type.is_large_string(data_type) or is_type.is_string_view(data_type))


def _is_bytes(data_type: pa.DataType) -> bool:
    return bool(
        is_type.is_binary(data_type)
        or is_type.is_large_binary(data_type)
        or is_type.is_binary_view(data_type)
        or is_type.is_fixed_size_binary(data_type)
    )
