"""Numbers: checked integers, IEEE doubles, exact decimals.

Integers overflow into an error, never into another number. Dividing by zero gives null, and so does a root or a
logarithm outside its domain. Decimals are computed with twice the digits they may keep, then made to fit.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.expressions import Call
from midstream.operators.elements import Mask
from midstream.operators.scalars.kernels import (
    Constants,
    Datum,
    Kernel,
    Maker,
    OnColumn,
    always,
    arrow,
    column,
    defined,
    length_of,
    with_parameters,
)
from midstream.operators.vectors import Numbers, column_of, numbers_of, validity_of

_equal, _if_else, _remainder = arrow("equal"), arrow("if_else"), arrow("remainder")


def _operation(name: str) -> Maker:
    """Addition, subtraction or multiplication, by the type of its result and arguments."""
    checked, plain = arrow(f"{name}_checked"), arrow(name)

    def make(call: Call, constants: Constants) -> Kernel:
        if pa.types.is_decimal(call.type):
            return _wide(plain, call)
        if pa.types.is_floating(call.type):
            return plain
        if pa.types.is_duration(call.type) and any(pa.types.is_timestamp(a.type) for a in call.args):
            return _distance(checked, call)
        return checked if pa.types.is_integer(call.type) else _of_known(checked)

    return make


def _of_known(checked: Kernel) -> Kernel:
    """Arrow checks times for an overflow where they are null, too: whatever stands there becomes zero."""
    return lambda *data: checked(*map(_cleared, data))


def _cleared(datum: Datum) -> Datum:
    if not isinstance(datum, pa.Array) or not datum.null_count:
        return datum
    valid = datum.is_valid().to_numpy(zero_copy_only=False)
    return column_of(np.where(valid, numbers_of(datum), 0), datum.type, valid)


def _distance(subtract: Kernel, call: Call) -> Kernel:
    unit = call.type.unit

    def kernel(left: Datum, right: Datum) -> Datum:
        result = _of_known(subtract)(left, right)
        return pc.cast(_floored(result, 1000), call.type) if result.type.unit == "ns" != unit else result

    return kernel


def _floored(durations: pa.Array, step: int) -> pa.Array:
    ticks = numbers_of(durations) // step * step
    return column_of(ticks, durations.type, validity_of(durations))


def _wide(kernel: Kernel, call: Call) -> Kernel:
    def compute(*data: Datum) -> Datum:
        result = kernel(*[_widened(d) for d in data])
        return result.cast(call.type)

    return compute


_HALF_OF_DECIMAL256 = 37


def _widened(datum: Datum) -> Datum:
    """The decimal in 256 bits, under a precision whose sums and products Arrow accepts.

    Arrow derives the precision of a product from its factors' and refuses 38 times 38 digits, though 256 bits hold
    them; the declared precision is therefore one less than what the numbers may have.
    """
    if not pa.types.is_decimal(datum.type):
        datum = datum.cast(pa.decimal128(19, 0))
    if isinstance(datum, pa.Scalar):
        return _widened(pa.array([datum.as_py()], datum.type))[0]
    wide = datum.cast(pa.decimal256(76, datum.type.scale))
    declared = pa.decimal256(_HALF_OF_DECIMAL256, datum.type.scale)
    return pa.Array.from_buffers(declared, len(wide), wide.buffers(), offset=wide.offset)


def _divide(dividend: Datum, divisor: Datum) -> Datum:
    length = length_of((dividend, divisor))
    above, below = _doubles(dividend, length), _doubles(divisor, length)
    with np.errstate(all="ignore"):
        quotients = numbers_of(above) / numbers_of(below)
    return column_of(quotients, pa.float64(), defined(numbers_of(below) != 0, above, below))


def _doubles(datum: Datum, length: int) -> pa.Array:
    values = column(datum, length)
    return values if pa.types.is_float64(values.type) else values.cast(pa.float64(), safe=False)


def _modulo(call: Call, constants: Constants) -> Kernel:
    divisor = constants[1]
    if divisor is not None and divisor.is_valid and divisor.as_py() != 0:
        return _remainder
    return _modulo_of_columns


def _modulo_of_columns(dividend: Datum, divisor: Datum) -> Datum:
    length = length_of((dividend, divisor))
    divisor = column(divisor, length)
    zero = pa.scalar(Decimal(0) if pa.types.is_decimal(divisor.type) else 0, divisor.type)
    nonzero = _if_else(_equal(divisor, zero), pa.scalar(None, divisor.type), divisor)
    return _remainder(column(dividend, length), nonzero)


def _on_domain(name: str, outside: Callable[[Numbers, float], Mask]) -> Kernel:
    function = arrow(name)

    def kernel(values: pa.Array) -> pa.Array:
        with np.errstate(invalid="ignore"):
            excluded = outside(numbers_of(values), 0.0)
        result = function(values)
        if not excluded.any():
            return result
        return column_of(numbers_of(result), pa.float64(), defined(~excluded, values))

    return kernel


def _whole(name: str) -> Maker:
    function = arrow(name)

    def make(call: Call, constants: Constants) -> Kernel:
        if pa.types.is_decimal(call.type):
            return _in_more_digits(function, call.type)
        return function if pa.types.is_floating(call.type) else lambda value: value

    return make


def _rounding(call: Call, digits: int = 0) -> OnColumn:
    if pa.types.is_floating(call.type):
        return lambda values: _rounded(values, digits)
    precision, scale = _digits(call.type)
    if digits >= scale:
        return lambda values: values
    # Further to the left there are no digits, and all is rounded to zero.
    least = pc.RoundOptions(max(digits, scale - precision - 1), "half_towards_infinity")
    return _in_more_digits(lambda values: pc.round(values, options=least), call.type)


def _digits(kind: pa.DataType) -> tuple[int, int]:
    """How many digits numbers of a type have, and how many of them stand behind the point."""
    return (kind.precision, kind.scale) if pa.types.is_decimal(kind) else (20, 0)


def _in_more_digits(function: Kernel, kind: pa.DataType) -> Kernel:
    """A function of exact numbers, checked: Arrow's own give zero for a result that needs a digit too many."""
    precision, scale = _digits(kind)
    wide = pa.decimal256(precision + 3, scale)
    return lambda values: function(values.cast(wide)).cast(kind)


