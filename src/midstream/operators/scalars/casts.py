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
from midstream.operators.vectors import Numbers, column_of, numbers_of, storage_of, validity_of

Conversion = Callable[[pa.Array], pa.Array]

_WHOLE = r"^[+-]?[0-9]+$"
_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_NUMBER_OR_NAME = _NUMBER + r"|^[+-]?(?i:inf|infinity|nan)$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
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
    for is_target, choose in _TARGETS:
        if is_target(target):
            found = choose(source, target)
            if found is not None:
                return found
    return lambda values: values.cast(target)


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


def _fast_or_by_value(fast: Conversion, slow: Callable[[Any], Any], target: pa.DataType) -> Conversion:
    def convert(values: pa.Array) -> pa.Array:
        try:
            return fast(values)
        except pa.ArrowInvalid:
            return by_value(values, slow, target)

    return convert


def _where_matching(pattern: str, convert: Conversion) -> Conversion:
    options = pc.MatchSubstringOptions(pattern)
    nothing = pa.scalar(None, pa.string())

    def checked(values: pa.Array) -> pa.Array:
        matches = pc.call_function("match_substring_regex", [values], options)
        return convert(pc.if_else(matches, values, nothing))

    return checked


def _to_integer(source: pa.DataType, target: pa.DataType) -> Conversion | None:
    low, high = _limits(target)
    if kind.is_string(source):
        fast: Conversion = lambda v: pc.replace_substring_regex(v, r"^\+", "").cast(target)  # noqa: E731
        return _where_matching(_WHOLE, _fast_or_by_value(fast, lambda text: _within(int(text), low, high), target))
    if kind.is_decimal(source):
        options = pc.CastOptions(target_type=target, allow_decimal_truncate=True)
        return _fast_or_by_value(
            lambda v: pc.cast(v, options=options), lambda value: _within(int(value), low, high), target
        )
    if kind.is_boolean(source) or storage_of(source) is not None:
        return lambda values: _integers(values, target, low, high)
    return None


def _limits(target: pa.DataType) -> tuple[int, int]:
    bits = target.bit_width
    return (-(2 ** (bits - 1)), 2 ** (bits - 1)) if kind.is_signed_integer(target) else (0, 2**bits)


def _within(value: int, low: int, high: int) -> int:
    if not low <= value < high:
        raise ValueError("out of range")
    return value


def _integers(values: pa.Array, target: pa.DataType, low: int, high: int) -> pa.Array:
    numbers = numbers_of(values)
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


def _to_float(source: pa.DataType, target: pa.DataType) -> Conversion | None:
    if kind.is_string(source):
        return _where_matching(_NUMBER_OR_NAME, lambda values: values.cast(target))
    if kind.is_decimal(source):
        return lambda values: _decimals_as_floats(values).cast(target)
    if kind.is_boolean(source) or kind.is_integer(source) or kind.is_floating(source):
        dtype = storage_of(target)
        return lambda values: column_of(_silently(numbers_of(values), dtype), target, validity_of(values))
    return None


def _silently(numbers: Numbers, dtype: Any) -> Numbers:
    with np.errstate(over="ignore"):
        return numbers.astype(dtype)


def _decimals_as_floats(values: pa.Array) -> pa.Array:
    """The nearest doubles; Arrow's own cast gives them only where digits and power of ten are exact in a double."""
    if values.type.scale <= 22 and _small(values):
        return values.cast(pa.float64())
    return values.cast(pa.string()).cast(pa.float64())


def _small(values: pa.Array) -> bool:
    if values.type.bit_width != 128 or len(values) == 0:
        return False
    words = np.frombuffer(values.buffers()[1], dtype=np.int64)[2 * values.offset : 2 * (values.offset + len(values))]
    low, high = words[::2], words[1::2]
    small = (low < _EXACT_IN_DOUBLE) & (low > -_EXACT_IN_DOUBLE) & (high == low >> 63)
    valid = validity_of(values)
    return bool((small if valid is None else small | ~valid).all())


