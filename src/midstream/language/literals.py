"""Constants and type names: what is written, as Arrow types and plain Python values."""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.types as kind
from sqlglot import exp

from midstream.algebra.expressions import Call, Cast, Expression, Literal
from midstream.algebra.time import INFINITY, TIMESTAMP_TIME, ticks
from midstream.algebra.type_names import DECIMALS, SIZED, TYPES, decimal_type
from midstream.algebra.types import DECIMAL_DIGITS, DURATION
from midstream.errors import QueryError
from midstream.language.binding import nearest
from midstream.language.nodes import Duration, Node, TypeName

LONGEST_NUMBER = 400
LONGEST_DURATION = 100


def arrow_type(name: TypeName) -> pa.DataType:
    """The Arrow type a type name stands for."""
    word, parameters = name.this, name.expressions
    if word == "LIST":
        return pa.list_(arrow_type(parameters[0]))
    if word == "MAP":
        return pa.map_(*map(arrow_type, parameters))
    if word == "STRUCT":
        return pa.struct([pa.field(part.args["name"], arrow_type(part)) for part in parameters])
    if word in DECIMALS:
        return decimal_type(parameters)
    if word not in TYPES:
        raise QueryError(f"unknown type {word}", hint=nearest(word, [*TYPES, *DECIMALS], "types"))
    if parameters and word.removesuffix("_LTZ") not in SIZED:
        raise QueryError(f"{word} takes no parameters")
    return TYPES["TIMESTAMPTZ"] if name.args.get("zoned") else TYPES[word]


def number(text: str) -> Literal:
    """A number: an int64 if it is written without point and exponent, else a double."""
    text = text.replace("_", "")
    if len(text) > LONGEST_NUMBER:
        raise QueryError("the number is too long")
    try:
        if not any(letter in text for letter in ".eE"):
            return _integer(int(text))
        value = float(text)
    except ValueError:
        raise QueryError(f"{text} is not a number") from None
    if math.isinf(value):
        raise QueryError(f"{text} is too large for a double")
    return Literal(value, pa.float64())


def _integer(value: int) -> Literal:
    if not -(2**63) <= value < 2**63:
        raise QueryError(f"{value} is too large for an integer", hint=f"write DECIMAL '{value}' or {value}.0")
    return Literal(value, pa.int64())


def binary(text: str) -> Literal:
    """The bytes of `X'ff'`."""
    try:
        return Literal(bytes.fromhex(text), pa.binary())
    except ValueError:
        hint = "write two digits per byte, for instance X'00ff'"
        raise QueryError(f"X{_shown(text)} is not hexadecimal", hint=hint) from None


def duration_text(duration: Duration) -> str:
    """A duration as one text, number and unit."""
    text = f"{duration.this} {part}" if (part := duration.args.get("unit")) else str(duration.this)
    if len(text) > LONGEST_DURATION:
        raise QueryError("the duration is too long")
    return text


def interval(node: exp.Interval) -> Literal:
    """A duration as a value."""
    text = duration_text(node.this)
    found = ticks(text, TIMESTAMP_TIME)
    if abs(found) >= INFINITY:
        raise QueryError(f"{text} is too long a time")
    return Literal(dt.timedelta(microseconds=found), DURATION)


_MONTHS = {"month": 1, "mon": 1, "quarter": 3, "year": 12, "y": 12, "decade": 120, "century": 1200}


def months(node: Node) -> int | None:
    """The months of `INTERVAL '1 year 2 months'`; None for anything else, days among it."""
    if not isinstance(node, exp.Interval):
        return None
    parts = re.findall(r"([+-]?\d+)\s*([a-zA-Z]+)", duration_text(node.this))
    factors = [_MONTHS.get(unit.lower()) or _MONTHS.get(unit.lower().removesuffix("s")) for _, unit in parts]
    if not factors or None in factors:
        return None
    return sum(int(number) * (factor or 0) for (number, _), factor in zip(parts, factors, strict=True))


def multiple(node: Node) -> tuple[exp.Interval, Node | None] | None:
    """An INTERVAL, and how many times it is taken unless a constant says that; None for anything else."""
    if isinstance(node, exp.Interval):
        return node, None
    if not isinstance(node, exp.Mul) or exp.Interval not in (type(node.this), type(node.expression)):
        return None
    taken, factor = sorted((node.this, node.expression), key=lambda side: not isinstance(side, exp.Interval))
    number = factor.this if isinstance(factor, exp.Neg) else factor
    if not isinstance(number, exp.Literal) or number.args.get("is_string"):
        return taken, factor
    unit = "microsecond" if (count := months(taken)) is None else "month"
    count = ticks(duration_text(taken.this), TIMESTAMP_TIME) if count is None else count
    scaled = count * Decimal(number.this) * (1 if number is factor else -1)
    if unit == "month" and scaled % 1:
        raise QueryError("months have no parts that are all as long", hint="write days")
    return exp.Interval(this=Duration(this=f"{round(scaled)} {unit}s")), None


