"""CAST: which types become which, and constants that are read as their type."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kind
from sqlglot import exp

from midstream.algebra.borrowed import BORROWED, WRITTEN
from midstream.algebra.expressions import Cast, Expression, Literal
from midstream.algebra.types import castable, show_type
from midstream.language import literals
from midstream.language.values import ValueBinder


def bind_cast(binder: ValueBinder, node: exp.Cast) -> Expression:
    """The meaning of `CAST(x AS type)`, `TRY_CAST(x AS type)` and `x::type`."""
    name = node.args["to"]
    with binder.binding.at(name):
        type_ = literals.arrow_type(name)
    inner, attempt = node.this, isinstance(node, exp.TryCast)
    if isinstance(inner, exp.Literal) and inner.args.get("is_string") and not attempt:
        with binder.binding.at(inner):
            typed = literals.typed_literal(inner.this, name)
        if typed is not None:
            return typed
    number = inner.this if isinstance(inner, exp.Neg) else inner
    if kind.is_decimal(type_) and isinstance(number, exp.Literal) and not number.args.get("is_string"):
        bound: Expression = literals.exact(f"{'-' * (number is not inner)}{number.this}")
    else:
        bound = binder.bind(inner)
    function = _borrowed(bound.type, type_, name.this)
    if function is not None and not (attempt and function == "as_interval"):
        arguments = [bound, Literal(None, type_)] if function in ("as_type", "as_list") else [bound]
        function = f"{WRITTEN}TRY({BORROWED[function][0]})" if attempt else function
        return binder.call(function, arguments, [inner] * len(arguments), node)
    if kind.is_null(bound.type):
        return Literal(None, type_)
    if bound.type == type_:
        return bound
    if not castable(bound.type, type_):
        raise binder.binding.error(f"cannot cast {show_type(bound.type)} to {type_}", node)
    return Cast(bound, type_, attempt)


def _borrowed(source: pa.DataType, target: pa.DataType, name: str) -> str | None:
    """The function that casts where the language has no cast of its own."""
    if kind.is_null(source):
        return None
    if kind.is_nested(target) and source != target:
        return "as_list" if kind.is_list(target) and kind.is_string(source) else "as_type"
    if kind.is_duration(target) and kind.is_string(source):
        return "as_interval"
    if name in ("UUID", "JSON", "JSONB") and not kind.is_nested(source):
        return "as_uuid" if name == "UUID" else "as_json"
    if kind.is_timestamp(source) and kind.is_integer(target):
        return "as_seconds"
    if kind.is_time(target) and source != target:
        return "as_time"
    return "as_text" if kind.is_string(target) and (kind.is_nested(source) or kind.is_time(source)) else None
