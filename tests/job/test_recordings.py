"""Jobs do what they did when they were recorded."""

from __future__ import annotations

import json

import pytest
from tests.job.recordings import RECORDED, SEEDS, run

from midstream.job.state import JobState


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_does_what_was_recorded(seed, tmp_path):
    known = json.loads(RECORDED.read_text())[str(seed)]
    found = list(run(seed, tmp_path))
    for batch, (was, now) in enumerate(zip(known, found, strict=True)):
        assert now == was, f"batch {batch} of the run with seed {seed}"


def test_a_batch_that_only_goes_on_is_what_it_would_be_if_everything_were_asked(tmp_path, monkeypatch):
    known, calm, asked = json.loads(RECORDED.read_text())[str(SEEDS[0])], JobState.is_calm, []

    def never(state, before):
        asked.append(calm(state, before))
        return False

    monkeypatch.setattr(JobState, "is_calm", never)
    assert list(run(SEEDS[0], tmp_path)) == known
    assert set(asked) == {True, False}