def _to_decimal(source: pa.DataType, target: pa.DataType) -> Conversion | None:
    def exactly(value: Any) -> decimal.Decimal:
        # A double goes by its shortest text: 0.1 is meant to be a tenth.
        number = decimal.Decimal(repr(value)) if isinstance(value, float) else decimal.Decimal(value)
        if not number.is_finite():
            raise ValueError("not finite")
        scaled = number.quantize(decimal.Decimal(1).scaleb(-target.scale), context=_EXACT)
        if scaled and len(scaled.as_tuple().digits) > target.precision:
            raise ValueError("out of range")
        return scaled

    if kind.is_string(source):
        return _where_matching(_NUMBER, _fast_or_by_value(lambda values: values.cast(target), exactly, target))
    if kind.is_floating(source):
        return lambda values: by_value(values, exactly, target)
    if kind.is_integer(source) or kind.is_boolean(source):
        wide = pa.decimal256(76, 0)
        fast: Conversion = lambda v: v.cast(pa.int64()).cast(wide).cast(target)  # noqa: E731
        if kind.is_uint64(source):
            fast = lambda v: v.cast(wide).cast(target)  # noqa: E731
        return _fast_or_by_value(fast, exactly, target)
    if kind.is_decimal(source):
        return _fast_or_by_value(lambda values: _rescaled(values, target), exactly, target)
    return None


def _rescaled(values: pa.Array, target: pa.DataType) -> pa.Array:
    if target.scale < values.type.scale:
        wide = values.cast(pa.decimal256(76, values.type.scale))
        values = pc.round(wide, ndigits=target.scale, round_mode="half_towards_infinity")
    return values.cast(target)


def _to_boolean(source: pa.DataType, target: pa.DataType) -> Conversion | None:
    if kind.is_string(source):
        true, words = pa.array(TRUE_WORDS), pa.array([*TRUE_WORDS, *FALSE_WORDS])

        def read(values: pa.Array) -> pa.Array:
            lower = pc.utf8_lower(values)
            truths = pc.is_in(lower, value_set=true)
            return pc.if_else(pc.is_in(lower, value_set=words), truths, pa.scalar(None, pa.bool_()))

        return read
    if kind.is_decimal(source):
        return lambda values: pc.not_equal(values, pa.scalar(decimal.Decimal(0), values.type))
    if storage_of(source) is not None:
        return lambda values: column_of(numbers_of(values) != 0, target, validity_of(values))
    return None


def _to_text(source: pa.DataType, target: pa.DataType) -> Conversion | None:
    if kind.is_floating(source):
        return lambda values: pa.array(
            numbers_of(values).astype(np.float64, copy=False).astype("U32").astype(object),
            target,
            mask=values.is_null().to_numpy(zero_copy_only=False),
        )
    if kind.is_decimal(source):
        return _decimal_texts
    if kind.is_timestamp(source):
        return _timestamp_texts
    if kind.is_binary(source):
        return _fast_or_by_value(lambda values: values.cast(target), bytes.decode, target)
    return None


def _decimal_texts(values: pa.Array) -> pa.Array:
    texts = values.cast(pa.string())
    if pc.any(pc.match_substring(texts, "E")).as_py():
        return by_value(values, lambda value: format(value, "f"), pa.string())
    return texts


def _timestamp_texts(values: pa.Array) -> pa.Array:
    shown = _retimed(wall_clock(values), pa.timestamp("us"))
    return pc.replace_substring_regex(shown.cast(pa.string()), r"\.?0{1,6}$", "")


def _to_date(source: pa.DataType, target: pa.DataType) -> Conversion | None:
    if kind.is_string(source):
        return _where_matching(
            _DATE, _fast_or_by_value(lambda values: values.cast(target), dt.date.fromisoformat, target)
        )
    if kind.is_timestamp(source):
        return lambda values: wall_clock(values).cast(target)
    return None


def _to_timestamp(source: pa.DataType, target: pa.DataType) -> Conversion | None:
    if kind.is_string(source):
        return lambda values: read_timestamps(values, target)
    if kind.is_date(source):
        naive = pa.timestamp("us")
        return lambda values: _retimed(first_instant(values.cast(naive), target.tz), target)
    if kind.is_timestamp(source):
        return lambda values: _retimed(values, target)
    if kind.is_integer(source):
        ticks = _plain_conversion(source, pa.int64())
        return lambda values: ticks(values).cast(target)
    return None


def _to_duration(source: pa.DataType, target: pa.DataType) -> Conversion | None:
    return (lambda values: _retimed(values, target)) if kind.is_duration(source) else None


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


_TARGETS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], Conversion | None]], ...] = (
    (kind.is_integer, _to_integer),
    (kind.is_floating, _to_float),
    (kind.is_decimal, _to_decimal),
    (kind.is_boolean, _to_boolean),
    (kind.is_string, _to_text),
    (kind.is_date, _to_date),
    (kind.is_timestamp, _to_timestamp),
    (kind.is_duration, _to_duration),
)
