"""Sums of floats come of the rows that are alive; variances and deviations are exact, and rounded once."""

from __future__ import annotations

import math
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.profiles import examples

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


SPREAD = """SELECT k, sum(x) AS s, variance(x) AS v, var_pop(x) AS p, stddev(x) AS d, stddev_pop(x) AS e
FROM A [RANGE 5] GROUP BY k"""
NO_SUM = SPREAD.replace("sum(x) AS s, ", "")
NUMBERS = (
    st.sampled_from([1e200, -1e200, 3.0, 0.1, 0.2, 1e-300, 5e-324, 1.7e308, -0.0, 1e15 + 0.125, math.inf, math.nan])
    | st.floats(-1e3, 1e3, allow_subnormal=False)
    | st.floats()
)
WHOLE = (
    st.integers(-3, 3)
    | st.integers(17 * 10**17, 17 * 10**17 + 5)
    | st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1])
    | st.integers(-(2**63), 2**63 - 1)
)


def bits(found: pa.Table) -> list[tuple[object, ...]]:
    """What holds at each instant, every float to its last bit."""
    rows = []
    for row in found.to_pylist():
        start, end = row.pop("valid_from"), row.pop("valid_to")
        shown = tuple(v.hex() if isinstance(v, float) else v for v in row.values())
        rows += [(instant, *map(str, shown)) for instant in range(start, end)]
    return sorted(rows)


@examples(80)
@given(st.data())
def test_sums_and_variances_are_exact_to_the_last_bit(data: st.DataObject) -> None:
    kind, numbers = data.draw(st.sampled_from([(pa.float64(), NUMBERS), (pa.int64(), WHOLE)]))
    values = data.draw(st.lists(st.none() | numbers, max_size=12))
    rows = pa.table(
        {
            "ts": pa.array(sorted(data.draw(st.integers(0, 12)) for _ in values), pa.int64()),
            "k": pa.array([data.draw(st.integers(0, 1)) for _ in values], pa.int64()),
            "x": pa.array(values, kind),
        }
    )
    query = SPREAD if kind == pa.float64() else NO_SUM  # sums of these integers do not fit
    found = ms.run(
        query,
        {"A": rows},
        batch_rows=data.draw(st.integers(1, 12)),
        emit_every=data.draw(st.sampled_from([1, 3, 1000])),
    )
    assert bits(found) == bits(ms.reference(query, {"A": rows}))


def test_many_rows_of_any_size_have_the_bits_of_the_exact_variance() -> None:
    random = Random(3)
    draws = [random.random, lambda: random.gauss(1e9, 1e-3), lambda: float(random.randrange(100))]
    draws += [lambda: random.gauss(0, 1) * 10 ** random.randrange(-12, 12)]
    for draw in draws:
        values = [draw() for _ in range(500)]
        inputs = {"A": pa.table({"ts": [i // 100 for i in range(500)], "k": [i % 3 for i in range(500)], "x": values})}
        assert bits(ms.run(SPREAD, inputs, batch_rows=90)) == bits(ms.reference(SPREAD, inputs))


@pytest.mark.parametrize("function", ["sum", "avg", "variance", "stddev_pop"])
def test_what_the_same_rows_give_neither_leaves_nor_enters(function: str) -> None:
    for seed in range(12):
        random = Random(seed)
        values = [random.choice([0.1, 0.2, 0.3, 0.7, 1e3 / 3]) for _ in range(40)]
        inputs = {"A": pa.table({"ts": sorted(random.randrange(60) for _ in values), "x": values})}
        query = f"SELECT ISTREAM {function}(x) AS s FROM A [RANGE 9]"
        found = ms.run(query, inputs, emit_every=4, batch_rows=5)
        assert found["s"].to_pylist() == ms.reference(query, inputs)["s"].to_pylist()
