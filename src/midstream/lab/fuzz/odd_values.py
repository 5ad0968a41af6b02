"""Values at the edges of their types: not a number, infinities, both zeros, the largest integers and decimals."""

from __future__ import annotations

import sys
from dataclasses import replace
from decimal import Decimal
from math import inf, nan
from random import Random
from typing import Any

import pyarrow as pa

from midstream.lab.fuzz.cases import Case

FLOATS = (nan, inf, -inf, -0.0, 0.0, 5e-324, sys.float_info.max)
INTEGERS = (2**63 - 1, -(2**63), 0)
OFTEN = 0.3


def with_odd_values(case: Case, random: Random) -> Case:
    """The case with odd values among others; the oracle judges it, because databases differ about them."""
    return replace(case, inputs={name: _odd(table, random) for name, table in case.inputs.items()}, sql=None)


def _odd(table: pa.Table, random: Random) -> pa.Table:
    for place, field in enumerate(table.schema):
        choices = () if field.name in ("ts", "k") else _choices(field.type)
        if choices:
            values = [_or_odd(value, choices, random) for value in table.column(place).to_pylist()]
            table = table.set_column(place, field, pa.array(values, field.type))
    return table


def _choices(kind: pa.DataType) -> tuple[Any, ...]:
    if pa.types.is_decimal(kind):
        most = Decimal(10**kind.precision - 1).scaleb(-kind.scale)
        return (most, -most, Decimal(0))
    return FLOATS if pa.types.is_float64(kind) else INTEGERS if pa.types.is_int64(kind) else ()


def _or_odd(value: Any, choices: tuple[Any, ...], random: Random) -> Any:
    return random.choice(choices) if value is not None and random.random() < OFTEN else value
