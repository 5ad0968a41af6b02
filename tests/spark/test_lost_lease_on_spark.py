"""On Spark too, a driver whose lease somebody else has taken ends by itself and commits nothing more."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.local.test_lost_lease import heartbeat, taken_over
from tests.spark.feeding import Feed

from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.errors import JobError

pytestmark = pytest.mark.spark


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    found = Feed(tmp_path / "A")
    found.rows((1, 10, 0), (2, 20, 1))
    return found


def opened(spark, tmp_path: Path, feed: Feed) -> CheckpointSession:
    session = CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint"), slots=1)
    session.stream("A", feed.frame(spark), time="ts")
    session.query("q", "SELECT k FROM A [RANGE 5]")
    return session


def committed(session: CheckpointSession) -> int | None:
    latest = session._job.store.latest()
    return None if latest is None else latest.batch_id


def test_an_idle_driver_that_lost_its_lease_ends_and_says_so(spark, tmp_path, feed):
    with opened(spark, tmp_path, feed) as session:
        session.process_available()
        session.start()
        before = committed(session)
        other = taken_over(session, tmp_path / "checkpoint")
        while session._backend.active:  # a batch that is under way when the lease is looked at ends by itself
            heartbeat(session)._beat()
            time.sleep(0.05)
        with pytest.raises(JobError, match="lease of .* is lost") as told:
            session.wait()
        assert "took it over" in (told.value.detail or "")
        assert committed(session) == before
    other.check()


def test_a_batch_under_way_fails_by_its_commit(spark, tmp_path, feed):
    with opened(spark, tmp_path, feed) as session:
        lost: list[int] = []

        def lose(batch: int) -> None:
            if not lost:
                lost.append(batch)
                taken_over(session, tmp_path / "checkpoint")
                heartbeat(session)._beat()

        session.before_batch(lose)
        with pytest.raises(JobError, match="lease of .* is lost"):
            session.process_available()
        assert lost and committed(session) is None
