"""Casts. Every conversion gives null where a value does not fit; a strict cast then refuses what became null.

Numbers lose their fraction towards zero on the way to integers, decimals round half away from zero, instants are cut
to the coarser unit. Texts must be written as the language writes the type; nothing is guessed.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kind

from midstream.algebra.functions import plain
from midstream.errors import InputError
from midstream.operators.elements import Mask
from midstream.operators.scalars.calendar import TICKS_PER_SECOND, first_instant, wall_clock
from midstream.operators.scalars.kernels import defined
from midstream.operators.scalars.readings import read_timestamps
from midstream.operators.vectors import column_of, is_number_like, numbers_of, storage_of, validity_of

Conversion = Callable[[pa.Array], pa.Array]
Cast = Callable[[pa.Array, pa.DataType], pa.Array]

_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_EXACT = decimal.Context(prec=200, rounding=decimal.ROUND_HALF_UP)
_EXACT_IN_DOUBLE = 2**53


TRUE_WORDS, FALSE_WORDS = ["true", "t", "yes", "y", "1"], ["false", "f", "no", "n", "0"]


def cast_kernel(source: pa.DataType, target: pa.DataType, attempt: bool) -> Conversion:
    """Columns of one type as columns of another."""
    convert = _conversion(source, target)

    def strict(values: pa.Array) -> pa.Array:
        result = convert(values)
        if result.null_count > values.null_count:
            raise _refusal(values, result, target)
        return result

    return convert if attempt else strict


def _refusal(values: pa.Array, result: pa.Array, target: pa.DataType) -> InputError:
    lost = pc.and_(result.is_null(), values.is_valid())
    first = values.filter(lost)[0].as_py()
    return InputError(f"cannot cast {first!r} to {target}", hint="use TRY_CAST to get NULL where a value does not fit")


def _conversion(source: pa.DataType, target: pa.DataType) -> Conversion:
    if source == target:
        return lambda values: values
    if kind.is_null(source):
        return lambda values: pa.nulls(len(values), target)
    if kind.is_nested(source) or kind.is_nested(target):
        return lambda values: values.cast(target)
    inner, outer = plain(source), plain(target)
    convert = _plain_conversion(inner, outer)
    return convert if (inner, outer) == (source, target) else lambda v: convert(v.cast(inner)).cast(target)


def _plain_conversion(source: pa.DataType, target: pa.DataType) -> Conversion:
    if source == target:
        return lambda values: values
    stored = ["stored"] if is_number_like(source) else []
    found = [f"{name} {_name(target)}" for name in (_name(source), *stored) if f"{name} {_name(target)}" in _CASTS]
    convert = _CASTS[found[0]] if found else _cast
    return lambda values: convert(values, target)


def _name(type_: pa.DataType) -> str:
    return next((name for name in _NAMES if getattr(kind, f"is_{name}")(type_)), "")


def _cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    return values.cast(target)


def by_value(values: pa.Array, convert: Callable[[Any], Any], target: pa.DataType) -> pa.Array:
    """Converts each distinct value in Python; where that raises, null."""
    encoded = values.dictionary_encode()
    found = []
    for value in encoded.dictionary.to_pylist():
        try:
            found.append(convert(value))
        except (ValueError, ArithmeticError):
            found.append(None)
    return pa.array(found, target).take(encoded.indices)


def _either(fast: Cast, slow: Callable[[Any, pa.DataType], Any], pattern: str = "") -> Cast:
    """Whole columns if that can be, else value by value; of texts those that have a pattern."""
    options = pc.MatchSubstringOptions(pattern)

    def convert(values: pa.Array, target: pa.DataType) -> pa.Array:
        if pattern:
            matches = pc.call_function("match_substring_regex", [values], options)
            values = pc.if_else(matches, values, pa.scalar(None, values.type))
        try:
            return fast(values, target)
        except pa.ArrowInvalid:
            return by_value(values, lambda value: slow(value, target), target)

    return convert


def _truncated(values: pa.Array, target: pa.DataType) -> pa.Array:
    return pc.cast(values, options=pc.CastOptions(target_type=target, allow_decimal_truncate=True))


def _limits(target: pa.DataType) -> tuple[int, int]:
    bits = target.bit_width
    return (-(2 ** (bits - 1)), 2 ** (bits - 1)) if kind.is_signed_integer(target) else (0, 2**bits)


def _whole(value: Any, target: pa.DataType) -> int:
    low, high = _limits(target)
    if not low <= int(value) < high:
        raise ValueError("out of range")
    return int(value)


def _integers(values: pa.Array, target: pa.DataType) -> pa.Array:
    numbers, (low, high) = numbers_of(values), _limits(target)
    dtype = np.dtype(storage_of(target))
    if numbers.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            numbers = np.trunc(numbers)
            fits: Mask = (numbers >= low) & (numbers < high)
            numbers = np.where(fits, numbers, 0)
    elif numbers.dtype.kind == "b" or np.can_cast(numbers.dtype, dtype):
        return column_of(numbers.astype(dtype), target, validity_of(values))
    else:
        held = np.iinfo(numbers.dtype)
        fits = (numbers >= max(low, held.min)) & (numbers <= min(high - 1, held.max))
    return column_of(numbers.astype(dtype), target, defined(fits, values))


def _floats(values: pa.Array, target: pa.DataType) -> pa.Array:
    with np.errstate(over="ignore"):
        return column_of(numbers_of(values).astype(storage_of(target)), target, validity_of(values))


def _decimals_as_floats(values: pa.Array, target: pa.DataType) -> pa.Array:
    """The nearest doubles; Arrow's own cast gives them only where digits and power of ten are exact in a double."""
    exact = values.type.scale <= 22 and _small(values)
    return (values if exact else values.cast(pa.string())).cast(pa.float64()).cast(target)


