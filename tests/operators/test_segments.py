"""Looking hashes up in a segment, from either side."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
