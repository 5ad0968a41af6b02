"""The functions of the language: their names and result types, nothing about how they compute.

`SCALAR` and `AGGREGATE` map a name to a rule that takes argument types and gives the casts to apply and the result
type, or refuses. Both evaluators (the oracle's and the engine's) must know every name listed here; a test holds them
to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.types as kind

from midstream.algebra.types import (
    BOOLEAN,
    DECIMAL_DIGITS,
    DOUBLE,
    DURATION,
    INTEGER,
    TEXT,
    common_type,
    is_instant,
    is_nested,
    is_number,
    plain,
    scale_of,
    show_type,
    wide_decimal,
)
from midstream.errors import QueryError

__all__ = [
    "AGGREGATE",
    "SCALAR",
    "SYNONYMS",
    "TRUNCATION_UNITS",
    "Rule",
    "Signature",
    "Types",
    "common_type",
    "plain",
    "require_condition",
]

TRUNCATION_UNITS = (
    "year",
    "quarter",
    "month",
    "week",
    "day",
    "hour",
    "minute",
    "second",
    "millisecond",
    "microsecond",
)
"""What `date_trunc` cuts to."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function makes of its arguments: the types to cast them to, and the type of the result."""

    arguments: tuple[pa.DataType, ...]
    result: pa.DataType


Types = tuple[pa.DataType, ...]
Rule = Callable[[Types], Signature]


def _refuse(function: str, types: Types, hint: str | None = None) -> QueryError:
    shown = ", ".join(map(show_type, types)) or "nothing"
    operator = not function.isidentifier()
    message = f"cannot apply {function} to {shown}" if operator else f"{function} does not take {shown}"
    return QueryError(message, hint=hint)


def _counted(function: str, types: Types, least: int, most: int | None) -> None:
    if len(types) >= least and (most is None or len(types) <= most):
        return
    wanted = f"{least}" if most == least else f"at least {least}" if most is None else f"{least} to {most}"
    noun = "argument" if wanted == "1" else "arguments"
    raise QueryError(f"{function} takes {wanted} {noun}, not {len(types)}")


def _arithmetic(function: str) -> Rule:
    def rule(types: Types) -> Signature:
        _counted(function, types, 2, 2)
        temporal = _temporal(function, types)
        if temporal is not None:
            return temporal
        known = [plain(t) for t in types if not kind.is_null(t)]
        if not all(map(is_number, known)):
            raise _refuse(function, types, _arithmetic_hint(function, known))
        if function == "/":
            return Signature((DOUBLE, DOUBLE), DOUBLE)
        if any(map(kind.is_floating, known)):
            return Signature((DOUBLE, DOUBLE), DOUBLE)
        if any(map(kind.is_decimal, known)):
            return _decimal_arithmetic(function, types)
        return Signature((INTEGER, INTEGER), INTEGER)

    return rule


def _decimal_arithmetic(function: str, types: Types) -> Signature:
    scales = [scale_of(t) for t in types]
    if function != "*":
        wide = wide_decimal(max(scales))
        return Signature((wide, wide), wide)
    if sum(scales) > DECIMAL_DIGITS:
        raise _refuse(function, types, "the product has more than 38 decimals; cast to fewer, or to DOUBLE")
    return Signature((wide_decimal(scales[0]), wide_decimal(scales[1])), wide_decimal(sum(scales)))


def _temporal(function: str, types: Types) -> Signature | None:
    """Timestamps and durations: moving an instant, the distance of two, sums of distances."""
    a, b = (plain(t) for t in types)
    if function not in ("+", "-"):
        return None
    if is_instant(a) and kind.is_duration(b):
        moved = _as_timestamp(a)
        return Signature((moved, DURATION), moved)
    if function == "+" and kind.is_duration(a) and is_instant(b):
        moved = _as_timestamp(b)
        return Signature((DURATION, moved), moved)
    if kind.is_duration(a) and kind.is_duration(b):
        return Signature((DURATION, DURATION), DURATION)
    if function == "-" and is_instant(a) and is_instant(b):
        both = common_type(_as_timestamp(a), _as_timestamp(b))
        return None if both is None else Signature((both, both), DURATION)
    return None


