"""Every scalar function of the language by its definition, over the values of one row.

Unless a function says otherwise, a null argument makes its result null. Comparisons of floats are IEEE's; wherever
values are ordered or held equal instead (greatest, min, DISTINCT, grouping, IS DISTINCT FROM), NaN is equal to itself
and greater than everything else.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as is_type

from midstream.algebra.expressions import Call
from midstream.algebra.semantics.casts import EXACT, DoesNotFit, cast, fit_decimal, fit_integer
from midstream.algebra.semantics.clock import reading, same_side_instant, zone_of
from midstream.algebra.semantics.values import (
    NANOSECONDS,
    identity,
    is_counted,
    order,
)
from midstream.errors import InputError

Definition = Callable[..., Any]


def _all(values: Any) -> bool | None:
    unknown = False
    for value in values:
        if value is False:
            return False
        unknown = unknown or value is None
    return None if unknown else True


def _any(values: Any) -> bool | None:
    unknown = False
    for value in values:
        if value is True:
            return True
        unknown = unknown or value is None
    return None if unknown else False


def _first_known(values: Any) -> Any:
    return next((v for v in values if v is not None), None)


def _is_in(needle: Any, *values: Any) -> bool | None:
    if needle is None:
        return None if values else False
    return _any(None if v is None else needle == v for v in values)


def _greatest(*values: Any) -> Any:
    return max((v for v in values if v is not None), key=order, default=None)


def _least(*values: Any) -> Any:
    return min((v for v in values if v is not None), key=order, default=None)


def _null_if(value: Any, other: Any) -> Any:
    return None if value is not None and other is not None and value == other else value


def _arithmetic(operation: Callable[[Any, Any], Any]) -> Definition:
    def compute(call: Call, left: Any, right: Any) -> Any:
        if is_type.is_decimal(call.type):
            return _fit(operation(_exactly(left), _exactly(right)), call)
        return _fit(operation(left, right), call)

    return compute


def _exactly(value: Any) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(value)


def _fit(value: Any, call: Call) -> Any:
    try:
        if is_type.is_integer(call.type):
            return fit_integer(value, call.type)
        if is_counted(call.type):
            return value // NANOSECONDS[call.type.unit] * NANOSECONDS[call.type.unit]
        return fit_decimal(value, call.type) if is_type.is_decimal(call.type) else value
    except DoesNotFit as problem:
        kind = "integer" if is_type.is_integer(call.type) else "decimal"
        raise InputError(f"{kind} overflow in {call}: {problem}") from None


def _divide(left: Any, right: Any) -> float | None:
    return None if right == 0 else float(left) / float(right)


def _remainder(call: Call, left: Any, right: Any) -> Any:
    if right == 0:
        return None
    if isinstance(left, float) or isinstance(right, float):
        return math.nan if math.isinf(left) else math.fmod(left, right)
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return _fit(EXACT.remainder(_exactly(left), _exactly(right)), call)
    return abs(left) % abs(right) * (-1 if left < 0 else 1)


def _power(base: float, exponent: float) -> float:
    base, exponent = float(base), float(exponent)
    odd = exponent % 2 == 1
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        if base == 0:
            return math.copysign(math.inf, base) if odd else math.inf
        return math.nan


def _exponential(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _rounded(call: Call, value: Any, digits: int = 0) -> Any:
    if isinstance(value, float):
        return _rounded_float(value, digits)
    exact = Decimal(value).quantize(Decimal(1).scaleb(-digits), context=EXACT)
    return _fit(int(exact) if is_type.is_integer(call.type) else exact, call)


def _rounded_float(value: float, digits: int) -> float:
    """Scaled, rounded half away from zero, scaled back: what is written 2.675 rounds to 2.68."""
    scale = 10.0 ** abs(digits)
    scaled = value * scale if digits >= 0 else value / scale
    if not math.isfinite(scaled) or scaled == math.floor(scaled):
        return value
    whole = math.copysign(math.floor(abs(scaled) + 0.5) if abs(scaled) % 1 != 0.5 else math.ceil(abs(scaled)), value)
    return whole / scale if digits >= 0 else whole * scale


def _to_whole(direction: Callable[[Any], int]) -> Definition:
    def compute(call: Call, value: Any) -> Any:
        if isinstance(value, float):
            return math.copysign(float(direction(value)), value) if math.isfinite(value) else value
        whole = direction(value)
        return _fit(Decimal(whole) if is_type.is_decimal(call.type) else whole, call)

    return compute


def _sign(call: Call, value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return value
    sign = (value > 0) - (value < 0)
    return cast(sign, pa.int64(), call.type)


def _on_domain(inside: Callable[[float], bool], function: Callable[[float], float]) -> Definition:
    return lambda value: function(float(value)) if math.isnan(value) or inside(float(value)) else None


def _like(text: str, pattern: str, flags: int = 0) -> bool:
    parts = [".*" if c == "%" else "." if c == "_" else re.escape(c) for c in pattern]
    return re.fullmatch("".join(parts), text, flags | re.DOTALL) is not None


def _matches(text: str, pattern: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error as problem:
        raise InputError(f"{pattern!r} is not a regular expression: {problem}") from None


def _substring(text: Any, start: int, length: int | None = None) -> Any:
    if start < 0:
        return text[max(len(text) + start, 0) :][: None if length is None else max(length, 0)]
    end = len(text) + 1 if length is None else start + length
    return text[max(start, 1) - 1 : max(end, 1) - 1]


def _shown(call: Call, value: Any, position: int = 0) -> dt.datetime:
    """The wall-clock reading of a timestamp or date argument."""
    data_type = call.args[position].type
    if is_type.is_date(data_type):
        return dt.datetime(value.year, value.month, value.day)
    return reading(value // 1000, zone_of(data_type.tz))


def _clock(field: Callable[[dt.datetime], int]) -> Definition:
    return lambda call, value: field(_shown(call, value))


def _nanoseconds(call: Call, value: Any) -> int:
    if isinstance(value, dt.date):
        return int(cast(value, pa.date32(), pa.timestamp("ns")))
    return int(value)


_TRUNCATED: dict[str, Callable[[dt.datetime], dt.datetime]] = {
    "microsecond": lambda t: t,
    "millisecond": lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000),
    "second": lambda t: t.replace(microsecond=0),
    "minute": lambda t: t.replace(second=0, microsecond=0),
    "hour": lambda t: t.replace(minute=0, second=0, microsecond=0),
    "day": lambda t: dt.datetime(t.year, t.month, t.day),
    "week": lambda t: dt.datetime(t.year, t.month, t.day) - dt.timedelta(days=t.weekday()),
    "month": lambda t: dt.datetime(t.year, t.month, 1),
    "quarter": lambda t: dt.datetime(t.year, (t.month - 1) // 3 * 3 + 1, 1),
    "year": lambda t: dt.datetime(t.year, 1, 1),
}


def _truncated(call: Call, unit: str, value: Any) -> Any:
    if unit.lower() not in _TRUNCATED:
        raise InputError(f"unknown unit of time {unit!r}", hint=f"use {', '.join(_TRUNCATED)}")
    start = _TRUNCATED[unit.lower()](_shown(call, value, 1))
    if is_type.is_date(call.type):
        return start.date()
    return same_side_instant(start, zone_of(getattr(call.args[1].type, "tz", None))) * 1000


LAZY: dict[str, Callable[[Any], Any]] = {"and": _all, "or": _any, "coalesce": _first_known}
"""Functions that look at their arguments one after the other, and no further than they need to."""

NULL_AWARE: dict[str, Definition] = {
    "is_null": lambda value: value is None,
    "in": _is_in,
    "is_distinct_from": lambda left, right: identity(left) != identity(right),
    "is_not_distinct_from": lambda left, right: identity(left) == identity(right),
    "nullif": _null_if,
    "greatest": _greatest,
    "least": _least,
    "concat": lambda *values: "".join(v for v in values if v is not None),
}
"""Functions for which a null is an argument like any other."""

TYPED: dict[str, Definition] = {
    "+": _arithmetic(lambda a, b: EXACT.add(a, b) if isinstance(a, Decimal) else a + b),
    "-": _arithmetic(lambda a, b: EXACT.subtract(a, b) if isinstance(a, Decimal) else a - b),
    "*": _arithmetic(lambda a, b: EXACT.multiply(a, b) if isinstance(a, Decimal) else a * b),
    "%": _remainder,
    "negate": lambda call, value: _fit(value.copy_negate() if isinstance(value, Decimal) else -value, call),
    "abs": lambda call, value: _fit(value.copy_abs() if isinstance(value, Decimal) else abs(value), call),
    "ceil": _to_whole(math.ceil),
    "floor": _to_whole(math.floor),
    "round": _rounded,
    "sign": _sign,
    "year": _clock(lambda t: t.year),
    "month": _clock(lambda t: t.month),
    "day": _clock(lambda t: t.day),
    "hour": _clock(lambda t: t.hour),
    "minute": _clock(lambda t: t.minute),
    "second": _clock(lambda t: t.second),
    "dayofweek": _clock(lambda t: t.isoweekday() % 7),
    "dayofyear": _clock(lambda t: t.timetuple().tm_yday),
    "epoch": lambda call, value: _nanoseconds(call, value) / 1_000_000_000,
    "epoch_ms": lambda call, value: _nanoseconds(call, value) // 1_000_000,
    "date_trunc": _truncated,
}
"""Functions whose meaning depends on the types of their arguments or of their result."""

PLAIN: dict[str, Definition] = {
    "/": _divide,
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "not": operator.not_,
    "||": operator.add,
    "like": _like,
    "ilike": lambda text, pattern: _like(text, pattern, re.IGNORECASE),
    "sqrt": _on_domain(lambda x: x >= 0, math.sqrt),
    "exp": lambda value: _exponential(float(value)),
    "ln": _on_domain(lambda x: x > 0, math.log),
    "log10": _on_domain(lambda x: x > 0, math.log10),
    "power": _power,
    "upper": str.upper,
    "lower": str.lower,
    "length": len,
    "trim": lambda text: text.strip(" "),
    "ltrim": lambda text: text.lstrip(" "),
    "rtrim": lambda text: text.rstrip(" "),
    "substring": _substring,
    "replace": lambda text, old, new: text.replace(old, new) if old else text,
    "starts_with": str.startswith,
    "ends_with": str.endswith,
    "contains": lambda text, part: part in text,
    "left": lambda text, count: text[:count],
    "right": lambda text, count: text[-count:] if count else "",
    "reverse": lambda text: text[::-1],
    "regexp_matches": _matches,
}
"""Functions of their arguments' values alone."""

DEFINED = frozenset({*LAZY, *NULL_AWARE, *TYPED, *PLAIN})
"""The names of all scalar functions that the oracle defines."""