def _small(values: pa.Array) -> bool:
    if values.type.bit_width != 128 or len(values) == 0:
        return False
    words = np.frombuffer(values.buffers()[1], dtype=np.int64)[2 * values.offset : 2 * (values.offset + len(values))]
    low, high = words[::2], words[1::2]
    small = (low < _EXACT_IN_DOUBLE) & (low > -_EXACT_IN_DOUBLE) & (high == low >> 63)
    valid = validity_of(values)
    return bool((small if valid is None else small | ~valid).all())


def _exactly(value: Any, target: pa.DataType) -> decimal.Decimal:
    # A double goes by its shortest text: 0.1 is meant to be a tenth.
    number = decimal.Decimal(repr(value)) if isinstance(value, float) else decimal.Decimal(value)
    if not number.is_finite():
        raise ValueError("not finite")
    scaled = number.quantize(decimal.Decimal(1).scaleb(-target.scale), context=_EXACT)
    if scaled and len(scaled.as_tuple().digits) > target.precision:
        raise ValueError("out of range")
    return scaled


def _widened(values: pa.Array, target: pa.DataType) -> pa.Array:
    whole = values if kind.is_uint64(values.type) else values.cast(pa.int64())
    return whole.cast(pa.decimal256(76, 0)).cast(target)


def _rescaled(values: pa.Array, target: pa.DataType) -> pa.Array:
    if target.scale < values.type.scale:
        wide = values.cast(pa.decimal256(76, values.type.scale))
        values = pc.round(wide, ndigits=target.scale, round_mode="half_towards_infinity")
    return values.cast(target)


def _truths(values: pa.Array, target: pa.DataType) -> pa.Array:
    lower = pc.utf8_lower(values)
    known = pc.is_in(lower, value_set=pa.array([*TRUE_WORDS, *FALSE_WORDS]))
    return pc.if_else(known, pc.is_in(lower, value_set=pa.array(TRUE_WORDS)), pa.scalar(None, target))


def _float_texts(values: pa.Array, target: pa.DataType) -> pa.Array:
    texts = numbers_of(values).astype(np.float64, copy=False).astype("U32").astype(object)
    return pa.array(texts, target, mask=values.is_null().to_numpy(zero_copy_only=False))


def _decimal_texts(values: pa.Array, target: pa.DataType) -> pa.Array:
    texts = values.cast(target)
    if pc.any(pc.match_substring(texts, "E")).as_py():
        return by_value(values, lambda value: format(value, "f"), target)
    return texts


def _timestamp_texts(values: pa.Array, target: pa.DataType) -> pa.Array:
    shown = _retimed(wall_clock(values), pa.timestamp("us"))
    return pc.replace_substring_regex(shown.cast(target), r"\.?0{1,6}$", "")


def _retimed(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Ticks in another unit, cut towards the past where it is coarser; null where it is too fine to hold them."""
    have, want = TICKS_PER_SECOND[values.type.unit], TICKS_PER_SECOND[target.unit]
    ticks = numbers_of(values)
    if have >= want:
        return column_of(ticks if have == want else ticks // (have // want), target, validity_of(values))
    factor = want // have
    limit = (2**63 - 1) // factor
    fits: Mask = (ticks <= limit) & (ticks >= -limit)
    return column_of(np.where(fits, ticks, 0) * factor, target, defined(fits, values))


_CASTS: dict[str, Cast] = {
    "string integer": _either(_cast, _whole, r"^[+-]?[0-9]+$"),
    "decimal integer": _either(_truncated, _whole),
    "stored integer": _integers,
    "string floating": _either(_cast, lambda text, target: float(text), _NUMBER + r"|^[+-]?(?i:inf|infinity|nan)$"),
    "decimal floating": _decimals_as_floats,
    "stored floating": _floats,
    "string decimal": _either(_cast, _exactly, _NUMBER),
    "floating decimal": lambda values, target: by_value(values, lambda value: _exactly(value, target), target),
    "decimal decimal": _either(_rescaled, _exactly),
    "stored decimal": _either(_widened, _exactly),
    "string boolean": _truths,
    "decimal boolean": lambda values, target: pc.not_equal(values, pa.scalar(decimal.Decimal(0), values.type)),
    "stored boolean": lambda values, target: column_of(numbers_of(values) != 0, target, validity_of(values)),
    "floating string": _float_texts,
    "decimal string": _decimal_texts,
    "timestamp string": _timestamp_texts,
    "binary string": _either(_cast, lambda value, target: value.decode()),
    "string date": _either(_cast, lambda text, target: dt.date.fromisoformat(text), r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    "timestamp date": lambda values, target: wall_clock(values).cast(target),
    "string timestamp": read_timestamps,
    "date timestamp": lambda v, target: _retimed(first_instant(v.cast(pa.timestamp("us")), target.tz), target),
    "integer timestamp": lambda values, target: _integers(values, pa.int64()).cast(target),
    "timestamp timestamp": _retimed,
    "duration duration": _retimed,
}
"""By what is cast to what; `stored` is what numbers or times are stored as, where nothing else is said."""

_NAMES = sorted({name for pair in _CASTS for name in pair.split()} - {"stored"})