def _as_timestamp(type_: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", None if kind.is_date(type_) else type_.tz)


def _arithmetic_hint(function: str, types: list[pa.DataType]) -> str | None:
    if function == "+" and any(map(kind.is_string, types)):
        return "strings are joined with ||; to calculate, cast with CAST(x AS DOUBLE)"
    if any(map(is_instant, types)) and function in ("+", "-"):
        return "add or subtract a duration, for instance INTERVAL '5 seconds'"
    return "cast one side with CAST(x AS …)" if len(types) == 2 else None


def _comparison(function: str) -> Rule:
    def rule(types: Types) -> Signature:
        _counted(function, types, 2, 2)
        both = _shared(function, types, "cannot compare {0} with {1}")
        return Signature((both, both), BOOLEAN)

    return rule


def _membership(types: Types) -> Signature:
    _counted("IN", types, 2, None)
    both = _shared("IN", types, "cannot compare {0} with {1}")
    return Signature((both,) * len(types), BOOLEAN)


def _shared(function: str, types: Types, message: str) -> pa.DataType:
    """The common type of all arguments, or a refusal that names the two that do not fit."""

    def join(a: pa.DataType, b: pa.DataType) -> pa.DataType:
        both = common_type(a, b)
        if both is None:
            raise QueryError(message.format(show_type(a), show_type(b)), hint=_mismatch_hint(a, b))
        return both

    for type_ in types:
        if is_nested(type_):
            raise QueryError(f"{function} cannot compare {type_}", hint="nested values can be carried, not compared")
    shared = reduce(join, types)
    return BOOLEAN if kind.is_null(shared) else shared


def _mismatch_hint(a: pa.DataType, b: pa.DataType) -> str:
    if is_instant(a) and is_instant(b):
        return "one has a time zone, the other has none; cast one with CAST(x AS TIMESTAMP)"
    return "cast one side with CAST(x AS …)"


def _alike(function: str, least: int, most: int | None) -> Rule:
    """All arguments and the result are of one type."""

    def rule(types: Types) -> Signature:
        _counted(function, types, least, most)
        if function == "coalesce" and all(t == types[0] for t in types) and not kind.is_null(types[0]):
            return Signature(types, types[0])
        both = _shared(function, types, f"{function} needs values of one type, not {{0}} and {{1}}")
        return Signature((both,) * len(types), both)

    return rule


def _logic(function: str, most: int | None) -> Rule:
    def rule(types: Types) -> Signature:
        _counted(function.upper(), types, most or 2, most)
        for type_ in types:
            require_condition(type_, function.upper())
        return Signature((BOOLEAN,) * len(types), BOOLEAN)

    return rule


def require_condition(type_: pa.DataType, clause: str) -> None:
    """Refuses anything but a boolean where a condition is wanted."""
    if not (kind.is_boolean(type_) or kind.is_null(type_)):
        hint = "compare it, for instance with <> 0" if is_number(type_) else "write a comparison"
        raise QueryError(f"{clause} needs a condition, not {show_type(type_)}", hint=hint)


def _anything(function: str, result: pa.DataType) -> Rule:
    def rule(types: Types) -> Signature:
        _counted(function, types, 1, 1)
        return Signature(_typed(types), result)

    return rule


def _typed(types: Types) -> Types:
    """Untyped nulls as strings, where any type will do."""
    return tuple(TEXT if kind.is_null(t) else t for t in types)


def _number(function: str, decimal: Callable[[pa.DataType], pa.DataType], most: int = 1) -> Rule:
    """Integers stay int64, doubles stay double, decimals become what `decimal` says; then integer arguments."""

    def rule(types: Types) -> Signature:
        _counted(function, types, 1, most)
        first = plain(types[0])
        if not (is_number(first) or kind.is_null(first)):
            raise _refuse(function, types, "it takes a number")
        if len(types) == 2 and not (kind.is_integer(types[1]) or kind.is_null(types[1])):
            raise _refuse(function, types, "the number of digits is an integer")
        kept = decimal(first) if kind.is_decimal(first) else INTEGER if kind.is_integer(first) else DOUBLE
        return Signature((kept, INTEGER)[: len(types)], kept)

    return rule


def _negation(types: Types) -> Signature:
    _counted("-", types, 1, 1)
    if kind.is_duration(types[0]):
        return Signature((DURATION,), DURATION)
    if not (is_number(plain(types[0])) or kind.is_null(types[0])):
        raise _refuse("-", types)
    return _number("-", lambda t: t)(types)


_ACCEPTS: dict[pa.DataType, Callable[[pa.DataType], bool]] = {
    TEXT: kind.is_string,
    INTEGER: kind.is_integer,
    DOUBLE: is_number,
    BOOLEAN: kind.is_boolean,
}

_WORDS = {TEXT: "string", INTEGER: "integer", DOUBLE: "number", BOOLEAN: "boolean"}


def _fixed(function: str, wanted: Types, result: pa.DataType, least: int | None = None) -> Rule:
    """A function whose arguments have given types; from `least` on they may be left out."""

    def rule(types: Types) -> Signature:
        _counted(function, types, len(wanted) if least is None else least, len(wanted))
        for want, have in zip(wanted, types, strict=False):
            if not (kind.is_null(have) or _ACCEPTS[want](plain(have))):
                shape = ", ".join(_WORDS[w] for w in wanted)
                raise _refuse(function, types, f"its arguments are: {shape}")
        return Signature(wanted[: len(types)], result)

    return rule


def _joining(types: Types) -> Signature:
    _counted("||", types, 2, 2)
    if not all(kind.is_string(plain(t)) or kind.is_null(t) for t in types):
        raise _refuse("||", types, "it joins strings; cast with CAST(x AS STRING), or use concat")
    return Signature((TEXT, TEXT), TEXT)


def _concatenation(types: Types) -> Signature:
    _counted("concat", types, 1, None)
    if any(is_nested(t) or kind.is_binary(plain(t)) for t in types):
        raise _refuse("concat", types, "its arguments are strings, numbers, booleans or dates")
    return Signature((TEXT,) * len(types), TEXT)


def _clock(function: str, result: pa.DataType, of_dates: bool = True) -> Rule:
    """A function of one date or timestamp; dates become timestamps where the function asks for a time of day."""

    def rule(types: Types) -> Signature:
        _counted(function, types, 1, 1)
        return Signature((_instant(function, types, types[0], of_dates),), result)

    return rule


def _instant(function: str, types: Types, type_: pa.DataType, of_dates: bool = True) -> pa.DataType:
    type_ = plain(type_)
    if kind.is_null(type_):
        return pa.timestamp("us")
    if not is_instant(type_):
        raise _refuse(function, types, "it takes a date or a timestamp")
    return type_ if of_dates or not kind.is_date(type_) else pa.timestamp("us")


def _truncation(types: Types) -> Signature:
    _counted("date_trunc", types, 2, 2)
    if not kind.is_string(plain(types[0])):
        raise _refuse("date_trunc", types, "write for instance date_trunc('hour', t)")
    cut = _instant("date_trunc", types, types[1])
    return Signature((TEXT, cut), cut)


def _formatting(types: Types) -> Signature:
    _counted("strftime", types, 2, 2)
    if not kind.is_string(plain(types[1])):
        raise _refuse("strftime", types, "write for instance strftime(t, '%Y-%m')")
    return Signature((_instant("strftime", types, types[0], of_dates=False), TEXT), TEXT)


def _as_double(_: pa.DataType) -> pa.DataType:
    return DOUBLE


SCALAR: Mapping[str, Rule] = {
    **{name: _arithmetic(name) for name in ("+", "-", "*", "/", "%")},
    "negate": _negation,
    "||": _joining,
    **{name: _comparison(name) for name in ("=", "<>", "<", "<=", ">", ">=")},
    "is_distinct_from": _comparison("IS DISTINCT FROM"),
    "is_not_distinct_from": _comparison("IS NOT DISTINCT FROM"),
    "and": _logic("and", None),
    "or": _logic("or", None),
    "not": _logic("not", 1),
    "is_null": _anything("IS NULL", BOOLEAN),
    "in": _membership,
    "like": _fixed("LIKE", (TEXT, TEXT), BOOLEAN),
    "ilike": _fixed("ILIKE", (TEXT, TEXT), BOOLEAN),
    "coalesce": _alike("coalesce", 1, None),
    "nullif": _alike("nullif", 2, 2),
    "greatest": _alike("greatest", 1, None),
    "least": _alike("least", 1, None),
    "abs": _number("abs", lambda t: t),
    "ceil": _number("ceil", _as_double),
    "floor": _number("floor", _as_double),
    "round": _number("round", _as_double, most=2),
    "sign": _number("sign", _as_double),
    **{name: _fixed(name, (DOUBLE,), DOUBLE) for name in ("sqrt", "exp", "ln", "log10")},
    "power": _fixed("power", (DOUBLE, DOUBLE), DOUBLE),
    **{name: _fixed(name, (TEXT,), TEXT) for name in ("upper", "lower", "trim", "ltrim", "rtrim", "reverse")},
    "length": _fixed("length", (TEXT,), INTEGER),
    "substring": _fixed("substring", (TEXT, INTEGER, INTEGER), TEXT, least=2),
    "replace": _fixed("replace", (TEXT, TEXT, TEXT), TEXT),
    "concat": _concatenation,
    **{name: _fixed(name, (TEXT, TEXT), BOOLEAN) for name in ("starts_with", "ends_with", "contains")},
    "regexp_matches": _fixed("regexp_matches", (TEXT, TEXT), BOOLEAN),
    "strpos": _fixed("strpos", (TEXT, TEXT), INTEGER),
    "left": _fixed("left", (TEXT, INTEGER), TEXT),
    "right": _fixed("right", (TEXT, INTEGER), TEXT),
    "lpad": _fixed("lpad", (TEXT, INTEGER, TEXT), TEXT),
    "rpad": _fixed("rpad", (TEXT, INTEGER, TEXT), TEXT),
    "split_part": _fixed("split_part", (TEXT, TEXT, INTEGER), TEXT),
    **{name: _clock(name, INTEGER) for name in ("year", "month", "day", "dayofweek", "dayofyear")},
    **{name: _clock(name, INTEGER, of_dates=False) for name in ("hour", "minute", "second")},
    "epoch": _clock("epoch", DOUBLE, of_dates=False),
    "epoch_ms": _clock("epoch_ms", INTEGER, of_dates=False),
    "date_trunc": _truncation,
    "strftime": _formatting,
}
"""Every scalar function and operator, by the name it has in a `Call`."""


def _count(types: Types) -> Signature:
    if len(types) > 1:
        raise QueryError(f"count takes one argument, not {len(types)}", hint="write count(*) to count tuples")
    return Signature(_typed(types), INTEGER)


def _sum(types: Types) -> Signature:
    _counted("sum", types, 1, 1)
    type_ = plain(types[0])
    if kind.is_decimal(type_):
        wide = wide_decimal(scale_of(type_))
        return Signature((wide,), wide)
    if not is_number(type_):
        hint = "count the true ones with count(*) FILTER (WHERE …)" if kind.is_boolean(type_) else None
        raise _refuse("sum", types, hint or "it takes a number")
    wide = DOUBLE if kind.is_floating(type_) else INTEGER
    return Signature((wide,), wide)


def _moment(function: str) -> Rule:
    def rule(types: Types) -> Signature:
        _counted(function, types, 1, 1)
        if not is_number(plain(types[0])):
            raise _refuse(function, types, "it takes a number")
        # What comes of integers comes of their exact sums, so they stay integers on the way in.
        exact = kind.is_integer(plain(types[0]))
        return Signature((pa.int64() if exact else DOUBLE,), DOUBLE)

    return rule


def _extreme(function: str) -> Rule:
    def rule(types: Types) -> Signature:
        _counted(function, types, 1, 1)
        if is_nested(types[0]) or kind.is_null(types[0]):
            raise _refuse(function, types, "it takes values that have an order")
        return Signature((plain(types[0]),), plain(types[0]))

    return rule


AGGREGATE: Mapping[str, Rule] = {
    "count": _count,
    "sum": _sum,
    **{name: _moment(name) for name in ("avg", "stddev", "stddev_pop", "variance", "var_pop")},
    "min": _extreme("min"),
    "max": _extreme("max"),
}
"""Every built-in aggregate; `count` without an argument is `count(*)`."""

SYNONYMS: Mapping[str, str] = {
    "ceiling": "ceil",
    "pow": "power",
    "len": "length",
    "char_length": "length",
    "character_length": "length",
    "substr": "substring",
    "mean": "avg",
    "stddev_samp": "stddev",
    "var_samp": "variance",
    "dow": "dayofweek",
    "doy": "dayofyear",
    "regexp_like": "regexp_matches",
}
"""Other names for the same functions."""