def _rounded(values: pa.Array, digits: int) -> pa.Array:
    """Scaled, rounded half away from zero, scaled back; what has no such digits, or is too large to, stays."""
    numbers = numbers_of(values)
    with np.errstate(all="ignore"):
        scale = np.float64(10.0) ** abs(digits)
        scaled = numbers * scale if digits >= 0 else numbers / scale
        magnitude = np.abs(scaled)
        whole = np.floor(magnitude)
        whole += magnitude - whole >= 0.5
        np.copysign(whole, numbers, out=whole)
        result = whole / scale if digits >= 0 else whole * scale
        unchanged = ~np.isfinite(scaled) | (scaled == np.floor(scaled))
    return column_of(np.where(unchanged, numbers, result), pa.float64(), validity_of(values))


ARITHMETIC: dict[str, Maker] = {
    "+": _operation("add"),
    "-": _operation("subtract"),
    "*": _operation("multiply"),
    "/": always(_divide),
    "%": _modulo,
    "negate": always(arrow("negate_checked")),
    "abs": always(arrow("abs_checked")),
    "ceil": _whole("ceil"),
    "floor": _whole("floor"),
    "round": with_parameters(_rounding),
    "sign": always(arrow("sign")),
    "sqrt": always(_on_domain("sqrt", np.less)),
    "exp": always(arrow("exp")),
    "ln": always(_on_domain("ln", np.less_equal)),
    "log10": always(_on_domain("log10", np.less_equal)),
    "power": always(arrow("power")),
}
