"""Truth, comparison and choice.

Truth has three values: null is "not known", and AND and OR decide as soon as one side does. Comparing with null gives
null. Where values are held equal rather than compared (IS DISTINCT FROM) or put in order (greatest, least), NaN equals
itself and comes last.
"""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.expressions import Call
from midstream.operators.hashing import columns_equal
from midstream.operators.scalars.kernels import (
    COMPARISONS,
    Constants,
    Datum,
    Kernel,
    Maker,
    always,
    arrow,
    column,
    length_of,
)

_and, _or, _invert = arrow("and_kleene"), arrow("or_kleene"), arrow("invert")
_equal, _is_null, _if_else = arrow("equal"), arrow("is_null"), arrow("if_else")


def _folded(kernel: Kernel) -> Kernel:
    return lambda *data: kernel(*data) if len(data) == 2 else reduce(kernel, data)


def _columns_first(kernel: Kernel) -> Kernel:
    """Constants last, so that folding always has a column at hand."""

    def fold(*data: Datum) -> Datum:
        return kernel(*sorted(data, key=lambda d: isinstance(d, pa.Scalar)))

    return fold


def _same(left: Datum, right: Datum) -> pa.Array:
    length = length_of((left, right))
    return pa.array(columns_equal([column(left, length)], [column(right, length)], nulls_equal=True))


def _member(call: Call, constants: Constants) -> Kernel:
    values = constants[1:]
    if any(v is None for v in values):
        return lambda needle, *others: reduce(_or, [_equal(needle, other) for other in others])
    known = [v for v in values if v is not None and v.is_valid]
    options = pc.SetLookupOptions(value_set=_lookup_values(known, call.args[0].type), skip_nulls=True)
    found, unknown = arrow("is_in", options), len(known) < len(values)
    true = pa.scalar(True)
    nothing = pa.scalar(None, pa.bool_())

    def kernel(needle: Datum, *others: Datum) -> Datum:
        result = found(column(needle, length_of((needle, *others))) if isinstance(needle, pa.Scalar) else needle)
        if unknown:
            return _if_else(result, true, nothing)
        return _if_else(_is_null(needle), nothing, result) if needle.null_count else result

    return kernel


def _lookup_values(known: list[pa.Scalar], kind: pa.DataType) -> pa.Array:
    """The values to look up by identity where the language compares: both zeros are equal, NaN equals nothing."""
    if pa.types.is_floating(kind):
        numbers = [v.as_py() for v in known]
        numbers = [v for v in numbers if v == v]
        return pa.array([*numbers, *([0.0, -0.0] if 0.0 in numbers else [])], kind)
    return pa.array([v.as_py() for v in known], kind) if known else pa.array([], kind)


def _null_if(value: Datum, other: Datum) -> Datum:
    equal = _equal(value, other)
    return _if_else(equal.fill_null(False), pa.scalar(None, value.type), value)


def _extreme(better: str) -> Kernel:
    compare = arrow(better)

    def pick(best: Datum, other: Datum) -> Datum:
        take_other = compare(other, best)
        if pa.types.is_floating(best.type):
            # NaN compares false with everything, and is greater than everything.
            loser = best if better == "less" else other
            take_other = _or(take_other, _and(pc.is_nan(loser), _invert(pc.is_nan(other if loser is best else best))))
        take_other = _if_else(_is_null(best), pa.scalar(True), take_other)
        return _if_else(_and(take_other, _invert(_is_null(other))).fill_null(False), other, best)

    return lambda *data: reduce(pick, data) if len(data) > 1 else data[0]


LOGIC: dict[str, Maker] = {
    "and": always(_columns_first(_folded(_and))),
    "or": always(_columns_first(_folded(_or))),
    "not": always(_invert),
    **{symbol: always(arrow(name)) for symbol, name in COMPARISONS.items()},
    "is_null": always(_is_null),
    "is_not_distinct_from": always(_same),
    "is_distinct_from": always(lambda left, right: _invert(_same(left, right))),
    "in": _member,
    "coalesce": always(arrow("coalesce")),
    "nullif": always(_null_if),
    "greatest": always(_columns_first(_extreme("greater"))),
    "least": always(_columns_first(_extreme("less"))),
}
