"""Spark's logs are kept in step with manifests; no JVM is needed to see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.records import Streams
from midstream.checkpoint.spark_log import SparkLog
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError

IDENTITY = "7a07eb29-901d-4c10-8fab-89b5268c9122"


def entry(batch: int, named: bool = False) -> str:
    line = f'{{"logOffset":{batch}}}'
    return f'v2\n{{"batchTimestampMs":{batch}}}\nA:{line}\nticks:7' if named else f'v1\n{{"at":{batch}}}\n{line}\n-'


class Checkpoint:
    """A checkpoint with some batches done, and Spark's logs of them; the last is not yet noted as done by Spark."""

    def __init__(self, folder: Path, batches: int, named: bool = False) -> None:
        self.store = CheckpointStore(str(folder))
        self.log = SparkLog(self.store.files)
        self.spark = folder / "spark"
        source = self.spark / "sources" / ("A" if named else "0")
        for place in (self.spark / "offsets", self.spark / "commits", source):
            place.mkdir(parents=True)
        (self.spark / "metadata").write_text(json.dumps({"id": IDENTITY}))
        for batch in range(batches):
            (self.spark / "offsets" / str(batch)).write_text(entry(batch, named))
            (self.spark / "offsets" / f".{batch}.crc").write_text("checksum")
            (source / (f"{batch}.compact" if batch % 10 == 9 else str(batch))).write_text("v1\n{}")
            if batch < batches - 1:
                (self.spark / "commits" / str(batch)).write_text("v1\n{}")
            self.store.commit(Manifest(IDENTITY, batch, self.log.safe_entry(batch)))

    def lose(self, *paths: str) -> None:
        for path in paths:
            (self.spark / path).unlink()

    def offsets(self) -> dict[int, str]:
        return {int(p.name): p.read_text() for p in (self.spark / "offsets").iterdir() if p.name.isdecimal()}


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("lost", [("offsets/4",), ("offsets/4", "offsets/3"), ("offsets/4", "offsets/3", "commits/3")])
def test_lost_entries_come_back_from_manifests(lost, named, tmp_path):
    checkpoint = Checkpoint(tmp_path, 5, named)
    checkpoint.lose(*lost)
    assert checkpoint.log.repair(checkpoint.store)
    assert checkpoint.offsets() == {batch: entry(batch, named) for batch in range(5)}
    assert (checkpoint.spark / "commits" / "3").exists() and not (checkpoint.spark / "commits" / "4").exists()
    assert not (checkpoint.spark / "offsets" / ".4.crc").exists()
    assert checkpoint.log.repair(checkpoint.store) == []


@pytest.mark.parametrize("torn", [b"", b"\0" * 40, b"v1\n\0\0\0"])
def test_entries_torn_by_a_power_loss_count_as_lost(torn, tmp_path):
    checkpoint = Checkpoint(tmp_path, 5)
    for path in ("offsets/4", "offsets/5", "commits/3", "metadata"):
        (checkpoint.spark / path).write_bytes(torn)
    checkpoint.log.repair(checkpoint.store)
    assert checkpoint.offsets() == {batch: entry(batch) for batch in range(5)}
    assert (checkpoint.spark / "commits" / "3").read_bytes() != torn
    assert checkpoint.log.query_id() == IDENTITY


def test_a_batch_that_is_planned_but_not_done_stays_planned(tmp_path):
    checkpoint = Checkpoint(tmp_path, 5)
    (checkpoint.spark / "offsets" / "5").write_text(entry(5))
    assert checkpoint.log.repair(checkpoint.store) == []
    assert 5 in checkpoint.offsets()


def test_an_entry_that_was_planned_anew_is_refused(tmp_path):
    checkpoint = Checkpoint(tmp_path, 5)
    (checkpoint.spark / "offsets" / "4").write_text(entry(4).replace('"at":4', '"at":5'))
    with pytest.raises(JobError, match="different offsets"):
        checkpoint.log.repair(checkpoint.store)
    with pytest.raises(JobError, match="different offsets"):
        checkpoint.log.require_same(checkpoint.store.read(4))
    checkpoint.log.require_same(checkpoint.store.read(3))


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("batches", [5, 10])
def test_a_lost_list_of_files_is_refused(batches, named, tmp_path):
    checkpoint = Checkpoint(tmp_path, batches, named)
    newest = "9.compact" if batches == 10 else "4"
    checkpoint.lose(f"sources/{'A' if named else '0'}/{newest}")
    with pytest.raises(JobError, match="lacks entry"):
        checkpoint.log.repair(checkpoint.store)


UNFINISHED = (f".0.{IDENTITY}.tmp", f"..0.{IDENTITY}.tmp.crc")


@pytest.mark.parametrize("batches", [0, 2])
def test_only_a_first_entry_that_is_unfinished_is_swept(batches, tmp_path):
    checkpoint = Checkpoint(tmp_path, batches)
    present = {path.name for path in (checkpoint.spark / "offsets").iterdir()}
    for name in UNFINISHED:
        (checkpoint.spark / "offsets" / name).touch()
    checkpoint.log.sweep()
    left = {path.name for path in (checkpoint.spark / "offsets").iterdir()}
    assert left == (present | set(UNFINISHED) if batches else set())


def test_an_entry_that_no_manifest_has_is_refused(tmp_path):
    checkpoint = Checkpoint(tmp_path, 5)
    checkpoint.store.retain(1)
    checkpoint.lose("offsets/3")
    with pytest.raises(JobError, match="has lost batch 3"):
        checkpoint.log.repair(checkpoint.store)


def test_batches_of_our_own_have_the_entry_of_the_batch_before(tmp_path):
    checkpoint = Checkpoint(tmp_path, 5)
    checkpoint.store.commit(Manifest(IDENTITY, 5, entry(4), streams=Streams(source_batch=4)))
    checkpoint.lose("offsets/4", "offsets/3")
    checkpoint.log.repair(checkpoint.store)
    assert checkpoint.offsets() == {batch: entry(batch) for batch in range(5)}


def test_entries_are_made_safe_before_a_manifest_can_have_them(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path, 5)
    safe: list[str] = []
    log = SparkLog(checkpoint.store.files)
    monkeypatch.setattr(log.files, "sync", safe.append)
    assert log.safe_entry(4) == entry(4)
    assert sorted(safe) == ["spark/offsets", "spark/offsets/4", "spark/sources/0", "spark/sources/0/4"]
    safe.clear()
    log.safe_entry(4)
    assert sorted(safe) == ["spark/offsets", "spark/offsets/4"]
