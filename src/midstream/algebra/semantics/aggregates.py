"""Aggregates over the rows of a group, by their definitions: from all the values, every time anew."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import pyarrow.types as is_type

from midstream.algebra.borrowed_aggregates import aggregate_of
from midstream.algebra.declarations import AggregateFunction, Catalog
from midstream.algebra.expressions import AggregateCall
from midstream.algebra.semantics.casts import EXACT, DoesNotFit, fit_decimal, fit_integer
from midstream.algebra.semantics.scalars import evaluator
from midstream.algebra.semantics.values import (
    Row,
    arrow_array,
    order,
    python_value,
    python_values,
    row_identity,
    row_order,
)
from midstream.errors import InputError, InternalError

HUNDRED = Context(prec=100, Emax=10**6, Emin=-(10**6))
"""Arithmetic with a hundred digits."""

GroupEvaluator = Callable[[list[Row]], Any]


def aggregate_evaluator(call: AggregateCall, names: list[str], catalog: Catalog) -> GroupEvaluator:
    """A function that gives the aggregate's value for the rows of a group."""
    arguments = [evaluator(a, names, catalog) for a in call.args]
    where = None if call.where is None else evaluator(call.where, names, catalog)
    known = call.function in AGGREGATE and not call.form

    def evaluate(group: list[Row]) -> Any:
        kept = [row for row in group if where is None or where(row) is True]
        values = [tuple(argument(row) for argument in arguments) for row in kept]
        # A snapshot has no order, so an aggregate of the user's gets one that depends on its arguments alone.
        values = [v for v in values if None not in v] if known else sorted(values, key=row_order)
        if call.form:
            columns = [list(c) for c in zip(*values, strict=True)] if values else [[] for _ in arguments]
            arrays = [arrow_array(c, a.type) for c, a in zip(columns, call.args, strict=True)]
            return python_values(aggregate_of(call, arrays))[0]
        if call.distinct:
            values = list({row_identity(v): v for v in values}.values())
        return _fitted(AGGREGATE[call.function](values), call) if known else _user(call, values, catalog)

    return evaluate


def _fitted(value: Any, call: AggregateCall) -> Any:
    try:
        if value is not None and is_type.is_integer(call.type):
            return fit_integer(value, call.type)
        if value is not None and is_type.is_decimal(call.type):
            return fit_decimal(value, call.type)
    except DoesNotFit as problem:
        kind = "integer" if is_type.is_integer(call.type) else "decimal"
        raise InputError(f"{kind} overflow in {call}: {problem}") from None
    return value


def _user(call: AggregateCall, values: list[Row], catalog: Catalog) -> Any:
    function = catalog.function(call.function)
    if not isinstance(function, AggregateFunction):
        raise InternalError(f"{call.function} is not an aggregate function")
    columns = list(zip(*values, strict=True)) if call.args and values else []
    arrays = [arrow_array(list(c), a.type) for c, a in zip(columns, call.args, strict=bool(columns))]
    try:
        accumulator = function.make()
        state = accumulator.initialize()
        if values:
            state = accumulator.iterate(state, *arrays)
        return python_value(accumulator.terminate(state), function.returns)
    except Exception as error:
        raise InputError(f"aggregate {function.name} failed", detail=f"{type(error).__name__}: {error}") from error


def exact_sum(values: list[Any]) -> Any:
    """The sum, rounded once."""
    if isinstance(values[0], Decimal):
        total = Decimal(0)
        for value in values:
            total = EXACT.add(total, value)
        return total
    if not isinstance(values[0], float):
        return sum(values)
    if all(math.isfinite(v) for v in values):
        return _double(sum(map(Fraction, values), Fraction()))
    return sum(v for v in values if not math.isfinite(v))


def _double(value: Fraction) -> float:
    """The nearest double; infinite if the value is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _mean(values: list[Any]) -> float:
    total = exact_sum(values)
    return float(EXACT.divide(total, Decimal(len(values)))) if isinstance(total, Decimal) else total / len(values)


def _variance(freedom: int) -> Callable[[list[Row]], Fraction | float | None]:
    """The variance as a fraction; not a number if a value is not finite."""

    def compute(rows: list[Row]) -> Fraction | float | None:
        if len(rows) <= freedom:
            return None
        if not all(math.isfinite(v) for (v,) in rows):
            return math.nan
        values = [Fraction(v) for (v,) in rows]
        mean = sum(values) / len(values)
        return sum(((v - mean) ** 2 for v in values), Fraction()) / (len(values) - freedom)

    return compute


def _rounded(variance: Callable[[list[Row]], Fraction | float | None]) -> Callable[[list[Row]], float | None]:
    """The variance as a double, rounded once; infinite if it is too large for one."""

    def compute(rows: list[Row]) -> float | None:
        value = variance(rows)
        return _double(value) if isinstance(value, Fraction) else value

    return compute


def _root(variance: Callable[[list[Row]], Fraction | float | None]) -> Callable[[list[Row]], float | None]:
    """The root of the variance, calculated to a hundred digits and then rounded to a double."""

    def compute(rows: list[Row]) -> float | None:
        value = variance(rows)
        if not isinstance(value, Fraction):
            return value
        ratio = HUNDRED.divide(Decimal(value.numerator), Decimal(value.denominator))
        return float(HUNDRED.sqrt(ratio))

    return compute


def _of_some(function: Callable[[list[Any]], Any]) -> Callable[[list[Row]], Any]:
    """Null where there is nothing to aggregate."""
    return lambda rows: function([v for (v,) in rows]) if rows else None


AGGREGATE: dict[str, Callable[[list[Row]], Any]] = {
    "count": len,
    "sum": _of_some(exact_sum),
    "avg": _of_some(_mean),
    "min": _of_some(lambda values: min(values, key=order)),
    "max": _of_some(lambda values: max(values, key=order)),
    "stddev": _root(_variance(1)),
    "stddev_pop": _root(_variance(0)),
    "variance": _rounded(_variance(1)),
    "var_pop": _rounded(_variance(0)),
}
"""Each takes the argument rows that have no null in them."""
