"""A sink that fails has its results again before any later ones; rows that were taken in are said to be."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import midstream as ms
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.local.backend import LocalBackend

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
CQL = "SELECT k FROM A [RANGE 5]"


def rows(i: int) -> pa.Table:
    return pa.table({"ts": [i * 10, i * 10 + 1], "k": [i, i]}, schema=SCHEMA)


class Failing:
    """Keeps results by batch; fails as often as it is asked to."""

    def __init__(self) -> None:
        self.failures = 0
        self.batches: dict[int, list[int]] = {}

    def __call__(self, results: pa.Table, batch_id: int) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("the sink is away")
        assert all(batch < batch_id for batch in self.batches), "out of order"
        self.batches[batch_id] = results.column("k").to_pylist()

    @property
    def all(self) -> list[int]:
        return [k for batch in sorted(self.batches) for k in self.batches[batch]]


def session_with(folder: Path, sink: Failing, **settings: Any) -> CheckpointSession:
    session = CheckpointSession(checkpoint=str(folder), on="local", **settings)
    session.stream("A", SCHEMA)
    session.query("q", CQL)
    session.sink("q", sink)
    return session.start()


@pytest.mark.parametrize("reopened", [False, True])
def test_results_that_a_sink_refused_come_again_before_the_next_push(tmp_path, reopened):
    sink = Failing()
    session = session_with(tmp_path, sink)
    session.push("A", rows(0))
    session.push("A", rows(1))
    sink.failures = 2
    with pytest.raises(OSError, match="away") as first:
        session.push("A", rows(2))
    assert "taken in all the same, with batch 2" in first.value.__notes__[0]
    with pytest.raises(OSError, match="away") as second:
        session.push("A", rows(3))
    assert not hasattr(second.value, "__notes__")
    if reopened:
        session.stop()
        session = session_with(tmp_path, sink)
    session.push("A", rows(3))
    session.finish()
    assert sink.all == session.queries["q"].table().column("k").to_pylist() == [0, 0, 1, 1, 2, 2, 3, 3]
    session.stop()


def test_finishing_gives_a_sink_what_it_refused(tmp_path):
    sink = Failing()
    with session_with(tmp_path, sink) as session:
        session.push("A", rows(0))
        sink.failures = 1
        with pytest.raises(OSError, match="away"):
            session.push("A", rows(1))
        session.finish()
        assert sink.all == [0, 0, 1, 1]


def test_a_sink_may_stop_a_session_that_also_reads_folders(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    session = CheckpointSession(checkpoint=str(tmp_path / "checkpoint"), on="local")
    session.stream("A", SCHEMA)
    session.open_stream("B", "csv", path=str(tmp_path / "in"), schema="ts BIGINT, k BIGINT")
    session.query("q", CQL)
    waits, plain = threading.Event(), LocalBackend._take

    def take(self: LocalBackend, driver: Any, waiting: Any) -> Any:
        if any(waiting.values()):
            waits.set()
        return plain(self, driver, waiting)

    def stop(results: pa.Table, batch_id: int) -> None:
        (tmp_path / "in" / "1.csv").write_text("1,1\n")
        assert waits.wait(60)
        session.stop()

    monkeypatch.setattr(LocalBackend, "_take", take)
    session.sink("q", stop)
    session.start()
    session.push("A", rows(0))
    assert not session._backend.active


@pytest.mark.parametrize("where", ["commit", "retain"])
def test_an_interrupted_commit_neither_loses_nor_doubles(tmp_path, monkeypatch, where):
    sink, plain = Failing(), getattr(CheckpointStore, where)
    with session_with(tmp_path, sink, retained=2) as session:  # old manifests go after every second batch
        session.push("A", rows(0))
        session.push("A", rows(1))
        session.rescale(2)

        def interrupted(*arguments: Any) -> Any:
            plain(*arguments)
            raise KeyboardInterrupt

        monkeypatch.setattr(CheckpointStore, where, interrupted)
        with pytest.raises(KeyboardInterrupt) as raised:
            session.push("A", rows(2))
        monkeypatch.undo()
        assert "taken in all the same, with batch 2" in raised.value.__notes__[0]
        with pytest.raises(ms.JobError, match="commit of batch 2 was interrupted"):
            session.push("A", rows(3))
        session.stop()
        session.start()
        session.push("A", rows(3))
        session.finish()
        assert sink.all == session.queries["q"].table().column("k").to_pylist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_commit_that_failed_before_it_counted_can_be_tried_again(tmp_path, monkeypatch):
    sink = Failing()
    with session_with(tmp_path, sink) as session:
        session.push("A", rows(0))

        def refused(*_: Any) -> None:
            raise OSError("no space left")

        monkeypatch.setattr(CheckpointStore, "commit", refused)
        with pytest.raises(OSError, match="space") as raised:
            session.push("A", rows(1))
        assert not hasattr(raised.value, "__notes__")
        monkeypatch.undo()
        session.push("A", rows(1))
        session.finish()
        assert sink.all == [0, 0, 1, 1]
