"""Files written side by side: whoever looks sees them whole, and failures are told once all is over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from midstream.checkpoint.file_entries import DeadLetterFile, FileLog
from midstream.checkpoint.files import Data, Files, SideBySide
from midstream.checkpoint.local_files import LocalFiles
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import name_for
from midstream.checkpoint.records import Outputs
from midstream.checkpoint.store import CheckpointStore, manifest_path
from midstream.errors import JobError
from midstream.job.task.kept_tasks import Collected
from midstream.job.task.reports import Report


class Halting(LocalFiles):
    """Files that are not written, and folders that are not safe, before the gate is open."""

    def __init__(self, root: str, gate: threading.Event) -> None:
        super().__init__(root)
        self.gate = gate
        self.made_safe: list[tuple[str, bool]] = []

    def write_atomic(self, path: str, data: Data | Sequence[Data], **more: Any) -> None:
        if "state" in path:
            assert self.gate.wait(60)
        super().write_atomic(path, data, **more)

    def sync(self, dir: str) -> None:
        assert self.gate.wait(60)
        super().sync(dir)
        self.made_safe.append((dir, self.exists(manifest_path(0))))


def opening(gate: threading.Event) -> Callable[[], None]:
    timer = threading.Timer(0.05, gate.set)
    timer.start()
    return timer.join


@pytest.mark.parametrize(
    "look",
    [
        lambda files: files.read("state/a") == b"abc",
        lambda files: bytes(files.open_map("state/a")) == b"abc",
        lambda files: files.list("state") == ["state/a"],
        lambda files: files.exists("state/a"),
        lambda files: files.delete("state/a") is None and files.list("state") == [],
    ],
)
def test_whoever_looks_sees_what_was_written(tmp_path: Path, look: Callable[[Files], bool]):
    gate = threading.Event()
    files = SideBySide(Halting(str(tmp_path), gate))
    files.write_atomic("state/a", [b"a", b"bc"], sync=False)
    assert not (tmp_path / "state" / "a").exists()
    opened = opening(gate)
    assert look(files)
    opened()


def test_failures_are_told_once_nothing_is_under_way(tmp_path: Path):
    gate = threading.Event()
    files = SideBySide(Halting(str(tmp_path), gate))
    (tmp_path / "results").write_bytes(b"a file, where a folder is wanted")
    files.write_atomic("results/a", b"abc", sync=False)
    files.write_atomic("state/a", b"abc", sync=False)
    opened = opening(gate)
    with pytest.raises(JobError, match="results"):
        files.wait()
    assert (tmp_path / "state" / "a").read_bytes() == b"abc"
    files.wait()
    opened()


def test_whoever_waits_waits_for_all_files_that_were_begun(tmp_path: Path):
    gate = threading.Event()
    files = SideBySide(Halting(str(tmp_path), gate))
    files.write_atomic("state/a", b"abc", sync=False)
    seen: list[bool] = []

    def wait() -> None:
        files.wait()
        seen.append((tmp_path / "state" / "a").exists())

    waiting = [threading.Thread(target=wait) for _ in range(2)]
    for thread in waiting:
        thread.start()
    opened = opening(gate)
    for thread in waiting:
        thread.join()
    assert seen == [True, True]
    opened()


def test_reports_tell_what_writing_took_once_their_files_are_there(tmp_path: Path):
    gate = threading.Event()
    files = SideBySide(Halting(str(tmp_path), gate))
    collected, report = Collected(files.files), Report(0, 0)
    collected.begin(report, files)
    files.write_atomic("state/a", b"abc", sync=False)
    assert report.processor == 0
    opened = opening(gate)
    collected.wait()
    assert report.processor == files.processor > 0
    collected.wait()
    assert report.processor == files.processor
    opened()


def test_no_file_of_a_batch_is_being_written_once_one_has_failed(tmp_path: Path):
    gate = threading.Event()
    (tmp_path / "results").write_bytes(b"a file, where a folder is wanted")
    collected = Collected(Halting(str(tmp_path), gate))
    for path in ("results/a", "state/a"):
        files = SideBySide(Halting(str(tmp_path), gate))
        collected.begin(Report(0, 0), files)
        files.write_atomic(path, b"abc", sync=False)
    opened = opening(gate)
    with pytest.raises(JobError, match="results"):
        collected.wait()
    assert (tmp_path / "state" / "a").read_bytes() == b"abc"
    opened()


def test_a_manifest_appears_once_the_files_of_its_batch_are_written(tmp_path: Path):
    gate = threading.Event()
    files = SideBySide(Halting(str(tmp_path), gate))
    store = CheckpointStore(files.files)
    path = name_for("state", 0, 0, 0)
    files.write_atomic(path, b"abc", sync=False)
    opened = opening(gate)

    def written() -> None:
        files.wait()
        assert store.batch_ids() == []

    store.commit(Manifest("query", 0, outputs=Outputs(dead_letters=FileLog([DeadLetterFile(path, 1, 0)]))), written)
    assert (tmp_path / path).exists()
    opened()


def test_a_manifest_appears_once_the_folders_of_its_files_are_safe(tmp_path: Path):
    gate = threading.Event()
    files = Halting(str(tmp_path), gate)
    store = CheckpointStore(files)
    path = name_for("dead_letters", 0, 0, 0)
    files.make("dead_letters")
    opened = opening(gate)
    store.commit(Manifest("query", 0, outputs=Outputs(dead_letters=FileLog([DeadLetterFile(path, 1, 0)]))))
    assert 0 in store.batch_ids()
    assert files.made_safe == [("dead_letters", False)]
    opened()
