"""Looking hashes up in a segment, from either side."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.operators.elements import Elements
from midstream.operators.state import segment

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
    marked = segment.make_segment(Elements(columns, ticks, ticks + 5), np.array([3, 4], np.uint64), 0, 1, "a place")
    assert [seen.tolist() for seen in (marked.view(1), marked.view(2)) if seen is not None] == [[0, 1], [7, 8]]
    assert marked.bytes > 0
    without = marked.with_columns(columns.select(["a", "b"]))
    seen = without.view(1)
    assert seen is not None and seen.tolist() == [7, 8]
    assert without.bytes == marked.bytes - columns.column("mark").nbytes and without.place is None