def literal_as(literal: Literal, type_: pa.DataType) -> Literal | None:
    """A string or timestamp literal as a value of another type, or None if it is not one that is read so."""
    value = literal.value
    if isinstance(value, str):
        return _read(value, type_) or _read_number(value, type_)
    if isinstance(value, dt.datetime) and value.tzinfo is None and kind.is_timestamp(type_) and type_.tz:
        return Literal(value.replace(tzinfo=_zone(type_.tz)), type_)
    return None


def _read(text: str, type_: pa.DataType) -> Literal | None:
    if kind.is_duration(type_) or kind.is_decimal(type_):
        return exact(text) if kind.is_decimal(type_) else interval(exp.Interval(this=Duration(this=text)))
    if kind.is_date(type_):
        return Literal(_iso(dt.date, text.strip(), "a date", "DATE '2024-01-31'"), type_)
    if kind.is_time(type_):
        return Literal(_iso(dt.time, text.strip().rpartition(" ")[2], "a time", "TIME '13:30:00'"), type_)
    return Literal(_timestamp(text, type_), type_) if kind.is_timestamp(type_) else None


def _read_number(text: str, type_: pa.DataType) -> Literal | None:
    """A number or a truth that is written as a text beside one."""
    if kind.is_boolean(type_) and text.strip().lower() in ("true", "false", "t", "f"):
        return Literal(text.strip().lower()[0] == "t", type_)
    if not (kind.is_integer(type_) or kind.is_floating(type_)):
        return None
    try:
        value = number(text.strip())
        return value if not kind.is_float32(type_) else Literal(float(np.float32(value.value)), pa.float64())
    except QueryError:
        raise QueryError(f"{_shown(text)} is not a number", hint="it is compared with one") from None


def _shown(text: str) -> str:
    return f"'{text}'" if len(text) <= 40 else f"'{text[:40]}…'"


def _iso(read: Any, text: str, what: str, example: str) -> Any:
    try:
        return read.fromisoformat(text)
    except ValueError:
        raise QueryError(f"{_shown(text)} is not {what}", hint=f"write for instance {example}") from None


def _timestamp(text: str, type_: pa.DataType) -> dt.datetime:
    value: dt.datetime = _iso(dt.datetime, text.strip(), "a timestamp", "TIMESTAMP '2024-01-31 13:30:00'")
    if type_.tz is None:
        if value.tzinfo is not None:
            raise QueryError(f"{_shown(text)} has a time zone, where none is expected", hint="leave the zone out")
        return value
    return value if value.tzinfo else value.replace(tzinfo=_zone(type_.tz))


def _zone(name: str) -> dt.tzinfo:
    """The zone of a timestamp type, which Arrow also writes as a fixed distance such as +02:00."""
    if name[:1] in "+-":
        return dt.datetime.strptime(name.replace(":", ""), "%z").tzinfo or dt.UTC
    return ZoneInfo(name)


def exact(text: str) -> Literal:
    """`DECIMAL '1.50'`: as many decimals as are written."""
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        value = Decimal("nan")
    if not value.is_finite():
        raise QueryError(f"{_shown(text)} is not a decimal number", hint="write for instance DECIMAL '1.50'")
    exponent = int(value.as_tuple().exponent)
    scale = max(0, -exponent)
    digits = max(len(value.as_tuple().digits) + max(0, exponent), scale)
    if digits > DECIMAL_DIGITS:
        raise QueryError(f"{_shown(text)} has more than {DECIMAL_DIGITS} digits")
    return Literal(value, pa.decimal128(digits, scale))


def typed_literal(text: str, name: TypeName) -> Literal | None:
    """`DATE '…'`, `TIMESTAMP '…'`, `DECIMAL '…'`: a constant of that type, or None for types that need a cast."""
    if name.this == "TIMESTAMP" and not name.args.get("zoned") and re.search(r":.*(Z|[+-]\d\d(:?\d\d)?)\s*$", text):
        return _read(text, TYPES["TIMESTAMPTZ"])
    type_ = arrow_type(name)
    if kind.is_decimal(type_) and name.expressions:
        return None
    return _read(text, type_)


def is_empty_list(value: Expression) -> bool:
    """Whether a list is written that has no elements but nulls, so that its type is not told."""
    if not isinstance(value, Call) or value.function != "list_value":
        return False
    return all(isinstance(part, Literal) and part.value is None for part in value.args)


def coerce(expression: Expression, type_: pa.DataType) -> Expression:
    """The expression in another type; constants change their type, anything else is cast."""
    if expression.type == type_:
        return expression
    if isinstance(expression, Literal):
        value = expression.value
        if value is None:
            return Literal(None, type_)
        if isinstance(value, int) and not isinstance(value, bool):
            if kind.is_float64(type_):
                return Literal(float(value), type_)
            if kind.is_decimal(type_) and abs(value) < 10 ** (type_.precision - type_.scale):
                return Literal(Decimal(value), type_)
    return Cast(expression, type_)
