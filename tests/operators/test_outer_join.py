"""Outer, semi and anti joins against their definition, instant by instant, and what they look at to find the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.algebra.windows import Hop
from midstream.operators import outer_join
from midstream.operators.elements import Elements
from midstream.operators.outer_join import OuterJoinOperator
from midstream.operators.state import segment
from midstream.operators.state.sorted_state import SortedState
from midstream.operators.sweep import union

LEFT = pa.schema([("k", pa.int64()), ("v", pa.int64())])
RIGHT = pa.schema([("j", pa.int64()), ("w", pa.int64())])
LONGEST = 20
KINDS = ("left", "right", "full", "semi", "anti")

Row = tuple[int | None, int, int, int]
"""A key, a value and the interval."""

rows = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.integers(0, 2), st.integers(0, 40), st.integers(1, LONGEST)),
    max_size=14,
).map(lambda drawn: sorted([(k, v, start, start + length) for k, v, start, length in drawn], key=lambda row: row[2]))


def elements(schema: pa.Schema, drawn: Sequence[Row]) -> Elements:
    columns = [pa.array([row[i] for row in drawn], pa.int64()) for i in (0, 1)]
    starts, ends = (np.array([row[i] for row in drawn], np.int64) for i in (2, 3))
    return Elements(pa.RecordBatch.from_arrays(columns, schema=schema), starts, ends)


def below(batch: pa.RecordBatch) -> Any:
    return pc.less(batch.column("v"), batch.column("w")).fill_null(False).to_numpy(zero_copy_only=False)


def made(kind: Any, slide: int = 5, residual: bool = False, nulls_equal: bool = False) -> OuterJoinOperator:
    sides = SortedState("left", ("k",), LEFT, LONGEST), SortedState("right", ("j",), RIGHT, LONGEST)
    condition: Any = below if residual else None
    schema = LEFT if kind in ("semi", "anti") else pa.schema([*LEFT, *RIGHT])
    node: Any = SimpleNamespace(schema=schema, grid=Hop(slide, slide), kind=kind, nulls_equal=nulls_equal)
    return OuterJoinOperator(node, sides, condition)


def snapshots(parts: Iterable[Elements]) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for part in parts:
        tuples = list(zip(*(column.to_pylist() for column in part.columns.columns), strict=True))
        for values, start, end in zip(tuples, part.valid_from.tolist(), part.valid_to.tolist(), strict=True):
            assert start < end
            found.update((instant, *values) for instant in range(start, end))
    return found


def expected(kind: str, left: Sequence[Row], right: Sequence[Row], residual: bool, nulls_equal: bool) -> Counter[Any]:
    found: Counter[Any] = Counter()

    def meet(a: Row, b: Row) -> bool:
        same = a[0] == b[0] and (nulls_equal or a[0] is not None)
        return same and (not residual or a[1] < b[1])

    for instant in range(0, 41 + LONGEST):
        here = [row for row in left if row[2] <= instant < row[3]]
        there = [row for row in right if row[2] <= instant < row[3]]
        pairs = [(a, b) for a in here for b in there if meet(a, b)]
        if kind in ("semi", "anti"):
            found.update((instant, *a[:2]) for a in here if any(meet(a, b) for b in there) == (kind == "semi"))
            continue
        found.update((instant, *a[:2], *b[:2]) for a, b in pairs)
        if kind in ("left", "full"):
            found.update((instant, *a[:2], None, None) for a in here if not any(meet(a, b) for b in there))
        if kind in ("right", "full"):
            found.update((instant, None, None, *b[:2]) for b in there if not any(meet(a, b) for a in here))
    return found


def run(
    works: OuterJoinOperator, left: Sequence[Row], right: Sequence[Row], frontiers: Sequence[int]
) -> list[Elements]:
    """Feeds rows as soon as they may come, frontier by frontier, through operators that are opened anew in between."""
    results: list[Elements] = []
    since = -1
    for frontier in [*sorted(frontiers), 100]:
        for port, (schema, drawn) in enumerate(((LEFT, left), (RIGHT, right))):
            batch = [row for row in drawn if since <= row[2] < frontier]
            if batch:
                assert works.process(port, elements(schema, batch)) is None
        before = works.passed
        given_now = list(works.advances(frontier))
        assert all(part.valid_from.min() >= before and part.valid_to.max() <= works.passed for part in given_now)
        results += given_now
        since = frontier
    return results


@given(
    st.sampled_from(KINDS),
    rows,
    rows,
    st.lists(st.integers(1, 50), max_size=5),
    st.booleans(),
    st.booleans(),
    st.sampled_from([(None, 4_000_000), (0, 4_000_000), (60, 3), (None, 1)]),
)
def test_every_kind_is_what_it_is_at_each_instant(kind, left, right, frontiers, residual, nulls_equal, limits):
    works = made(kind, residual=residual, nulls_equal=nulls_equal)
    works.most, works.at_once = limits
    assert snapshots(run(works, left, right, frontiers)) == expected(kind, left, right, residual, nulls_equal)


@given(st.sampled_from(KINDS), rows, rows, st.booleans())
def test_keys_whose_hashes_are_equal_do_not_meet(kind, left, right, residual):
    def same_for_all(columns: Sequence[pa.Array]) -> np.ndarray:
        return np.zeros(len(columns[0]), np.uint64)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segment, "hash_columns", same_for_all)
        works = made(kind, residual=residual)
        found = snapshots(run(works, left, right, [10, 20, 30]))
    assert found == expected(kind, left, right, residual, False)


def swept(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many intervals each sweep is given."""
    counts: list[int] = []

    def counted(groups: np.ndarray, starts: np.ndarray, ends: np.ndarray, without: Any = ()) -> Any:
        counts.append(len(groups) + sum(map(len, without[:1])))
        return union(groups, starts, ends, without)

    monkeypatch.setattr(outer_join, "union", counted)
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_a_slice_in_which_nothing_comes_or_goes_sweeps_nothing(kind, monkeypatch):
    counts = swept(monkeypatch)
    works = made(kind)
    works.process(0, elements(LEFT, [(k, 0, 0, 20) for k in range(50)]))
    works.process(1, elements(RIGHT, [(k, 0, 0, 20) for k in range(0, 50, 2)]))
    works.advance(5)
    before = len(counts)
    assert works.advance(10) is not None
    assert sum(counts[before:]) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_slice_sweeps_what_comes_and_goes_in_it(kind, monkeypatch):
    counts = swept(monkeypatch)
    works = made(kind)
    works.process(0, elements(LEFT, [(k, 0, 0, 20) for k in range(50)]))
    works.process(1, elements(RIGHT, [(k, 0, 0, 20) for k in range(0, 48, 2)]))
    works.process(1, elements(RIGHT, [(49, 0, 7, 20)]))
    works.advance(10)
    # The one element with its one partner: two intervals on a side.
    assert sum(counts) <= 2


def test_an_anti_join_looks_at_one_partner_where_that_is_enough():
    works = made("anti")
    works.process(0, elements(LEFT, [(1, v, 0, 20) for v in range(100)]))
    works.process(1, elements(RIGHT, [(1, v, 0, 1 + v % 11) for v in range(100)]))
    assert works.advance(5) is None
    assert works.work.matched == 100
