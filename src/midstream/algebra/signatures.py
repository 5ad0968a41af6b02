"""Signatures of functions: rules from argument types to casts and a result type, or to a refusal."""

from __future__ import annotations

from collections.abc import Callable
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
    as_number,
    common_type,
    comparable_type,
    is_instant,
    is_nested,
    is_number,
    mixed_type,
    plain,
    scale_of,
    show_type,
    wide_decimal,
)
from midstream.errors import QueryError


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function makes of its arguments: the types to cast them to, and the type of the result."""

    arguments: tuple[pa.DataType, ...]
    result: pa.DataType


Types = tuple[pa.DataType, ...]

Rule = Callable[[Types], Signature]


def refuse(function: str, types: Types, hint: str | None = None) -> QueryError:
    """The refusal of some argument types, by name."""
    shown = ", ".join(map(show_type, types))
    operator = not function.isidentifier()
    taken = f"{function} does not take {shown}" if types else f"{function} needs an argument"
    message = f"cannot apply {function} to {shown}" if operator else taken
    return QueryError(message, hint=hint)


def counted(function: str, types: Types, least: int, most: int | None) -> None:
    """Refuses too few or too many arguments."""
    if len(types) >= least and (most is None or len(types) <= most):
        return
    wanted = f"{least}" if most == least else f"at least {least}" if most is None else f"{least} to {most}"
    noun = "argument" if wanted == "1" else "arguments"
    raise QueryError(f"{function} takes {wanted} {noun}, not {len(types)}")


def arithmetic(function: str) -> Rule:
    """An arithmetic operator: of numbers, and of instants and durations where that means something."""

    def rule(types: Types) -> Signature:
        counted(function, types, 2, 2)
        temporal = _temporal(function, types)
        if temporal is not None:
            return temporal
        known = [plain(t) for t in types if not kind.is_null(t)]
        if known and all(map(kind.is_string, known)):
            raise refuse(function, types, _arithmetic_hint(function, known))
        known = [as_number(t) for t in known]
        if not all(map(is_number, known)):
            raise refuse(function, types, _arithmetic_hint(function, known))
        if function == "/":
            return Signature((DOUBLE, DOUBLE), DOUBLE)
        if any(map(kind.is_floating, known)):
            return Signature((DOUBLE, DOUBLE), DOUBLE)
        if any(map(kind.is_decimal, known)):
            return _decimal_arithmetic(function, tuple(map(as_number, types)))
        return Signature((INTEGER, INTEGER), INTEGER)

    return rule


def _decimal_arithmetic(function: str, types: Types) -> Signature:
    scales = [scale_of(t) for t in types]
    if function != "*":
        wide = wide_decimal(max(scales))
        return Signature((wide, wide), wide)
    if sum(scales) > DECIMAL_DIGITS:
        raise refuse(function, types, "the product has more than 38 decimals; cast to fewer, or to DOUBLE")
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
    if function == "-" and is_instant(a) and is_instant(b) and not (kind.is_date(a) and kind.is_date(b)):
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


def comparison(function: str) -> Rule:
    """A comparison of two values of one type."""

    def rule(types: Types) -> Signature:
        counted(function, types, 2, 2)
        both = _shared(function, types, "cannot compare {0} with {1}", comparable_type)
        return Signature((both, both), BOOLEAN)

    return rule


def membership(types: Types) -> Signature:
    """IN: a value, and those it may be equal to."""
    counted("IN", types, 2, None)
    both = _shared("IN", types, "cannot compare {0} with {1}", comparable_type)
    return Signature((both,) * len(types), BOOLEAN)


def _shared(
    function: str,
    types: Types,
    message: str,
    common: Callable[[pa.DataType, pa.DataType], pa.DataType | None] = common_type,
) -> pa.DataType:
    """The common type of all arguments, or a refusal that names the two that do not fit."""

    def join(a: pa.DataType, b: pa.DataType) -> pa.DataType:
        both = common(a, b)
        if both is None:
            raise QueryError(message.format(show_type(a), show_type(b)), hint=_mismatch_hint(a, b))
        return both

    for type_ in types:
        if is_nested(type_) or kind.is_interval(type_):
            raise QueryError(f"{function} cannot compare {type_}", hint="nested values can be carried, not compared")
    shared = reduce(join, types)
    return BOOLEAN if kind.is_null(shared) else shared


def _mismatch_hint(a: pa.DataType, b: pa.DataType) -> str:
    if is_instant(a) and is_instant(b):
        return "one has a time zone, the other has none; cast one with CAST(x AS TIMESTAMP)"
    return "cast one side with CAST(x AS …)"


def alike(function: str, least: int, most: int | None) -> Rule:
    """All arguments and the result are of one type."""

    def rule(types: Types) -> Signature:
        counted(function, types, least, most)
        nested = reduce(lambda a, b: a and mixed_type(a, b), types) if function == "coalesce" else None
        if nested is not None and is_nested(nested):
            return Signature((nested,) * len(types), nested)
        both = _shared(function, types, f"{function} needs values of one type, not {{0}} and {{1}}", mixed_type)
        return Signature((both,) * len(types), both)

    return rule


def logic(function: str, most: int | None) -> Rule:
    """AND, OR and NOT."""

    def rule(types: Types) -> Signature:
        counted(function.upper(), types, most or 2, most)
        for type_ in types:
            require_condition(type_, function.upper())
        return Signature((BOOLEAN,) * len(types), BOOLEAN)

    return rule


def require_condition(type_: pa.DataType, clause: str) -> None:
    """Refuses anything but a truth, or a number, which is true unless it is zero, where a condition is wanted."""
    if not (kind.is_boolean(type_) or kind.is_null(type_) or is_number(type_)):
        raise QueryError(f"{clause} needs a condition, not {show_type(type_)}", hint="write a comparison")


def anything(function: str, result: pa.DataType) -> Rule:
    """A function of one argument of any type."""

    def rule(types: Types) -> Signature:
        counted(function, types, 1, 1)
        return Signature(typed(types), result)

    return rule


def typed(types: Types) -> Types:
    """Untyped nulls as strings, where any type will do."""
    return tuple(TEXT if kind.is_null(t) else t for t in types)


def number(function: str, decimal: Callable[[pa.DataType], pa.DataType], most: int = 1) -> Rule:
    """Integers stay int64, doubles stay double, decimals become what `decimal` says; then integer arguments."""

    def rule(types: Types) -> Signature:
        counted(function, types, 1, most)
        first = as_number(types[0])
        if not (is_number(first) or kind.is_null(first)):
            raise refuse(function, types, "it takes a number")
        if len(types) == 2 and not (kind.is_integer(types[1]) or kind.is_null(types[1])):
            raise refuse(function, types, "the number of digits is an integer")
        kept = decimal(first) if kind.is_decimal(first) else INTEGER if kind.is_integer(first) else DOUBLE
        return Signature((kept, INTEGER)[: len(types)], kept)

    return rule


def negation(types: Types) -> Signature:
    """The negative of a number or a duration."""
    counted("-", types, 1, 1)
    if kind.is_duration(types[0]):
        return Signature((DURATION,), DURATION)
    if not (is_number(plain(types[0])) or kind.is_null(types[0])):
        raise refuse("-", types)
    return number("-", lambda t: t)(types)


_ACCEPTS: dict[pa.DataType, Callable[[pa.DataType], bool]] = {
    TEXT: lambda type_: bool(kind.is_string(type_) or kind.is_boolean(type_) or is_number(type_) or is_instant(type_)),
    INTEGER: lambda type_: is_number(as_number(type_)),
    DOUBLE: lambda type_: is_number(as_number(type_)),
    BOOLEAN: kind.is_boolean,
}

_WORDS = {TEXT: "string", INTEGER: "integer", DOUBLE: "number", BOOLEAN: "boolean"}


def fixed(function: str, wanted: Types, result: pa.DataType, least: int | None = None) -> Rule:
    """A function whose arguments have given types; from `least` on they may be left out."""

    def rule(types: Types) -> Signature:
        counted(function, types, len(wanted) if least is None else least, len(wanted))
        for want, have in zip(wanted, types, strict=False):
            if not (kind.is_null(have) or _ACCEPTS[want](plain(have))):
                shape = ", ".join(_WORDS[w] for w in wanted)
                raise refuse(function, types, f"its arguments are: {shape}")
        return Signature(wanted[: len(types)], result)

    return rule


def joining(types: Types) -> Signature:
    """Two values as strings, one after the other."""
    counted("||", types, 2, 2)
    if any(is_nested(t) or kind.is_binary(plain(t)) for t in types):
        raise refuse("||", types, "it joins strings, or two lists")
    return Signature((TEXT, TEXT), TEXT)


def concatenation(types: Types) -> Signature:
    """Any values as one string."""
    counted("concat", types, 1, None)
    if any(is_nested(t) or kind.is_binary(plain(t)) for t in types):
        raise refuse("concat", types, "its arguments are strings, numbers, booleans or dates")
    return Signature((TEXT,) * len(types), TEXT)


def clock(function: str, result: pa.DataType, of_dates: bool = True) -> Rule:
    """A function of one date or timestamp; dates become timestamps where the function asks for a time of day."""

    def rule(types: Types) -> Signature:
        counted(function, types, 1, 1)
        return Signature((_instant(function, types, types[0], of_dates),), result)

    return rule


def _instant(function: str, types: Types, type_: pa.DataType, of_dates: bool = True) -> pa.DataType:
    type_ = plain(type_)
    if kind.is_null(type_) or kind.is_string(type_):
        return pa.timestamp("us")
    if not is_instant(type_):
        raise refuse(function, types, "it takes a date or a timestamp")
    return type_ if of_dates or not kind.is_date(type_) else pa.timestamp("us")


def truncation(types: Types) -> Signature:
    """An instant cut to a unit of time."""
    counted("date_trunc", types, 2, 2)
    if not kind.is_string(plain(types[0])):
        raise refuse("date_trunc", types, "write for instance date_trunc('hour', t)")
    cut = _instant("date_trunc", types, types[1], of_dates=False)
    return Signature((TEXT, cut), cut)


def as_wider(type_: pa.DataType) -> pa.DataType:
    """Decimals with room for one more digit, which rounding may bring."""
    return pa.decimal128(min(38, type_.precision + 1), type_.scale)


def as_double(_: pa.DataType) -> pa.DataType:
    """A double, whatever it was."""
    return DOUBLE
