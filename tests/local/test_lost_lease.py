"""A driver whose lease somebody else has taken ends by itself, even if it has nothing to commit."""

from __future__ import annotations

import pyarrow as pa
import pytest

from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.lease import EXPIRES_AFTER, Lease
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.errors import JobError

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.int64())])


def started(folder) -> CheckpointSession:
    session = CheckpointSession(checkpoint=str(folder), on="local")
    session.stream("A", SCHEMA)
    session.query("q", "SELECT k FROM A [RANGE 5]")
    session.sink("q", lambda results, batch: None)
    return session.start()


def heartbeat(session: CheckpointSession):
    lease = session._job.commits.lease
    assert lease is not None
    return lease


def taken_over(session: CheckpointSession, folder) -> Lease:
    """Another driver's lease, after a silence of this one's."""
    now = heartbeat(session).lease.clock
    return Lease.take(files_at(str(folder)), clock=lambda: now() + EXPIRES_AFTER + 1)


def written(folder) -> dict[str, int]:
    """The files of a checkpoint, each with when it was last written."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_an_idle_driver_that_lost_its_lease_ends_and_says_so(tmp_path):
    session = started(tmp_path)
    session.push("A", pa.table({"k": [1], "ts": [1]}))
    assert session._backend.active
    other = taken_over(session, tmp_path)
    heartbeat(session)._beat()
    assert not session._backend.active
    with pytest.raises(JobError, match="lease of .* is lost") as told:
        session.wait()
    assert "took it over" in (told.value.detail or "")
    present = written(tmp_path)
    session.stop()
    assert written(tmp_path) == present, "it has written something after it lost its lease"
    other.check()


def test_its_rows_are_refused(tmp_path):
    session = started(tmp_path)
    taken_over(session, tmp_path)
    heartbeat(session)._beat()
    with pytest.raises(JobError, match="lease of .* is lost"):
        session.push("A", pa.table({"k": [1], "ts": [1]}))
    session.stop()


def test_a_batch_under_way_is_not_disturbed_and_fails_by_its_commit(tmp_path):
    session = started(tmp_path)
    beats: list[bool] = []

    def lose(batch: int) -> None:
        taken_over(session, tmp_path)
        heartbeat(session)._beat()
        beats.append(session._backend.active)

    session.before_batch(lose)
    with pytest.raises(JobError, match="lease of .* is lost"):
        session.push("A", pa.table({"k": [1], "ts": [1]}))
    assert beats == [True]
    assert session._job.store.latest() is None
    session.stop()


def test_storage_that_is_away_for_a_moment_ends_nothing(tmp_path, monkeypatch):
    session = started(tmp_path)

    def away(*_: object) -> None:
        raise OSError("no route to the storage")

    with monkeypatch.context() as patched:
        patched.setattr(heartbeat(session).lease, "_say", away)
        heartbeat(session)._beat()
    assert session._backend.active
    session.push("A", pa.table({"k": [1], "ts": [1]}))
    session.stop()


def test_a_session_goes_on_once_the_other_driver_has_gone(tmp_path):
    session = started(tmp_path)
    other = taken_over(session, tmp_path)
    heartbeat(session)._beat()
    session.stop()
    other.release()
    again = started(tmp_path)
    again.push("A", pa.table({"k": [1], "ts": [1]}))
    again.stop()
