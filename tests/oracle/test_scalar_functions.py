"""Every scalar function of the language against values worked out by hand, nulls included."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import midstream as ms
from midstream.algebra import functions
from midstream.algebra.expressions import Call, walk
from midstream.algebra.plan import Project, walk_plan
from midstream.algebra.semantics.aggregates import AGGREGATE
from midstream.algebra.semantics.definitions import DEFINED
from midstream.inputs import catalog_of
from midstream.language import parse

LEAP_DAY = dt.datetime(2024, 2, 29, 13, 45, 59, 250000)
ROW = pa.table(
    {
        "ts": [1],
        "i": [7],
        "j": [-2],
        "z": [0],
        "f": [2.5],
        "g": [-2.5],
        "nan": [math.nan],
        "s": ["Hello"],
        "e": ["zoë"],
        "yes": [True],
        "no": [False],
        "m": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
        "d": [dt.date(2024, 2, 29)],
        "t": pa.array([LEAP_DAY], pa.timestamp("us")),
        "tz": pa.array([LEAP_DAY], pa.timestamp("us", "America/New_York")),
        "x": pa.array([b"\x00\xff"], pa.binary()),
        "ni": pa.array([None], pa.int64()),
        "nf": pa.array([None], pa.float64()),
        "ns": pa.array([None], pa.string()),
        "nb": pa.array([None], pa.bool_()),
        "nt": pa.array([None], pa.timestamp("us")),
        "big": [2**63 - 1],
    }
)


def value(expression: str) -> Any:
    """What the oracle says an expression is over the row."""
    return ms.reference(f"SELECT {expression} AS it FROM S [NOW]", {"S": ROW})["it"][0].as_py()


ARITHMETIC = {
    "i + j": 5,
    "i - j": 9,
    "i * j": -14,
    "-i": -7,
    "- j": 2,
    "i / j": -3.5,
    "i / z": None,
    "f / 0.0": None,
    "i % j": 1,
    "j % i": -2,
    "i % z": None,
    "g % 2.0": -0.5,
    "f % 0.0": None,
    "i + f": 9.5,
    "m + 1": Decimal("2.50"),
    "m - m": Decimal("0.00"),
    "m * m": Decimal("2.2500"),
    "m / 2": 0.75,
    "m / z": None,
    "m % 1": Decimal("0.50"),
    "m + f": 4.0,
    "-m": Decimal("-1.50"),
    "i + ni": None,
    "ni / z": None,
    "-ni": None,
    "abs(j)": 2,
    "abs(g)": 2.5,
    "abs(-m)": Decimal("1.50"),
    "abs(ni)": None,
    "ceil(f)": 3.0,
    "ceil(g)": -2.0,
    "ceil(i)": 7,
    "ceil(m)": Decimal("2.00"),
    "ceil(-m)": Decimal("-1.00"),
    "floor(-m)": Decimal("-2.00"),
    "round(m)": Decimal("2.00"),
    "round(-m)": Decimal("-2.00"),
    "round(m, 1)": Decimal("1.50"),
    "round(m * 1000, -3)": Decimal("2000.00"),
    "round(CAST(9.99 AS DECIMAL(3, 2)), 1)": Decimal("10.00"),
    "floor(f)": 2.0,
    "floor(g)": -3.0,
    "floor(nf)": None,
    "round(f)": 3.0,
    "round(g)": -3.0,
    "round(0.49)": 0.0,
    "round(i)": 7,
    "round(2.675, 2)": 2.68,
    "round(-1.25, 1)": -1.3,
    "round(1234.5, -2)": 1200.0,
    "round(1250, -2)": 1300,
    "round(-1250, -2)": -1300,
    "round(nf)": None,
    "sqrt(6.25)": 2.5,
    "sqrt(g)": None,
    "sqrt(nf)": None,
    "exp(0.0)": 1.0,
    "exp(1000.0)": math.inf,
    "exp(nf)": None,
    "ln(1.0)": 0.0,
    "ln(0.0)": None,
    "ln(g)": None,
    "log10(1000.0)": 3.0,
    "log10(z)": None,
    "power(2, 10)": 1024.0,
    "power(f, 2)": 6.25,
    "power(0, -1)": math.inf,
    "power(nf, 2)": None,
    "sign(j)": -1,
    "sign(z)": 0,
    "sign(f)": 1.0,
    "sign(ni)": None,
}

LOGIC = {
    "yes AND no": False,
    "yes AND nb": None,
    "no AND nb": False,
    "nb AND no": False,
    "yes OR nb": True,
    "nb OR yes": True,
    "no OR nb": None,
    "NOT yes": False,
    "NOT nb": None,
    "i = 7": True,
    "i = ni": None,
    "ni = ni": None,
    "i <> j": True,
    "i < j": False,
    "j <= -2": True,
    "i > 6.5": True,
    "m >= 1.5": True,
    "m = 1.5": True,
    "s = 'Hello'": True,
    "s < 'a'": True,
    "yes > no": True,
    "d = '2024-02-29'": True,
    "d < t": True,
    "t >= TIMESTAMP '2024-02-29 13:45:59.25'": True,
    "nan = nan": False,
    "nan <> nan": True,
    "nan > 1.0": False,
    "ni IS NULL": True,
    "i IS NULL": False,
    "i IS NOT NULL": True,
    "i IN (1, 7)": True,
    "i IN (1, 2)": False,
    "i IN (1, NULL)": None,
    "i IN (7, NULL)": True,
    "i NOT IN (1, NULL)": None,
    "ni IN (1, 2)": None,
    "i BETWEEN 7 AND 8": True,
    "i BETWEEN 8 AND ni": False,
    "i BETWEEN 6 AND ni": None,
    "s LIKE 'H%o'": True,
    "s LIKE 'h%'": False,
    "s LIKE 'H_llo'": True,
    "s LIKE '_'": False,
    "s LIKE ns": None,
    "s ILIKE 'h%'": True,
    "s NOT LIKE '%z%'": True,
    "ni IS DISTINCT FROM NULL": False,
    "i IS DISTINCT FROM NULL": True,
    "nan IS DISTINCT FROM nan": False,
    "ni IS NOT DISTINCT FROM ni": True,
    "i IS NOT DISTINCT FROM 8": False,
    "coalesce(ni, i, j)": 7,
    "coalesce(ni, ni)": None,
    "nullif(i, 7)": None,
    "nullif(i, 8)": 7,
    "nullif(i, ni)": 7,
    "nullif(ni, 7)": None,
    "greatest(i, ni, 9)": 9,
    "greatest(ni, ni)": None,
    "greatest('b', 'a')": "b",
    "least(i, ni, 9)": 7,
    "least(f, nan)": 2.5,
    "CASE WHEN nb THEN 1 WHEN yes THEN 2 ELSE 3 END": 2,
    "CASE WHEN no THEN 1 END": None,
    "CASE i WHEN 6 THEN 'six' WHEN 7 THEN 'seven' END": "seven",
    "CASE WHEN z = 0 THEN 0 ELSE CAST(s AS BIGINT) END": 0,
    "no AND CAST(s AS BIGINT) = 1": False,
}

TEXT = {
    "s || '!'": "Hello!",
    "s || ns": None,
    "concat(s, ns, '!', i)": "Hello!7",
    "concat(ns)": "",
    "upper(s)": "HELLO",
    "lower(s)": "hello",
    "length(e)": 3,
    "length(ns)": None,
    "trim('  a b ')": "a b",
    "ltrim('  a ')": "a ",
    "rtrim('  a ')": "  a",
    "substring(s, 2)": "ello",
    "substring(s, 2, 3)": "ell",
    "substring(s, 0, 2)": "H",
    "substring(s, -1, 3)": "o",
    "substring(s, -5, 2)": "He",
    "substring(s, 9, 2)": "",
    "substring(s, 4, 99)": "lo",
    "substring(ns, 1)": None,
    "replace(s, 'l', 'LL')": "HeLLLLo",
    "replace(s, '', 'x')": "Hello",
    "starts_with(s, 'He')": True,
    "ends_with(s, 'He')": False,
    "contains(s, 'll')": True,
    "contains(s, ns)": None,
    "strpos(e, 'ë')": 3,
    "strpos(s, 'x')": 0,
    "left(s, 2)": "He",
    "left(s, 0)": "",
    "left(s, -2)": "Hel",
    "right(s, 2)": "lo",
    "right(s, 0)": "",
    "right(s, -2)": "llo",
    "right(s, 99)": "Hello",
    "reverse(e)": "ëoz",
    "lpad(s, 8, '12')": "121Hello",
    "lpad(s, 3, 'x')": "Hel",
    "rpad(s, 8, '12')": "Hello121",
    "rpad(s, 3, 'x')": "Hel",
    "rpad(s, 0, 'x')": "",
    "split_part('a,b,c', ',', 2)": "b",
    "split_part('a,b,c', ',', 4)": "",
    "split_part(ns, ',', 1)": None,
    "regexp_matches(s, 'l+o$')": True,
    "regexp_matches(s, '^l')": False,
    "regexp_matches(ns, 'l')": None,
}

TIME = {
    "year(t)": 2024,
    "month(t)": 2,
    "day(d)": 29,
    "hour(t)": 13,
    "hour(tz)": 8,
    "minute(t)": 45,
    "second(t)": 59,
    "dayofweek(d)": 4,
    "dayofweek(DATE '2024-03-03')": 0,
    "dayofyear(t)": 60,
    "year(nt)": None,
    "epoch(t)": 1709214359.25,
    "epoch_ms(tz)": 1709214359250,
    "epoch(TIMESTAMP '1969-12-31 23:59:59.5')": -0.5,
    "epoch_ms(TIMESTAMP '1969-12-31 23:59:59.9995')": -1,
    "date_trunc('hour', t)": dt.datetime(2024, 2, 29, 13),
    "date_trunc('week', t)": dt.datetime(2024, 2, 26),
    "date_trunc('quarter', t)": dt.datetime(2024, 1, 1),
    "date_trunc('millisecond', t)": dt.datetime(2024, 2, 29, 13, 45, 59, 250000),
    "date_trunc('month', d)": dt.datetime(2024, 2, 1),
    "date_trunc('year', nt)": None,
    "strftime(t, '%Y-%m %H')": "2024-02 13",
    "strftime(tz, '%H:%M')": "08:45",
    "strftime(nt, '%Y')": None,
    "t + INTERVAL '90 minutes'": dt.datetime(2024, 2, 29, 15, 15, 59, 250000),
    "d - INTERVAL '1 day'": dt.datetime(2024, 2, 28),
    "t - TIMESTAMP '2024-02-29 13:45:59'": dt.timedelta(milliseconds=250),
    "t - d": dt.timedelta(hours=13, minutes=45, seconds=59, milliseconds=250),
    "nt - t": None,
}

CASTS = {
    "CAST(2.9 AS BIGINT)": 2,
    "CAST(-2.9 AS BIGINT)": -2,
    "CAST(m AS BIGINT)": 1,
    "CAST(yes AS INT)": 1,
    "CAST('-12' AS BIGINT)": -12,
    "CAST('1.5e2' AS DOUBLE)": 150.0,
    "CAST('2.50' AS DECIMAL(10, 1))": Decimal("2.5"),
    "CAST(2.25 AS DECIMAL(10, 1))": Decimal("2.3"),
    "CAST('true' AS BOOLEAN)": True,
    "CAST(z AS BOOLEAN)": False,
    "CAST('2024-02-29' AS DATE)": dt.date(2024, 2, 29),
    "CAST('2024-02-29 13:45' AS TIMESTAMP)": dt.datetime(2024, 2, 29, 13, 45),
    "CAST('2024-02-29T13:45:59.25' AS TIMESTAMP)": LEAP_DAY,
    "CAST(t AS DATE)": dt.date(2024, 2, 29),
    "CAST(d AS TIMESTAMP)": dt.datetime(2024, 2, 29),
    "CAST(i AS VARCHAR)": "7",
    "CAST(f AS VARCHAR)": "2.5",
    "CAST(1.0 AS VARCHAR)": "1.0",
    "CAST(1e20 AS VARCHAR)": "1e+20",
    "CAST(m AS VARCHAR)": "1.50",
    "CAST(yes AS VARCHAR)": "true",
    "CAST(d AS VARCHAR)": "2024-02-29",
    "CAST(t AS VARCHAR)": "2024-02-29 13:45:59.25",
    "CAST(tz AS VARCHAR)": "2024-02-29 08:45:59.25",
    "CAST(TIMESTAMP '2024-02-29 13:45:00' AS VARCHAR)": "2024-02-29 13:45:00",
    "CAST(ns AS BIGINT)": None,
    "TRY_CAST(s AS BIGINT)": None,
    "TRY_CAST('300' AS TINYINT)": None,
    "TRY_CAST(1e300 AS BIGINT)": None,
    "TRY_CAST(nan AS BIGINT)": None,
    "TRY_CAST('2023-02-29' AS DATE)": None,
    "TRY_CAST('12:00' AS TIMESTAMP)": None,
    "TRY_CAST('maybe' AS BOOLEAN)": None,
    "TRY_CAST('noon' AS TIME)": None,
    "TRY_CAST('x' AS UUID)": None,
    "TRY_CAST('[1' AS INT[])": None,
    "TRY_CAST('12' AS BIGINT)": 12,
}


@pytest.mark.parametrize(("expression", "expected"), [*({**ARITHMETIC, **LOGIC, **TEXT, **TIME, **CASTS}).items()])
def test_an_expression_is_what_it_should_be(expression: str, expected: Any) -> None:
    found = value(expression)
    assert found == expected
    assert type(found) is type(expected)


def test_time_with_a_zone_is_cut_on_the_zones_clock() -> None:
    midnight = value("date_trunc('day', tz)")
    assert (midnight.hour, midnight.utcoffset()) == (0, dt.timedelta(hours=-5))


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("big + 1", "integer overflow"),
        ("big * 2", "integer overflow"),
        ("abs(-big - 1)", "integer overflow"),
        ("CAST(s AS BIGINT)", "'Hello' is not a whole number"),
        ("CAST(1e300 AS BIGINT)", "out of the range"),
        ("CAST(i * 100 AS TINYINT)", "out of the range"),
        ("CAST(s AS DATE)", "'Hello' is not a date"),
    ],
)
def test_what_does_not_fit_is_an_error(expression: str, words: str) -> None:
    with pytest.raises(ms.InputError, match=words):
        value(expression)


def test_the_oracle_defines_every_function_of_the_language() -> None:
    assert set(functions.SCALAR) <= DEFINED
    assert set(functions.AGGREGATE) <= set(AGGREGATE)


def test_every_function_of_the_language_is_tested_here() -> None:
    catalog = catalog_of({"S": ROW.schema}, "ts")
    seen: set[str] = set()
    for expression in {**ARITHMETIC, **LOGIC, **TEXT, **TIME}:
        for node in walk_plan(parse(f"SELECT {expression} AS it FROM S [NOW]", catalog)):
            if isinstance(node, Project):
                seen |= {e.function for c in node.columns for e in walk(c.expression) if isinstance(e, Call)}
    assert set(functions.SCALAR) <= seen


def test_a_users_function_gets_arrow_arrays() -> None:
    def double(array: pa.Array) -> pa.Array:
        return pa.array([None if v is None else v * 2 for v in array.to_pylist()], pa.int64())

    twice = ms.ScalarFunction("twice", double, pa.int64())
    found = ms.reference("SELECT twice(i) AS a, twice(ni) AS b FROM S [NOW]", {"S": ROW}, functions=[twice])
    assert found.select(["a", "b"]).to_pylist() == [{"a": 14, "b": None}]
