"""The total order of rows and the grouping of equal ones."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operators.columns import AWKWARD, NESTED, random_columns, rows_of

from midstream.algebra.semantics.values import row_identity, row_order
from midstream.errors import InternalError
from midstream.operators.ordering import group_rows, groups_by, numbers_by, order_by, total_order

seeds = st.integers(0, 2**32)


@given(seeds)
def test_the_total_order_is_that_of_the_oracle(seed: int) -> None:
    chance = random.Random(seed)
    length = chance.randint(0, 25)
    columns = random_columns(chance, length, AWKWARD | NESTED)
    leading = [np.array([chance.randint(0, 4) for _ in range(length)]) for _ in range(chance.randint(0, 2))]
    if leading and chance.random() < 0.5:
        leading[0].sort()
    rows = rows_of(columns)
    expected = sorted(range(length), key=lambda i: (*(int(a[i]) for a in leading), row_order(rows[i])))
    order = total_order(columns, leading)
    assert (list(range(length)) if order is None else order.tolist()) == expected


def drawn_key(chance: random.Random, length: int) -> np.ndarray:
    """Numbers of some kind: few or many different ones, near the ends of what the kind can hold too."""
    kind = chance.choice([np.bool_, np.int32, np.int64, np.uint64, np.float64])
    if kind in (np.bool_, np.float64):
        return np.array([chance.choice([0, 1, 2.5]) for _ in range(length)]).astype(kind)
    limits = np.iinfo(kind)
    low = chance.choice([limits.min, 0, limits.max - 3])
    high = chance.choice([min(low + 3, limits.max), limits.max])
    return np.array([chance.randint(low, high) for _ in range(length)], kind)


@given(seeds)
def test_several_keys_sort_positions_as_one_after_the_other_do(seed: int) -> None:
    chance = random.Random(seed)
    length = chance.randint(1, 40)
    keys = [drawn_key(chance, length) for _ in range(chance.randint(1, 4))]
    assert order_by(keys).tolist() == sorted(range(length), key=lambda i: [key[i].item() for key in keys])


def test_a_strictly_increasing_leading_array_needs_no_sorting() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([3, 2, 1])], ["a"])
    assert total_order(batch, [np.array([1, 2, 3])]) is None
    assert total_order(batch, [np.array([1, 2, 2])]).tolist() == [0, 2, 1]  # type: ignore[union-attr]
    assert total_order(batch).tolist() == [2, 1, 0]  # type: ignore[union-attr]


def test_equal_rows_keep_their_order() -> None:
    assert total_order([pa.array([1, 1, 1])], [np.array([0, 0, 0])]) is None
    order = total_order([pa.array(["b", "a", "b", "a"])])
    assert order is not None
    assert order.tolist() == [1, 3, 0, 2]


def test_rows_without_columns_are_sorted_by_what_leads() -> None:
    order = total_order([], [np.array([2, 1])])
    assert order is not None
    assert order.tolist() == [1, 0]
    assert total_order([], [np.array([1, 1])]) is None
    assert total_order([]) is None


@given(seeds)
def test_rows_are_grouped_exactly_by_equality(seed: int) -> None:
    columns = random_columns(random.Random(seed), 25, AWKWARD | NESTED)
    groups, first = group_rows(columns)
    rows = [row_identity(row) for row in rows_of(columns)]
    appearance = list(dict.fromkeys(rows))
    assert groups.tolist() == [appearance.index(row) for row in rows]
    assert first.tolist() == [rows.index(row) for row in appearance]


@given(seeds)
def test_rows_have_equal_numbers_where_they_are_equal(seed: int) -> None:
    chance = random.Random(seed)
    columns = [*random_columns(chance, 25, AWKWARD), *(pa.array(drawn_key(chance, 25)) for _ in range(2))]
    chosen = chance.sample(columns, chance.randint(0, 2))
    rows = pa.RecordBatch.from_arrays([pa.array(range(25)), *chosen], names=["row", *map(str, range(len(chosen)))])
    numbers = numbers_by(rows, rows.schema.names[1:])
    groups = groups_by(rows, rows.schema.names[1:])[0]
    assert len(set(zip(numbers.tolist(), groups.tolist(), strict=True))) == len(set(groups.tolist()))
    assert set(numbers.tolist()) <= set(range(26))


def test_many_columns_of_many_values_do_not_overflow_their_codes() -> None:
    length = 3000
    chance = np.random.default_rng(7)
    columns = [pa.array(chance.permutation(length)) for _ in range(8)]
    doubled = [pa.concat_arrays([c, c]) for c in columns]
    groups, first = group_rows(doubled)
    assert len(first) == length
    assert (groups[:length] == groups[length:]).all()


def test_no_rows_form_no_groups() -> None:
    groups, first = group_rows([pa.array([], pa.int64()), pa.array([], pa.string())])
    assert len(groups) == len(first) == 0
    with pytest.raises(InternalError):
        group_rows([])
