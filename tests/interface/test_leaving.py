"""Commands return when what they end has ended."""

from __future__ import annotations

import pytest

from midstream.checkpoint.commands import StopJob
from midstream.checkpoint.lease import Lease, likely_holder
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError
from midstream.interface import asking


@pytest.fixture
def held(tmp_path, monkeypatch):
    """A checkpoint whose job has said that it stops, and still holds the lease."""
    files = CheckpointStore(str(tmp_path)).files
    monkeypatch.setattr(asking, "ask", lambda *_, **__: {"stopping": True})
    return files, Lease.take(files)


def test_stop_returns_when_the_lease_is_given_back(held, tmp_path, monkeypatch):
    files, lease = held
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            lease.release()

    monkeypatch.setattr("midstream.interface.asking.time.sleep", sleep)
    assert asking.asked(str(tmp_path), StopJob(), 60.0) == {"stopping": True, "stopped": True}
    assert len(looks) == 3 and likely_holder(files) is None


def test_stop_does_not_wait_for_the_driver_that_comes_after(held, tmp_path, monkeypatch):
    files, lease = held

    def sleep(_: float) -> None:
        lease.release()
        Lease.take(files, "the next one")

    monkeypatch.setattr("midstream.interface.asking.time.sleep", sleep)
    assert asking.asked(str(tmp_path), StopJob(), 60.0)["stopped"]


def test_stop_says_if_the_last_batch_takes_too_long(held, tmp_path):
    with pytest.raises(JobError, match="has not ended for 0 seconds"):
        asking.asked(str(tmp_path), StopJob(), 0.0)
