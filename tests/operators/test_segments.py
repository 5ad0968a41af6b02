"""Looking hashes up in a segment, from either side."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.migration.marks import unmark_segment
from midstream.operators.elements import Elements
from midstream.operators.state import segment
from midstream.operators.state.portions import met
from midstream.operators.state.sorted_state import TIER, SortedState

HASHES = st.lists(st.integers(0, 12), max_size=30).map(lambda values: np.sort(np.array(values, np.uint64)))


@pytest.mark.parametrize("many", [0, 1_000])
@given(probes=HASHES, hashes=HASHES)
def test_every_probe_finds_its_run(many, probes, hashes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "MANY", many)
        found = segment.matches(probes, hashes)
    runs = [
        (i, *(np.flatnonzero(hashes == probe)[[0, -1]] + [0, 1])) for i, probe in enumerate(probes) if probe in hashes
    ]
    assert ([] if found is None else [tuple(run) for run in zip(*found, strict=True)]) == runs


def test_a_segment_with_other_columns_is_seen_and_counted_as_what_it_holds():
    columns = pa.record_batch({"a": [1, 2], "mark": [0, 1], "b": [7, 8]})
    ticks = np.array([1, 2])
    marked = segment.make_segment(Elements(columns, ticks, ticks + 5), np.array([3, 4], np.uint64), 0, 1)
    assert [seen.tolist() for seen in (marked.view(1), marked.view(2)) if seen is not None] == [[0, 1], [7, 8]]
    assert marked.bytes > 0
    without = unmark_segment(replace(marked, place="a place"), columns.select(["a", "b"]).schema)
    seen = without.view(1)
    assert seen is not None and seen.tolist() == [7, 8]
    assert without.bytes == marked.bytes - columns.column("mark").nbytes and without.place is None


@pytest.mark.parametrize("in_order", [False, True])
def test_a_batch_longer_than_the_window_falls_into_as_many_segments_as_its_rows_are_worth(in_order: bool) -> None:
    chance = np.random.default_rng(5)
    times, hashes = np.sort(chance.integers(0, 9_000, 7_000)), chance.integers(0, 40, 7_000, np.uint64) << np.uint64(30)
    if in_order:
        hashes = np.sort(hashes)
    state = SortedState("a", ("k",), pa.schema({"k": pa.uint64()}), 100)
    batch = Elements(pa.record_batch({"k": hashes}), times, times + 100)
    (state.append if in_order else state.insert)(batch, hashes)
    assert 1 < len(state.segments) <= 7_000 // state.least_split + 1
    kept = [s.elements for s in state.segments]
    assert all(s.hashes.tolist() == sorted(s.elements.columns.column("k").to_pylist()) for s in state.segments)
    assert all(earlier.valid_from.max() < later.valid_from.min() for earlier, later in pairwise(kept))
    found = [row for e in kept for row in zip(e.columns.column("k").to_pylist(), e.valid_from.tolist(), strict=True)]
    assert sorted(found) == sorted(zip(hashes.tolist(), times.tolist(), strict=True))
    assert all(s.elements.valid_from.max() // state.bucket_width <= s.bucket for s in state.segments)


def test_states_of_like_rows_are_not_all_merged_with_the_same_batch() -> None:
    def most_merged(ids: list[str]) -> int:
        """The rows that are merged with one batch of all that come to some states, at most."""
        schema, merged = pa.schema({"k": pa.int64()}), []
        states = [SortedState(name, ("k",), schema, 17_000) for name in ids]
        for batch in range(60):
            ticks = np.arange(batch * 1_000, batch * 1_000 + 1_000)
            elements = Elements(pa.record_batch([pa.array(ticks)], schema=schema), ticks, ticks + 17_000)
            merged.append(0)
            for state in states:
                state.append(elements, segment.numbering(1_000))
                before = {id(one) for one in state.segments}
                state.expire(batch * 1_000)
                state.compact(batch * 1_000, 1_000)
                merged[-1] += sum(len(one) for one in state.segments if id(one) not in before)
        return max(merged[20:])

    windows = [f"{stream} [RANGE 17000]" for stream in "ABCDEFGH"]
    assert most_merged(windows) < 0.7 * most_merged(windows[:1] * 8)


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_segments_stay_few_however_many_are_added_before_they_are_merged(at_once: int) -> None:
    for name in "abcd":
        state = SortedState(name, ("k",), pa.schema({"k": pa.uint64()}), None)
        for batch in range(60):
            for _ in range(at_once):
                ticks, hashes = np.full(8, batch), np.arange(8, dtype=np.uint64)
                state.append(Elements(pa.record_batch({"k": hashes}), ticks, ticks + 1_000), hashes)
            state.compact(batch, 8 * at_once)
            assert len(state.segments) <= 2 * TIER + 3 * TIER


@pytest.mark.parametrize(("lasting", "rewritten"), [(400, False), (4_000, True)])
def test_what_has_ended_is_removed_from_a_segment_unless_all_of_it_ends_soon(lasting: int, rewritten: bool) -> None:
    """Most rows are valid for 400 ticks, one in ten for longer: without those, segments go as a whole."""
    state, alone, sizes = SortedState("s", ("k",), pa.schema({"k": pa.uint64()}), 4_000), 0, list[int]()
    for batch in range(60):
        ticks, hashes = np.arange(batch * 100, batch * 100 + 100), np.arange(100, dtype=np.uint64)
        ends = ticks + np.where(hashes % 10 == 0, lasting, 400)
        state.append(Elements(pa.record_batch({"k": hashes}), ticks, ends), hashes)
        frontier, before = batch * 100, list(state.segments)
        state.expire(frontier)
        state.compact(frontier, 100)
        left = {id(one) for one in state.segments}
        gone = [one for one in before if one.latest_to > frontier and id(one) not in left]
        alone += len(gone) == 1
        sizes.append(state.rows)
    assert (alone > 0) is rewritten and max(sizes) <= 1_500  # of which 400 and 760 are valid


@given(
    mine=st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9)), max_size=6), max_size=4),
    theirs=st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=4),
    most=st.sampled_from([40, 100, 10_000]),
)
def test_what_is_met_has_a_hash_that_others_have_and_is_some_bytes_at_a_time(mine, theirs, most):
    def made(rows: list[tuple[int, int, int]]) -> segment.Segment:
        hashes = np.array([row[0] for row in sorted(rows)], np.uint64) << np.uint64(60)
        since = np.array([row[1] for row in sorted(rows)])
        ends = since + np.array([row[2] for row in sorted(rows)])
        return segment.make_segment(Elements(pa.record_batch({"v": since}), since, ends), hashes, 0, 1)

    here, there = (
        [made(rows) for rows in mine if rows],
        [made([(h, 0, 1) for h in hashes]) for hashes in theirs if hashes],
    )
    known, found = {h for hashes in theirs for h in hashes}, list(met(here, there, most)) if here and there else []
    rows = [row for part in found for row in zip(part.valid_from.tolist(), part.valid_to.tolist(), strict=True)]
    assert sorted(rows) == sorted((at, at + n) for rows in mine for h, at, n in rows if h in known)
    assert all(32 * len(part) <= max(most, 32) for part in found)  # a row is so many bytes
    assert most < 10_000 or len(found) <= 1
