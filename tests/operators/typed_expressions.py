"""Random typed expressions over a batch of awkward values, bound as the language binds them."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

from midstream.algebra.expressions import Call, Case, Cast, Column, Expression, Literal
from midstream.algebra.functions import SCALAR, TRUNCATION_UNITS, common_type
from midstream.errors import QueryError

BERLIN = "Europe/Berlin"
NAN, INF = float("nan"), float("inf")


def _moments(*texts: str) -> list[Any]:
    return [None, *(dt.datetime.fromisoformat(t) for t in texts)]


_NAIVE = _moments("1970-01-01", "2024-02-29 23:59:59.999999", "1959-12-31 01:02:03.000004", "2050-07-01 12:30:00")
_ZONED = [
    None if m is None else m.replace(tzinfo=dt.UTC)
    for m in _moments(
        "2024-03-31 00:59:59.5",
        "2024-03-31 01:15:00",
        "2024-10-27 00:30:00",
        "2024-10-27 01:30:00.000001",
        "2050-07-01 23:30:00",
        "1965-01-01 10:00:00",
    )
]

VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [None, 0, 1, -1, 2, 7, -7, 15, -25, 10**18, 2**62, 2**63 - 1, -(2**63)],
    pa.int8(): [None, 0, 1, -1, 127, -128],
    pa.uint64(): [None, 0, 3, 2**63, 2**64 - 1],
    pa.float64(): [None, 0.0, -0.0, 1.5, 2.5, -2.5, 0.1, 2.675, 1e100, 1e18, 9.3e18, -1e-7, NAN, INF, -INF],
    pa.float32(): [None, 0.0, 0.5, -3.25, NAN],
    pa.decimal128(10, 2): [None, Decimal("0.00"), Decimal("1.25"), Decimal("-7.50"), Decimal("99999999.99")],
    pa.decimal128(38, 6): [None, Decimal("0.000001"), Decimal("-2.500000"), Decimal("9" * 32 + ".999999")],
    pa.string(): [
        *(None, "", "a", "abc", "ABC", " x ", "héllo wörld", "straße", "a.b.c", "a%b_c", "a\\b", "a\nb", "12", "-3"),
        *("+4", "1.5", ".5", "1e3", "nan", "true", "0", "2024-03-31", "2024-02-30", "2024-03-31 02:30:00"),
        *("2024-10-27T02:30", "2024-01-01 10:00:00.25", "2024-01-01 10:00:00+02:00", "99999999999999999999"),
    ],
    pa.bool_(): [None, True, False],
    pa.date32(): [None, dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(1959, 12, 31), dt.date(2024, 3, 31)],
    pa.timestamp("us"): _NAIVE,
    pa.timestamp("s"): [None if m is None else m.replace(microsecond=0) for m in _NAIVE],
    pa.timestamp("us", BERLIN): _ZONED,
    pa.timestamp("ns", BERLIN): _ZONED,
    pa.duration("us"): [None, dt.timedelta(0), dt.timedelta(days=1), dt.timedelta(microseconds=-3)],
}

NUMBERS = [t for t in VALUES if pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t)]
CLOCKS = [t for t in VALUES if pa.types.is_timestamp(t) or pa.types.is_date(t)]
TEXT, INTEGER, BOOLEAN, SPAN = pa.string(), pa.int64(), pa.bool_(), pa.duration("us")

SCHEMA = pa.schema([pa.field(f"c{i}", kind) for i, kind in enumerate(VALUES)])


def random_batch(chance: random.Random, rows: int) -> pa.RecordBatch:
    """A batch of awkward values of every type."""
    arrays = [pa.array([chance.choice(values) for _ in range(rows)], kind) for kind, values in VALUES.items()]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def random_expression(chance: random.Random, depth: int) -> Expression:
    """Any expression: of a random function, cast or choice."""
    while True:
        pick = chance.random()
        try:
            if pick < 0.2:
                return random_cast(chance, depth)
            if pick < 0.3:
                return _random_case(chance, depth)
            return random_call(chance, chance.choice(list(SCALAR)), depth)
        except QueryError:
            continue


def random_call(chance: random.Random, function: str, depth: int) -> Expression:
    """A call with arguments it takes, after the casts that its signature asks for."""
    while True:
        arguments = _arguments(chance, function, depth)
        try:
            return bound(function, *arguments)
        except QueryError:
            continue


def bound(function: str, *arguments: Expression) -> Call:
    """A call as the language binds it."""
    signature = SCALAR[function](tuple(a.type for a in arguments))
    cast = (a if a.type == t else Cast(a, t) for a, t in zip(arguments, signature.arguments, strict=True))
    return Call(function, tuple(cast), signature.result)


def random_cast(chance: random.Random, depth: int) -> Expression:
    """A cast between types that have one."""
    source = random_value(chance, chance.choice([TEXT, *NUMBERS, *CLOCKS, BOOLEAN]), depth)
    targets = [TEXT]
    if source.type == TEXT:
        targets = [INTEGER, pa.int8(), pa.float64(), pa.decimal128(10, 2), BOOLEAN, pa.date32(), *CLOCKS]
    elif source.type in NUMBERS or source.type == BOOLEAN:
        targets += [*NUMBERS, BOOLEAN, pa.decimal128(5, 1)]
    elif source.type in CLOCKS:
        targets += CLOCKS
    return Cast(source, chance.choice(targets), chance.random() < 0.6)


def random_value(chance: random.Random, kind: pa.DataType, depth: int) -> Expression:
    """An expression of a type: a column, a literal, or something deeper."""
    if depth > 0 and chance.random() < 0.5:
        for _ in range(20):
            found = random_expression(chance, depth - 1)
            if found.type == kind:
                return found
    if chance.random() < 0.3:
        return Literal(chance.choice(VALUES[kind]), kind)
    return Column(f"c{list(VALUES).index(kind)}", kind)


def _random_case(chance: random.Random, depth: int) -> Expression:
    kind = chance.choice(list(VALUES))
    branches = tuple(
        (random_value(chance, BOOLEAN, depth), random_value(chance, kind, depth)) for _ in range(chance.randint(1, 2))
    )
    return Case(branches, random_value(chance, kind, depth))


_COMPARED = ("=", "<>", "<", "<=", ">", ">=", "is_distinct_from", "is_not_distinct_from", "nullif")
_SMALL = [Literal(n, INTEGER) for n in (None, 0, 1, 2, 3, -1, -2, 100)]


def _arguments(chance: random.Random, function: str, depth: int) -> list[Expression]:
    def some(*kinds: pa.DataType) -> Expression:
        return random_value(chance, chance.choice(kinds), depth)

    def small() -> Expression:
        return chance.choice(_SMALL) if chance.random() < 0.8 else some(pa.int8())

    def text() -> Expression:
        return some(TEXT)

    match function:
        case "and" | "or":
            return [some(BOOLEAN) for _ in range(chance.randint(2, 3))]
        case "not":
            return [some(BOOLEAN)]
        case "is_null":
            return [some(*VALUES)]
        case "+" | "-" if chance.random() < 0.4:
            return chance.choice(
                [[some(*CLOCKS), some(SPAN)], [some(*CLOCKS), some(*CLOCKS)], [some(SPAN), some(SPAN)]]
            )
        case "+" | "-" | "*" | "/" | "%" | "power":
            return [some(*NUMBERS), some(*NUMBERS)]
        case "concat":
            return [some(TEXT, *NUMBERS, *CLOCKS, BOOLEAN) for _ in range(chance.randint(1, 3))]
        case "in" | "coalesce" | "greatest" | "least":
            first = some(*VALUES)
            return [first, *_alike(chance, first.type, chance.randint(1, 3), depth)]
        case _ if function in _COMPARED:
            first = some(*VALUES)
            return [first, *_alike(chance, first.type, 1, depth)]
        case "round" if chance.random() < 0.7:
            return [some(*NUMBERS), small()]
        case "negate" | "abs" | "ceil" | "floor" | "round" | "sign" | "sqrt" | "exp" | "ln" | "log10":
            return [some(*NUMBERS)]
        case "substring":
            return [text(), small(), *([small()] if chance.random() < 0.6 else [])]
        case "left" | "right":
            return [text(), small()]
        case "replace":
            return [text(), text(), text()]
        case "regexp_matches":
            return [text(), Literal(chance.choice(["a", "^a.c$", "[0-9]+", "b|c", "ö"]), TEXT)]
        case "date_trunc":
            return [Literal(chance.choice(TRUNCATION_UNITS), TEXT), some(*CLOCKS)]
        case "year" | "month" | "day" | "hour" | "minute" | "second" | "dayofweek" | "dayofyear" | "epoch" | "epoch_ms":
            return [some(*CLOCKS)]
        case "upper" | "lower" | "length" | "trim" | "ltrim" | "rtrim" | "reverse":
            return [text()]
        case _:
            return [text(), text()]


def _alike(chance: random.Random, kind: pa.DataType, count: int, depth: int) -> list[Expression]:
    kinds = [t for t in VALUES if common_type(kind, t) is not None]
    return [random_value(chance, chance.choice(kinds), depth) for _ in range(count)]
