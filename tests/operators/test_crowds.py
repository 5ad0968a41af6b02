"""Large segments are merged by ranges of hashes, a few rows with each batch, and hold what they would hold at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.operators.elements import Elements, Hashes, Indices
from midstream.operators.hashing import hash_order
from midstream.operators.state import segment as segments_module
from midstream.operators.state import sorted_state
from midstream.operators.state.crowds import lowest_crowd, overlapping
from midstream.operators.state.segment import Segment, Sought, make_segment, matches
from midstream.operators.state.sorted_state import TIER, Allowance, SortedState

SCHEMA = pa.schema({"h": pa.uint64()})
HASHES = st.lists(st.integers(0, 40).map(lambda n: n << 58), min_size=1, max_size=20)


def segment_of(values: list[int], born: int) -> Segment:
    hashes = np.sort(np.array(values, np.uint64))
    ticks = np.full(len(hashes), born)
    return make_segment(Elements(pa.record_batch({"h": hashes}), ticks, ticks + 100), hashes, 0, born)


def rows_of(segments: Iterator[Segment] | list[Segment]) -> Counter[tuple[int, int]]:
    return Counter(
        row
        for s in segments
        for row in zip(s.elements.columns.column("h").to_pylist(), s.elements.valid_from.tolist(), strict=True)
    )


@given(st.lists(HASHES, min_size=2, max_size=6), st.integers(1, 12), st.integers(2, 5))
def test_a_crowd_is_a_range_that_loses_nothing(content: list[list[int]], most: int, least: int) -> None:
    segments = [segment_of(values, born) for born, values in enumerate(content)]
    found = lowest_crowd(segments, most, least)
    if found is None:
        assert least > 2 or not overlapping(segments)
        return
    assert rows_of([*found.parts, *found.stays]) == rows_of(list(found.segments))
    assert least <= len(found.parts) == len(found.segments)
    inside = {value for part in found.parts for value in part.hashes.tolist()}
    assert inside.isdisjoint(value for part in found.stays for value in part.hashes.tolist())
    assert sum(map(len, found.parts)) <= most or len(inside) == 1


@pytest.mark.parametrize("keys", [1, 7, 2**40])
@pytest.mark.parametrize("share", [1, 8])
def test_no_batch_merges_much_and_all_that_has_rested_is_apart(
    keys: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_state, "MERGE_ROWS", 400)
    chance, allowance = np.random.default_rng(keys), Allowance()
    states = [SortedState(f"s{i}", ("h",), SCHEMA, 100_000, allowance=allowance) for i in range(share)]
    merged, kept = list[int](), Counter[tuple[int, int]]()
    merge = SortedState.merged

    def counted(state: SortedState, segments: Sequence[Segment], frontier: int) -> Segment | None:
        if len(segments) < 4 * TIER:  # what has waited for long is merged whatever is allowed for
            merged[-1] += sum(map(len, segments))
        return merge(state, segments, frontier)

    monkeypatch.setattr(SortedState, "merged", counted)
    for batch in range(300):
        allowance.refill(20 * share)
        merged.append(0)
        for state in states:
            values = (chance.integers(0, keys, 20, np.uint64) * np.uint64(2**64 // keys - 1)) & np.uint64(2**64 - 2**20)
            ticks = np.full(20, 200 * batch)
            order, hashes = hash_order(values)
            elements = Elements(pa.record_batch({"h": values}), ticks, ticks + 100_000).take(order)
            state.append(elements, hashes)
            if state is states[0]:
                kept += rows_of([make_segment(elements, hashes, 0, 0)])
            before = rows_of(state.segments) if batch % 50 == 0 and state is states[0] else None
            state.compact(0, 20)
            assert before is None or rows_of(state.segments) == before
    assert rows_of(states[0].segments) == kept
    if keys > 7:
        for state in states:
            buckets = {one.bucket for one in state.segments}
            settled = [[one for one in state.segments if one.bucket == bucket] for bucket in sorted(buckets)[:-2]]
            assert settled and not any(map(overlapping, settled))
            large = [segments for segments in settled if sum(map(len, segments)) > 1_000]
            assert large and all(len(segments) > 1 for segments in large)
        assert max(merged) <= max(allowance.rows, 400 + 4 * 20)


def test_where_memory_is_bounded_ranges_are_as_small_as_it_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a bucket that is larger than that would stay as it is."""
    monkeypatch.setattr(sorted_state, "MERGE_ROWS", 400)
    chance = np.random.default_rng(2)
    state = SortedState("s", ("h",), SCHEMA, 100_000, most_merged=100 * 32)
    for batch in range(300):
        order, hashes = hash_order(chance.integers(0, 2**64, 20, np.uint64))
        ticks = np.full(20, 200 * batch)
        state.append(Elements(pa.record_batch({"h": hashes}), ticks, ticks + 100_000), hashes)
        state.compact(0, 20)
    first = [one for one in state.segments if one.bucket == min(s.bucket for s in state.segments)]
    assert state.rows == 6_000 and not overlapping(first)
    assert len(first) > 1 and max(one.bytes for one in first) <= 100 * 32


@given(probes=HASHES, hashes=HASHES, again=HASHES)
def test_what_is_sought_is_found_whatever_bits_say(probes: list[int], hashes: list[int], again: list[int]) -> None:
    segment = segment_of(hashes, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments_module, "REMEMBERED", 1)
        patch.setattr(segments_module, "SOUGHT", 1)
        for some in (probes, again, again, probes):
            ordered = np.sort(np.array(some, np.uint64))
            found, expected = Sought(ordered).within(segment), matches(ordered, segment.hashes)
            assert [*map(_listed, found or ())] == [*map(_listed, expected or ())]


def test_bits_are_kept_where_little_is_found_and_given_up_where_much_is() -> None:
    chance = np.random.default_rng(3)

    def drawn(count: int) -> Hashes:
        return hash_order(chance.integers(0, 2**64, count, np.uint64))[1]

    hashes = drawn(5_000)
    ticks = np.zeros(5_000, np.int64)
    segment = make_segment(Elements(pa.record_batch({"h": hashes}), ticks, ticks + 1), hashes, 0, 0)
    strange, known = drawn(1_000), hashes[::5]
    Sought(strange).within(segment)
    assert len(segment.bits) == 1 and segment.bits[0].nbytes <= 2 * len(hashes)
    assert Sought(strange).within(segment) is None
    found = Sought(known).within(segment)
    assert found is not None and found[1].tolist() == list(range(0, 5_000, 5)) and not segment.bits


def _listed(values: Indices) -> list[int]:
    return [int(value) for value in values]


def test_neighbours_of_a_cut_are_apart() -> None:
    segments = [segment_of([value << 60 for value in range(16)], born) for born in range(3)]
    left, done = list(segments), list[Segment]()
    while (found := lowest_crowd(left, 12)) is not None:
        done.append(segment_of([value for part in found.parts for value in part.hashes.tolist()], 9))
        gone = {id(one) for one in found.segments}
        left = [one for one in left if id(one) not in gone] + list(found.stays)
    ranges = sorted((int(one.hashes[0]), int(one.hashes[-1])) for one in done)
    assert not left and sum(map(len, done)) == 48 and len(done) == 4
    assert all(first[1] < second[0] for first, second in pairwise(ranges))
