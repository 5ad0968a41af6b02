"""Sums of decimals: exact at every width, whichever way they are computed."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pytest

import midstream as ms

SUMS = (
    "SELECT g, sum(m) AS total, sum(DISTINCT m) AS once, sum(m) FILTER (WHERE m > 0) AS gained"
    " FROM A [RANGE 20] GROUP BY g"
)


@pytest.mark.parametrize("digits", [2, 17, 18, 19, 27, 35])
def test_decimals_are_summed_to_the_last_digit(digits: int) -> None:
    draw = random.Random(digits)
    top = 10**digits
    amounts = [None if draw.random() < 0.1 else Decimal(draw.randrange(-top, top)).scaleb(-2) for _ in range(120)]
    rows = pa.table(
        {
            "ts": sorted(draw.randrange(100) for _ in amounts),
            "g": [draw.randrange(3) for _ in amounts],
            "m": pa.array(amounts, pa.decimal128(38, 2)),
        }
    )
    assert ms.snapshot_equal(ms.run(SUMS, {"A": rows}, batch_rows=37), ms.reference(SUMS, {"A": rows}))


def test_a_sum_wider_than_its_type_is_an_error() -> None:
    rows = pa.table({"ts": [1, 2], "m": pa.array([Decimal("9" * 38), Decimal(1)], pa.decimal128(38, 0))})
    with pytest.raises(ms.InputError, match="decimal overflow"):
        ms.run("SELECT sum(m) AS total FROM A [RANGE 20]", {"A": rows})
