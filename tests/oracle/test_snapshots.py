"""Comparing results: what counts as equal, and what is said about what does not."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import midstream as ms
from midstream.algebra.snapshots import multiset_equal, snapshot_equal


def relation(*rows: tuple[object, int, int | None], name: str = "v") -> pa.Table:
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[], [], []]
    return pa.table(
        {
            name: list(columns[0]),
            "valid_from": pa.array(columns[1], pa.int64()),
            "valid_to": pa.array(columns[2], pa.int64()),
        }
    )


def stream(*rows: tuple[object, int]) -> pa.Table:
    return pa.table({"v": [r[0] for r in rows], "ts": [r[1] for r in rows]})


def test_intervals_may_be_cut_differently() -> None:
    whole = relation((1, 0, 10), (1, 5, 15), (2, 0, None))
    pieces = relation((1, 0, 5), (1, 5, 15), (1, 5, 10), (2, 0, 3), (2, 3, None))
    crossed = relation((1, 0, 15), (1, 5, 10), (2, 0, None))
    assert snapshot_equal(whole, pieces)
    assert snapshot_equal(whole, crossed)
    assert not multiset_equal(whole, pieces)
    assert multiset_equal(whole, whole.take([2, 0, 1]))


def test_a_difference_names_the_first_instant_and_the_rows_there() -> None:
    x = relation(("a", 0, 10), ("b", 4, 9), ("b", 4, 9), ("c", 4, 8))
    y = relation(("a", 0, 10), ("c", 3, 8), ("b", 4, 9))
    found = snapshot_equal(x, y)
    assert not found
    assert (found.instant, found.only_in_x, found.only_in_y) == (3, (), ({"v": "c"},))
    found = snapshot_equal(x, y.set_column(1, "valid_from", pa.array([0, 4, 4])))
    assert (found.instant, found.only_in_x, found.only_in_y) == (4, ({"v": "b"},), ())
    assert str(found) == "snapshots differ first at 4\n  only in x: {'v': 'b'}"


def test_a_longer_validity_differs_where_the_shorter_ends() -> None:
    found = snapshot_equal(relation((1, 0, None)), relation((1, 0, 7)))
    assert (found.instant, found.only_in_x) == (7, ({"v": 1},))


def test_an_element_that_is_never_valid_counts_for_nothing() -> None:
    assert snapshot_equal(relation((1, 5, 5)), relation((1, 9, 3)))


def test_streams_are_compared_instant_by_instant() -> None:
    assert snapshot_equal(stream((1, 5), (2, 5), (1, 5)), stream((1, 5), (1, 5), (2, 5)))
    found = snapshot_equal(stream((1, 5), (1, 6)), stream((1, 5), (1, 5)))
    assert (found.instant, found.only_in_y) == (5, ({"v": 1},))


def test_a_selected_column_may_be_called_like_a_time_column() -> None:
    x = pa.Table.from_arrays([pa.array([1]), pa.array([5])], names=["ts", "ts"])
    y = pa.Table.from_arrays([pa.array([2]), pa.array([5])], names=["ts", "ts"])
    assert snapshot_equal(x, x)
    assert not snapshot_equal(x, y)


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (0.1 + 0.2, 0.3, True),
        (1e15, 1e15 * (1 + 1e-10), True),
        (1.0, 1.0 + 1e-8, False),
        (0.0, 1e-13, True),
        (0.0, 1e-9, False),
        (0.0, -0.0, True),
        (math.nan, math.nan, True),
        (math.nan, 0.0, False),
        (math.inf, math.inf, True),
        (math.inf, -math.inf, False),
        (math.inf, 1.7e308, False),
        (None, None, True),
        (None, 0.0, False),
        (None, math.nan, False),
    ],
)
def test_floats_are_equal_within_a_tolerance(a: float | None, b: float | None, equal: bool) -> None:
    x, y = (relation((v, 0, 5), (1.25, 1, 2)) for v in (a, b))
    assert bool(snapshot_equal(x, y)) is equal
    assert bool(multiset_equal(x, y)) is equal


def test_floats_that_differ_in_last_bits_are_matched_within_their_rows() -> None:
    x = pa.table({"k": ["a", "b"], "f": [0.1 + 0.2, 0.3], "valid_from": [0, 0], "valid_to": [1, 1]})
    y = pa.table({"k": ["b", "a"], "f": [0.1 + 0.2, 0.3], "valid_from": [0, 0], "valid_to": [1, 1]})
    assert snapshot_equal(x, y)
    swapped = y.set_column(1, "f", pa.array([0.4, 0.3]))
    assert snapshot_equal(x, swapped).only_in_x == ({"k": "b", "f": 0.3},)


def test_columns_are_matched_by_name() -> None:
    x = pa.table({"a": [1], "b": [2], "valid_from": [0], "valid_to": [1]})
    assert snapshot_equal(x, x.select(["valid_to", "b", "valid_from", "a"]))
    assert not snapshot_equal(x, x.rename_columns(["b", "a", "valid_from", "valid_to"]))
    found = snapshot_equal(x, x.drop_columns(["b"]))
    assert str(found) == "columns differ: x has a, b; y has a"


def test_ways_of_storage_do_not_matter_but_kinds_do() -> None:
    x = relation(("a", 0, 1))
    assert snapshot_equal(x, x.set_column(0, "v", x["v"].cast(pa.large_string())))
    assert snapshot_equal(x, x.set_column(0, "v", x["v"].dictionary_encode()))
    assert snapshot_equal(relation((1, 0, 1)), relation((1.0, 0, 1)))
    assert str(snapshot_equal(x, relation((1, 0, 1)))) == "column v is string in x and int64 in y"


def test_a_stream_is_not_a_relation() -> None:
    assert str(snapshot_equal(stream((1, 5)), relation((1, 5, 6)))).startswith("x is a stream")


def test_timestamps_compare_as_instants() -> None:
    moment = dt.datetime(2024, 3, 31, 1, tzinfo=dt.UTC)
    x, y = (
        pa.table({"v": [1], "ts": pa.array([moment], pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, zone))})
        for unit, zone in (("us", "UTC"), ("ms", "Europe/Berlin"))
    )
    assert snapshot_equal(x, y)
    found = snapshot_equal(x, y.slice(0, 0))
    assert found.instant == moment
    assert not snapshot_equal(x, stream((1, 5)))


def test_frames_are_welcome() -> None:
    x = relation((1, 0, None), (2, 3, 4))
    frame = x.to_pandas()
    assert math.isnan(frame["valid_to"][0])
    assert snapshot_equal(frame, x)
    assert snapshot_equal(x.to_batches()[0], x)
    assert not snapshot_equal(pd.concat([frame, frame]), x)


def test_a_polars_frame_is_welcome() -> None:
    polars = pytest.importorskip("polars")
    x = relation((1, 0, None), (2, 3, 4))
    assert snapshot_equal(polars.from_arrow(x), x)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (pa.table({"v": [1]}), "neither valid_from and valid_to nor ts"),
        (pa.table({"v": [1], "ts": pa.array([None], pa.int64())}), "null where a time must be"),
        (pa.table({"v": [1], "ts": ["soon"]}), "times that cannot be read"),
        ([1, 2], "not a table but a list"),
    ],
)
def test_what_is_no_result_is_refused(wrong: object, words: str) -> None:
    with pytest.raises(ms.InputError, match=words):
        snapshot_equal(wrong, stream((1, 5)))


def test_relations_without_columns_are_counted() -> None:
    x = relation((1, 0, 5), (1, 0, 5)).drop_columns(["v"])
    assert snapshot_equal(x, x)
    assert snapshot_equal(x, x.slice(0, 1)).only_in_x == ({},)


def test_nested_values_are_compared() -> None:
    x = relation(([1, 2], 0, 5), (None, 0, 5))
    assert snapshot_equal(x, x.take([1, 0]))
    assert not snapshot_equal(x, relation(([2, 1], 0, 5), (None, 0, 5)))


def test_large_results_are_compared_as_whole_columns() -> None:
    random = np.random.default_rng(7)
    start = random.integers(0, 10_000, 100_000)
    x = pa.table({"v": random.random(100_000), "valid_from": start, "valid_to": start + 50})
    shuffled = x.take(random.permutation(100_000))
    assert snapshot_equal(x, shuffled)
    assert not snapshot_equal(x, shuffled.slice(1))


values = st.sampled_from([0, 1, 2, None])
some = st.lists(st.tuples(values, st.integers(0, 9), st.integers(0, 12) | st.none()), max_size=6)


def snapshots(rows: list[tuple[object, int, int | None]]) -> list[Counter]:
    return [Counter(v for v, start, end in rows if start <= t and (end is None or t < end)) for t in range(14)]


@given(some, some)
def test_equality_is_equality_of_all_snapshots(x: list, y: list) -> None:
    left, right = (relation(*rows).cast(relation((1, 1, 1)).schema) for rows in (x, y))
    found = snapshot_equal(left, right)
    expected = next((t for t, (a, b) in enumerate(zip(snapshots(x), snapshots(y), strict=True)) if a != b), None)
    assert found.instant == expected
    assert bool(found) is (expected is None)
    if expected is not None:
        a, b = snapshots(x)[expected], snapshots(y)[expected]
        assert Counter(row["v"] for row in found.only_in_x) == a - b
        assert Counter(row["v"] for row in found.only_in_y) == b - a


@given(some, st.randoms(use_true_random=False))
def test_multisets_do_not_depend_on_order(rows: list, random) -> None:
    mixed = random.sample(rows, len(rows))
    schema = relation((1, 1, 1)).schema
    assert multiset_equal(relation(*rows).cast(schema), relation(*mixed).cast(schema))
