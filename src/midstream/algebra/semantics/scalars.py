"""Scalar expressions, row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from midstream.algebra.borrowed import BORROWED, borrow, columns_among
from midstream.algebra.database import evaluate
from midstream.algebra.declarations import Catalog, ScalarFunction
from midstream.algebra.expressions import Call, Case, Cast, Column, Expression, Literal
from midstream.algebra.semantics.casts import DoesNotFit, cast
from midstream.algebra.semantics.definitions import LAZY, NULL_AWARE, PLAIN, TYPED, Definition
from midstream.algebra.semantics.values import (
    Row,
    arrow_array,
    python_value,
    python_values,
)
from midstream.errors import InputError, InternalError

Evaluator = Callable[[Row], Any]


def evaluator(expression: Expression, names: list[str], catalog: Catalog) -> Evaluator:
    """A function that gives the expression's value for a row whose columns have these names."""
    match expression:
        case Column(name):
            position = names.index(name)
            return lambda row: row[position]
        case Literal(value, data_type):
            constant = python_value(value, data_type)
            return lambda row: constant
        case Cast():
            return _cast_evaluator(expression, evaluator(expression.input, names, catalog))
        case Case(branches, default):
            pairs = [(evaluator(c, names, catalog), evaluator(v, names, catalog)) for c, v in branches]
            otherwise = evaluator(default, names, catalog)
            return lambda row: next((v for c, v in pairs if c(row) is True), otherwise)(row)
        case Call(function, args) if function in LAZY:
            lazy, parts = LAZY[function], [evaluator(a, names, catalog) for a in args]
            return lambda row: lazy(part(row) for part in parts)
        case Call(function, args):
            eager = _definition(expression, catalog)
            parts = [evaluator(a, names, catalog) for a in args]
            return lambda row: eager(*[part(row) for part in parts])
        case _:
            raise InternalError(f"the oracle does not know {expression!r}")


def _cast_evaluator(expression: Cast, inner: Evaluator) -> Evaluator:
    source, target = expression.input.type, expression.data_type

    def evaluate(row: Row) -> Any:
        value = inner(row)
        try:
            return None if value is None else cast(value, source, target)
        except DoesNotFit as problem:
            if expression.attempt:
                return None
            raise InputError(
                f"cannot cast to {target}: {problem}", hint="use TRY_CAST to get NULL where a value does not fit"
            ) from None

    return evaluate


def _definition(call: Call, catalog: Catalog) -> Definition:
    if call.function in NULL_AWARE:
        return NULL_AWARE[call.function]
    if call.function in PLAIN:
        return _null_if_any_is_null(PLAIN[call.function])
    if call.function in TYPED:
        typed = TYPED[call.function]
        return _null_if_any_is_null(lambda *values: typed(call, *values))
    if call.function in BORROWED and call.function not in catalog.functions:
        return _borrowed(call)
    return _user_function(call, catalog)


def _borrowed(call: Call) -> Definition:
    sql, needed = borrow(call.function, call.args).sql, columns_among(call.args)
    known: dict[str, Any] = {}  # asking a database costs more than anything else here

    def compute(*values: Any) -> Any:
        asked = repr(values)
        if asked not in known:
            columns = [arrow_array([values[i]], call.args[i].type) for i in needed]
            known[asked] = python_values(evaluate(sql, columns, call.type, str(call)))[0]
        return known[asked]

    return compute


def _null_if_any_is_null(definition: Definition) -> Definition:
    return lambda *values: None if None in values else definition(*values)


def _user_function(call: Call, catalog: Catalog) -> Definition:
    function = catalog.function(call.function)
    if not isinstance(function, ScalarFunction):
        raise InternalError(f"{call.function} is not a scalar function")

    def apply(*values: Any) -> Any:
        arrays = [arrow_array([v], a.type) for v, a in zip(values, call.args, strict=True)]
        try:
            return python_values(function.function(*arrays).cast(function.returns))[0]
        except Exception as error:
            raise InputError(f"function {function.name} failed", detail=f"{type(error).__name__}: {error}") from error

    return apply
