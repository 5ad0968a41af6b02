"""Jobs do what they did when they were recorded."""

from __future__ import annotations

import json

import pytest
from tests.job.recordings import RECORDED, SEEDS, run


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_does_what_was_recorded(seed, tmp_path):
    known = json.loads(RECORDED.read_text())[str(seed)]
    found = list(run(seed, tmp_path))
    for batch, (was, now) in enumerate(zip(known, found, strict=True)):
        assert now == was, f"batch {batch} of the run with seed {seed}"
