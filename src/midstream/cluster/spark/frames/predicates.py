"""Conditions in Spark's words.

What is written for Spark has the value that ours has, or null; it never fails. Spark's null where we have a value
stands for "not known here" (an integer overflows, or NaN is compared, which Spark takes for a number): AND, OR and NOT
then know less, never something else, so a condition that is not false for Spark is kept. What cannot be written so is
left out: of a conjunction the rest stays, anything else is left out as a whole. So every row that our condition keeps
is kept by Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.types as kind
from sqlglot import exp

from midstream.algebra.expressions import Call, Case, Cast, Column, Expression, Literal

_PLAIN_TEXT = re.compile(r"[A-Za-z0-9 _%.,:;/@#+=()-]*")
_COMPARISONS: dict[str, type[exp.Binary]] = {
    "=": exp.EQ,
    "<>": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
}
_INTEGERS = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
_OVERFLOWING = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}
_DOUBLES: dict[str, type[exp.Binary]] = {"+": exp.Add, "-": exp.Sub, "*": exp.Mul}
_TEXTS = {"starts_with": "startswith", "ends_with": "endswith", "contains": "contains", "||": "concat"}
_CLOCK = {"year": "year", "month": "month", "day": "day", "hour": "hour", "minute": "minute"}


@dataclass(frozen=True, slots=True)
class Written:
    """An expression for Spark; a `certain` one has our value in every row, any other may be null instead."""

    text: exp.Expr
    certain: bool = True


class NotSpark(Exception):
    """Spark has no words for it that mean the same."""


@lru_cache(maxsize=1024)
def spark_condition(condition: Expression, names: tuple[tuple[str, str], ...]) -> str | None:
    """A Spark condition that keeps whatever ours keeps; None if there is none.

    `names` are the names that Spark has for the columns.

    >>> v, price = Column("A.v", pa.int64()), Column("A.price", pa.float64())
    >>> high = Call(">", (v, Literal(3, pa.int64())), pa.bool_())
    >>> named = (("A.v", "v"), ("A.price", "price"))
    >>> spark_condition(high, named)
    "(`v` > CAST('3' AS BIGINT))"
    >>> odd = Call("regexp_matches", (Column("A.s", pa.string()), Literal("x+", pa.string())), pa.bool_())
    >>> spark_condition(Call("and", (high, odd), pa.bool_()), named)
    "(`v` > CAST('3' AS BIGINT))"
    >>> print(spark_condition(Call("or", (high, odd), pa.bool_()), named))
    None
    """
    found = _kept(condition, dict(names))
    return None if found is None else found.sql(dialect="spark")


def _kept(condition: Expression, names: Mapping[str, str]) -> exp.Expr | None:
    match condition:
        case Call("and", args):
            parts = [part for a in args if (part := _kept(a, names)) is not None]
            return _nested(exp.and_(*parts)) if parts else None
        case Call("or", args):
            known = [_kept(a, names) for a in args]
            parts = [part for part in known if part is not None]
            return _nested(exp.or_(*parts)) if len(parts) == len(known) else None
    try:
        written = write(condition, names)
    except NotSpark:
        return None
    return written.text if written.certain else _call("coalesce", written.text, exp.true())


def write(expression: Expression, names: Mapping[str, str]) -> Written:
    """An expression for Spark; `NotSpark` if it cannot be written."""
    match expression:
        case Column(name, data_type):
            _type(data_type)
            return Written(_column(name, names))
        case Literal(value, data_type):
            return Written(_literal(value, data_type))
        case Cast(inner, target):
            return _cast(write(inner, names), inner.type, target)
        case Case(branches, default):
            return _case(branches, default, names)
        case Call("is_null", (Column(name),)):
            return Written(_nested(exp.Is(this=_column(name, names), expression=exp.Null())))
        case Call(function, args):
            rule = _RULES.get(function)
            if rule is None:
                raise NotSpark(function)
            return rule(expression, [write(a, names) for a in args])
    raise NotSpark(str(expression))


def _column(name: str, names: Mapping[str, str]) -> exp.Expr:
    if name not in names:
        raise NotSpark(name)
    return exp.column(names[name], quoted=True)


def _type(data_type: pa.DataType) -> str:
    """The name of the Spark type that carries a type, with the same values in the same order."""
    if kind.is_integer(data_type) and not kind.is_uint64(data_type):
        return _INTEGERS[data_type.bit_width] if kind.is_signed_integer(data_type) else "BIGINT"
    if kind.is_timestamp(data_type) and data_type.unit == "us":
        return "TIMESTAMP_NTZ" if data_type.tz is None else "TIMESTAMP"
    if kind.is_decimal128(data_type) and data_type.scale >= 0:
        return f"DECIMAL({data_type.precision}, {data_type.scale})"
    for known, name in ((pa.bool_(), "BOOLEAN"), (pa.string(), "STRING"), (pa.date32(), "DATE")):
        if data_type == known:
            return name
    if kind.is_float32(data_type) or kind.is_float64(data_type):
        return "FLOAT" if kind.is_float32(data_type) else "DOUBLE"
    raise NotSpark(str(data_type))


def _literal(value: object, data_type: pa.DataType) -> exp.Expr:
    name = _type(data_type)
    if value is None:
        return _as(exp.Null(), name)
    scalar = pa.array([value], data_type)[0]
    if kind.is_boolean(data_type):
        return exp.true() if scalar.as_py() else exp.false()
    if kind.is_timestamp(data_type) and data_type.tz is not None:
        return _call("timestamp_micros", exp.Literal.number(scalar.value))
    if kind.is_string(data_type):
        return _text(scalar.as_py())
    return _as(exp.Literal.string(_shown(scalar)), name)


def _shown(scalar: pa.Scalar) -> str:
    value = scalar.as_py()
    if kind.is_floating(scalar.type):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))
    if kind.is_decimal(scalar.type):
        return format(value, "f")
    return str(value)


def _text(value: str) -> exp.Expr:
    # How quotes and backslashes are read depends on Spark's settings.
    if _PLAIN_TEXT.fullmatch(value):
        return exp.Literal.string(value)
    return _as(exp.HexString(this=value.encode().hex()), "STRING")


def _cast(inner: Written, source: pa.DataType, target: pa.DataType) -> Written:
    """Casts to types that hold every value of the narrower one."""
    if source == target:
        return inner
    integers = kind.is_integer(source) and not kind.is_uint64(source)
    wider = (
        (integers and kind.is_int64(target))
        or (integers and kind.is_float64(target))
        or (kind.is_float32(source) and kind.is_float64(target))
        or (kind.is_decimal128(source) and kind.is_decimal128(target) and _holds(target, source))
    )
    if not wider:
        raise NotSpark(f"{source} as {target}")
    return Written(_as(inner.text, _type(target)), inner.certain)


def _holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    digits = wide.precision - wide.scale >= narrow.precision - narrow.scale
    return bool(digits and wide.scale >= narrow.scale)


def _case(
    branches: tuple[tuple[Expression, Expression], ...], default: Expression, names: Mapping[str, str]
) -> Written:
    ifs = [(write(c, names), write(v, names)) for c, v in branches]
    otherwise = write(default, names)
    _require([condition for condition, _ in ifs])
    text = exp.Case(ifs=[exp.If(this=c.text, true=v.text) for c, v in ifs], default=otherwise.text)
    return Written(text, otherwise.certain and all(v.certain for _, v in ifs))


def _require(args: list[Written]) -> None:
    """For what can tell a null from a value: nulls must be ours."""
    if not all(a.certain for a in args):
        raise NotSpark("an uncertain null")


def _comparison(call: Call, args: list[Written]) -> Written:
    left, right = call.args
    if left.type != right.type:
        raise NotSpark("unequal types")
    operator = _COMPARISONS[call.function]
    certain = all(a.certain for a in args)
    if kind.is_floating(left.type):
        ordered = [_ordered(e, a) for e, a in zip(call.args, args, strict=True)]
        return Written(_nested(operator(this=ordered[0], expression=ordered[1])), False)
    return Written(_nested(operator(this=args[0].text, expression=args[1].text)), certain)


def _ordered(expression: Expression, written: Written) -> exp.Expr:
    """A float that can be compared: null instead of NaN."""
    if isinstance(expression, Literal) and expression.value == expression.value:
        return written.text
    return exp.Nullif(this=written.text, expression=_as(exp.Literal.string("NaN"), "DOUBLE"))


def _connected(connect: Callable[..., exp.Expr]) -> Callable[[Call, list[Written]], Written]:
    def rule(call: Call, args: list[Written]) -> Written:
        return Written(_nested(connect(*(a.text for a in args))), all(a.certain for a in args))

    return rule


def _not(call: Call, args: list[Written]) -> Written:
    return Written(_nested(exp.Not(this=args[0].text)), args[0].certain)


def _is_null(call: Call, args: list[Written]) -> Written:
    _require(args)
    return Written(_nested(exp.Is(this=args[0].text, expression=exp.Null())))


def _in(call: Call, args: list[Written]) -> Written:
    if len({a.type for a in call.args}) > 1 or kind.is_floating(call.args[0].type):
        raise NotSpark("values of other types, or floats")
    needle, *values = (a.text for a in args)
    return Written(_nested(exp.In(this=needle, expressions=values)), all(a.certain for a in args))


def _same(call: Call, args: list[Written]) -> Written:
    _require(args)
    if call.args[0].type != call.args[1].type or kind.is_floating(call.args[0].type):
        raise NotSpark("unequal types, or floats")
    same = _nested(exp.NullSafeEQ(this=args[0].text, expression=args[1].text))
    return Written(same if call.function == "is_not_distinct_from" else _nested(exp.Not(this=same)))


def _coalesce(call: Call, args: list[Written]) -> Written:
    _require(args[:-1])
    if len({a.type for a in call.args}) > 1:
        raise NotSpark("values of other types")
    return Written(_call("coalesce", *(a.text for a in args)), args[-1].certain)


def _chosen(call: Call, args: list[Written]) -> Written:
    """One of the arguments, by comparing them; NaN is compared otherwise."""
    _require(args)
    if len({a.type for a in call.args}) > 1 or kind.is_floating(call.type) or len(args) < 2:
        raise NotSpark("values of other types, or floats")
    return Written(_call(call.function, *(a.text for a in args)))


def _arithmetic(call: Call, args: list[Written]) -> Written:
    types = {a.type for a in call.args}
    certain = all(a.certain for a in args)
    if types == {pa.float64()} == {call.type}:
        return Written(_nested(_DOUBLES[call.function](this=args[0].text, expression=args[1].text)), certain)
    if types == {pa.int64()} == {call.type}:
        return Written(_call(_OVERFLOWING[call.function], *(a.text for a in args)), False)
    raise NotSpark("neither integers nor doubles")


def _divided(call: Call, args: list[Written]) -> Written:
    certain = all(a.certain for a in args)
    if call.function == "/":
        doubles = [_cast(a, e.type, pa.float64()) for e, a in zip(call.args, args, strict=True)]
        return Written(_call("try_divide", *(a.text for a in doubles)), certain)
    if {a.type for a in call.args} == {pa.int64()}:
        return Written(_call("try_mod", *(a.text for a in args)), certain)
    raise NotSpark("a remainder of something else than integers")


def _texts(call: Call, args: list[Written]) -> Written:
    if {a.type for a in call.args} != {pa.string()}:
        raise NotSpark("not texts")
    return Written(_call(_TEXTS[call.function], *(a.text for a in args)), all(a.certain for a in args))


def _length(call: Call, args: list[Written]) -> Written:
    if call.args[0].type != pa.string():
        raise NotSpark("not a text")
    return Written(_as(_call("char_length", args[0].text), _type(call.type)), args[0].certain)


def _like(call: Call, args: list[Written]) -> Written:
    pattern = call.args[1]
    # To Spark a backslash is an escape, to the language a letter.
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str) or "\\" in pattern.value:
        raise NotSpark("a pattern that is no plain text")
    return Written(_nested(exp.Like(this=args[0].text, expression=args[1].text)), args[0].certain)


def _clock(call: Call, args: list[Written]) -> Written:
    """Parts of dates and of timestamps without a zone; those with one show the clock of Spark's session."""
    shown = call.args[0].type
    dates = kind.is_date32(shown) and call.function in ("year", "month", "day")
    if not dates and not (kind.is_timestamp(shown) and shown.tz is None):
        raise NotSpark("a clock with a zone")
    return Written(_as(_call(_CLOCK[call.function], args[0].text), _type(call.type)), args[0].certain)


def _call(name: str, *args: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(args))


def _as(value: exp.Expr, name: str) -> exp.Expr:
    return exp.Cast(this=value, to=exp.DataType.build(name, dialect="spark"))


def _nested(value: exp.Expr) -> exp.Expr:
    return value if isinstance(value, exp.Paren) else exp.Paren(this=value)


_RULES: dict[str, Callable[[Call, list[Written]], Written]] = {
    **dict.fromkeys(_COMPARISONS, _comparison),
    "and": _connected(exp.and_),
    "or": _connected(exp.or_),
    "not": _not,
    "is_null": _is_null,
    "in": _in,
    "is_distinct_from": _same,
    "is_not_distinct_from": _same,
    "coalesce": _coalesce,
    "nullif": _chosen,
    "greatest": _chosen,
    "least": _chosen,
    **dict.fromkeys(_OVERFLOWING, _arithmetic),
    "/": _divided,
    "%": _divided,
    **dict.fromkeys(_TEXTS, _texts),
    "length": _length,
    "like": _like,
    **dict.fromkeys(_CLOCK, _clock),
}
"""How each function is written; what is not here stays ours."""
