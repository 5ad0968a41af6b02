"""Sums and deviations of floats are computed from the rows that are alive, never by taking others back."""

from __future__ import annotations

import math
from random import Random

import pyarrow as pa
import pytest

import midstream as ms

QUERY = """SELECT sum(x) AS s, avg(x) AS a, variance(x) AS v, var_pop(x) AS p, stddev(x) AS d, stddev_pop(x) AS e
FROM A [RANGE 5]"""


def table(values: list[float | None], apart: int = 1) -> pa.Table:
    return pa.table({"ts": [apart * i for i in range(len(values))], "x": pa.array(values, pa.float64())})


@pytest.mark.parametrize("batch_rows", [1, 4, 1000])
def test_values_that_are_gone_leave_no_trace(batch_rows: int) -> None:
    random = Random(1)
    values: list[float | None] = [
        random.choice([1e15, -1e12, 0.1, 0.2, 1e-9, None]) if i % 20 < 8 else random.random() / 1000 for i in range(200)
    ]
    inputs = {"A": table(values)}
    difference = ms.snapshot_equal(ms.run(QUERY, inputs, batch_rows=batch_rows), ms.reference(QUERY, inputs))
    assert difference, str(difference)


@pytest.mark.parametrize("emit_every", [1, 3, 1000])
def test_a_small_variance_beside_large_values_is_exact(emit_every: int) -> None:
    inputs = {"A": table([1e9, 1e9 + 4, None, None, None, None, None, 0.1, 0.2, 0.3])}
    found = ms.run(QUERY, inputs, emit_every=emit_every)
    last = [row for row in found.to_pylist() if row["valid_from"] <= 9 < row["valid_to"]]
    assert last[0]["v"] == pytest.approx(0.01, rel=1e-12)
    first = [row for row in found.to_pylist() if row["valid_from"] <= 1 < row["valid_to"]]
    assert first[0]["v"] == pytest.approx(8.0, rel=1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("batch_rows", [1, 1000])
def test_infinities_and_what_is_not_a_number_stay_where_they_are(batch_rows: int) -> None:
    inputs = {"A": table([1.0, math.inf, -math.inf, 2.0, math.nan, 3.0, 4.0, 5.0], apart=2)}
    difference = ms.snapshot_equal(ms.run(QUERY, inputs, batch_rows=batch_rows), ms.reference(QUERY, inputs))
    assert difference, str(difference)
