"""Duplicate elimination: what is given and kept is a union of intervals, however it was cut into pieces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.operators.distinct import CoverageState, DeduplicateOperator
from midstream.operators.elements import Elements
from midstream.operators.join import prepare
from midstream.operators.state.segment import make_segment

SCHEMA = pa.schema([("k", pa.int64())])
LONGEST = 12

Intervals = Sequence[tuple[int | None, int, int]]

intervals = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.integers(0, 60), st.integers(1, LONGEST)).map(
        lambda drawn: (drawn[0], drawn[1], drawn[1] + drawn[2])
    ),
    min_size=1,
    max_size=12,
)


def elements(rows: Intervals) -> Elements:
    columns = pa.RecordBatch.from_arrays([pa.array([k for k, _, _ in rows], pa.int64())], schema=SCHEMA)
    starts, ends = (np.array([row[i] for row in rows], np.int64) for i in (1, 2))
    return Elements(columns, starts, ends)


def covered(parts: list[Elements]) -> dict[int | None, list[int]]:
    """The instants of each tuple, once for each interval that holds it."""
    found: dict[int | None, list[int]] = {}
    for part in parts:
        for k, start, end in zip(part.columns.column(0).to_pylist(), part.valid_from, part.valid_to, strict=True):
            found.setdefault(k, []).extend(range(start, end))
    return {k: sorted(instants) for k, instants in found.items()}


def once(instants: dict[int | None, list[int]]) -> dict[int | None, list[int]]:
    return {k: sorted(set(some)) for k, some in instants.items()}


def operator(most_merged: int | None = None, longest: int | None = LONGEST) -> DeduplicateOperator:
    state = CoverageState("coverage", ("k",), SCHEMA, longest)
    state.most_merged = most_merged
    return DeduplicateOperator(SCHEMA, state)


@given(st.lists(intervals, min_size=1, max_size=12), st.sampled_from([None, 0, 200]), st.sampled_from([1, 2_048]))
def test_pieces_in_any_order_give_each_instant_once(pieces, most_merged, least_split):
    works = operator(most_merged)
    type(works.coverage).least_split, before = least_split, type(works.coverage).least_split
    try:
        given_out = []
        for number, piece in enumerate(pieces):
            if number % 3 == 2:
                # As after a restart: another operator with the same segments.
                again = operator(most_merged)
                again.coverage.replace_segments(works.coverage.segments)
                works = again
            result = works.process(0, elements(piece))
            given_out += [] if result is None else [result]
        everything = covered([elements(piece) for piece in pieces])
        assert covered(given_out) == once(everything)
        assert covered([works.coverage.current(-1)]) == once(everything)
    finally:
        type(works.coverage).least_split = before


@given(st.lists(intervals, min_size=1, max_size=6), intervals)
def test_intervals_that_lie_over_each_other_are_one(stored, asked):
    """The whole coverage of a tuple may be stored again, as it is when states of slots are put together."""
    works = operator()
    for born, part in enumerate(stored):
        rows = elements(part)
        kept, hashes = prepare(rows, tuple(rows.columns.schema.names), nulls_equal=True)
        works.coverage.segments.append(make_segment(kept, hashes, 0, born))
        works.coverage.compact(-1)
    known = once(covered([elements(part) for part in stored]))
    assert covered([works.coverage.current(-1)]) == known
    result = works.process(0, elements(asked))
    fresh = {k: [t for t in some if t not in known.get(k, [])] for k, some in once(covered([elements(asked)])).items()}
    assert covered([] if result is None else [result]) == {k: some for k, some in fresh.items() if some}


@pytest.mark.parametrize("longest", [1, 7, None])
def test_no_more_is_stored_than_given(longest):
    """Not the coverage of a tuple anew with each piece that has it, though no register moves."""
    works = operator(most_merged=0, longest=longest)
    given_out = 0
    for start in range(0, 2_000, 50):
        end = 10_000 if longest is None else None
        rows = [(t % 3, t, end or t + longest) for t in range(start, start + 50)]
        result = works.process(0, elements(rows))
        given_out += 0 if result is None else len(result)
    assert works.work.inserted == given_out
    # A piece looks up three tuples, in what it can overlap: nothing of what ended before.
    assert works.work.matched <= 3 * 40 * 4


def test_what_touches_becomes_one_when_segments_are_merged():
    works = operator(longest=1_000)
    for t in range(100):
        works.process(0, elements([(1, t, t + 10)]))
    assert works.coverage.rows < 10
    assert covered([works.coverage.current(-1)]) == {1: list(range(109))}
