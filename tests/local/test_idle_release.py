"""A job whose sources are idle releases what is complete, with one batch without rows and no more."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import midstream as ms
from midstream.cluster.local import backend
from midstream.job.ending import release, release_in_turn

COUNT = "SELECT k, count(*) AS n FROM A [TUMBLE 10] GROUP BY k"
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])


def write(folder: Path, name: str, *times: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f".{name}").write_text("".join(f"{time},1\n" for time in times))
    (folder / f".{name}").rename(folder / f"{name}.csv")


def counting(root: Path) -> Any:
    session = ms.Session(checkpoint=str(root / "checkpoint"), on="local")
    session.open_stream("A", "csv", path=str(root / "A"), schema="ts BIGINT, k BIGINT", max_ahead="any")
    session.query("q", COUNT)
    return session


def test_an_idle_job_releases_what_is_complete_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, looked_often, released = [], threading.Event(), threading.Event()

    def look(job: Any) -> bool:
        looks.append(release_in_turn(job))
        if looks.count(False) > 3 and any(looks):
            looked_often.set()
        return looks[-1]

    monkeypatch.setattr(backend, "QUIET", 0.01)
    monkeypatch.setattr(backend, "release_in_turn", look)
    write(tmp_path / "A", "first", 1, 2, 25)
    batches = []
    with counting(tmp_path) as session:
        session.sink("q", lambda rows, batch: released.set() if rows.num_rows else None)
        session.on_progress(lambda event: batches.append(sum(event["rows"].values())))
        session.start()
        assert released.wait(60) and looked_often.wait(60)
        assert session.results("q")["n"].to_pylist() == [2]
        assert batches == [3, 0] and looks.count(True) == 1


def test_files_go_on_after_an_idle_batch_and_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "QUIET", 0.01)
    for name, times, expected in (("a", (1, 2, 25), 1), ("b", (26, 27, 45), 2), ("c", (46, 61), 3)):
        write(tmp_path / "A", name, *times)
        seen = threading.Event()
        with counting(tmp_path) as session:
            session.on_progress(
                lambda _, session=session, seen=seen, expected=expected: (
                    seen.set() if session.results("q").num_rows >= expected else None
                )
            )
            session.start()
            assert seen.wait(60)
    with counting(tmp_path) as session:
        session.finish()
        assert session.results("q")["n"].to_pylist() == [2, 3, 2, 1]


def test_a_query_in_quarantine_makes_no_batches_without_rows(tmp_path: Path) -> None:
    with ms.Session(checkpoint=str(tmp_path), on="local") as opened:
        session: Any = opened
        session.stream("A", SCHEMA.append(pa.field("s", pa.string())), max_ahead="any")
        session.query("q", "SELECT sum(CAST(s AS BIGINT)) AS n FROM A [TUMBLE 10]")
        session.query("fine", COUNT)
        session.start()
        session.push("A", [{"ts": 1, "k": 1, "s": "1"}])
        session.push("A", [{"ts": 2, "k": 7, "s": "x"}])
        assert set(session._job.state.faults.stopped) == {"q"}
        session.push("A", [{"ts": 50, "k": 1, "s": "1"}])
        assert release(session._job) and not release(session._job)


def test_pushes_alone_have_no_batches_between_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "QUIET", 0.01)
    idle = threading.Semaphore(0)
    kept = backend.LocalBackend._idle

    def look(self: Any, job: Any, triggered: bool) -> None:
        kept(self, job, triggered)
        idle.release()

    monkeypatch.setattr(backend.LocalBackend, "_idle", look)
    with ms.Session(checkpoint=str(tmp_path), on="local") as opened:
        session: Any = opened
        session.stream("A", SCHEMA, max_ahead="any")
        session.query("q", COUNT)
        session.start()
        session.push("A", [{"ts": 1, "k": 1}, {"ts": 25, "k": 1}])
        for _ in range(3):
            assert idle.acquire(timeout=60)
        assert session._job.manifest.batch_id == 0
