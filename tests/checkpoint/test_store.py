"""The store: a batch is done once, damage is not skipped over, and Spark's checkpoint must be the right one."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.checkpoint.making import flip, manifest, pack
from tests.checkpoint.storages import hdfs, objects

from midstream.checkpoint import local_files
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.failures import MissingFile
from midstream.checkpoint.file_entries import FileLog, ResultFile
from midstream.checkpoint.local_files import LocalFiles
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.records import Streams
from midstream.checkpoint.store import CheckpointStore, manifest_path
from midstream.errors import JobError


@pytest.fixture(params=["local", "objects", "renaming"])
def store(request, tmp_path):
    match request.param:
        case "local":
            return CheckpointStore(str(tmp_path / "checkpoint"))
        case "objects":
            return CheckpointStore(objects())
        case _:
            return CheckpointStore(hdfs(tmp_path / "job"))


@pytest.fixture
def local(tmp_path):
    return CheckpointStore(str(tmp_path / "checkpoint"))


def test_an_empty_checkpoint_has_no_batch(store):
    assert store.latest() is None and store.batch_ids() == []
    with pytest.raises(MissingFile):
        store.read(0)


def test_the_newest_manifest_is_found(store):
    for batch_id in range(12):
        store.commit(manifest(batch_id, pack(store.files, batch_id)))
    assert store.batch_ids() == list(range(12))
    latest = store.latest()
    assert latest == store.read(11) and latest.batch_id == 11


def test_a_newest_manifest_that_goes_before_it_is_read_is_not_the_newest_any_more(store, monkeypatch):
    for batch_id in range(3):
        store.commit(manifest(batch_id))
    now = store.batch_ids()
    store.files.delete(manifest_path(1))
    listed = iter([[0, 1], now])
    monkeypatch.setattr(store, "batch_ids", lambda: next(listed))
    assert store.latest().batch_id == 2
    monkeypatch.setattr(store, "batch_ids", lambda: [0, 1])
    with pytest.raises(MissingFile):
        store.latest()


def test_the_same_outcome_may_be_committed_again_and_another_not(store):
    first = manifest(0)
    store.commit(first)
    store.commit(first)
    with pytest.raises(JobError, match="batch 0 is done already"):
        store.commit(replace(first, epoch=1))
    assert store.read(0) == first


def test_retaining_removes_the_oldest(store):
    for batch_id in range(5):
        store.commit(manifest(batch_id))
    assert store.retain(2) == [0, 1, 2]
    assert store.batch_ids() == [3, 4]
    assert store.retain(2) == []
    with pytest.raises(JobError, match="at least one"):
        store.retain(0)


def test_a_damaged_newest_manifest_is_named_and_not_skipped_over(local):
    for batch_id in range(2):
        local.commit(manifest(batch_id))
    path = local.files.full(manifest_path(1))
    flip(path, os.path.getsize(path) - 5)
    with pytest.raises(JobError) as error:
        CheckpointStore(local.uri).latest()
    assert path in str(error.value) and "damaged" in str(error.value)
    os.truncate(path, 10)
    with pytest.raises(JobError, match="damaged"):
        CheckpointStore(local.uri).latest()


def test_a_renamed_manifest_is_refused(local):
    local.commit(manifest(0))
    os.rename(local.files.full(manifest_path(0)), local.files.full(manifest_path(7)))
    with pytest.raises(JobError, match="manifest of batch 0"):
        local.latest()


def test_strange_files_among_the_manifests_are_passed_over(local):
    local.commit(manifest(0))
    for name in (".000000000001.manifest.ab.tmp", "notes.txt", "copy of 3.manifest"):
        local.files.write_atomic(f"manifests/{name}", b"x")
    assert local.batch_ids() == [0]


def test_the_first_batch_goes_on_from_nothing(store):
    assert store.before(0, "spark-query") is None


def test_a_batch_goes_on_from_the_one_before(store):
    for batch_id in range(3):
        store.commit(manifest(batch_id))
    assert store.before(3, "spark-query") == store.read(2)
    assert store.before(2, "spark-query") == store.read(1)
    assert store.before(0, "spark-query") is None


def test_a_fresh_or_foreign_spark_checkpoint_is_refused(store):
    store.commit(manifest(0))
    for batch_id in (0, 1):
        with pytest.raises(JobError, match="belongs to another Spark query"):
            store.before(batch_id, "another")


def test_a_spark_commit_without_a_manifest_is_refused(store):
    with pytest.raises(JobError, match="no batch is done"):
        store.before(1, "spark-query")
    store.commit(manifest(0))
    with pytest.raises(JobError, match="batch 0 is the last done"):
        store.before(2, "spark-query")


def test_a_batch_older_than_what_is_kept_is_refused(store):
    for batch_id in range(5):
        store.commit(manifest(batch_id))
    store.retain(2)
    with pytest.raises(JobError, match="only keeps batches from 3"):
        store.before(3, "spark-query")
    assert store.before(4, "spark-query") == store.read(3)


def test_files_are_safe_before_the_manifest_appears(tmp_path, monkeypatch):
    order: list[str] = []
    files = LocalFiles(str(tmp_path))
    monkeypatch.setattr(files, "sync", lambda dir: order.append(f"sync {dir}"))
    name = local_files._give_name

    def noted(unfinished, final, *how):
        order.append(f"name {Path(final).relative_to(tmp_path).as_posix()}")
        name(unfinished, final, *how)

    monkeypatch.setattr(local_files, "_give_name", noted)
    entries = pack(files, 4)
    older = ResultFile("results/hot/000000000003-00-0000-ab.parquet", 1, 0, 0, 3)
    newer = replace(older, path="results/hot/000000000004-00-0000-ab.parquet")
    CheckpointStore(files).commit(manifest(4, entries, results={"hot": FileLog((older, newer))}))
    assert sorted(order[1:3]) == ["sync results/hot", "sync state"]
    assert order[3:] == [f"name {manifest_path(4)}"]


def test_a_full_disk_leaves_the_batch_undone_and_it_can_be_done_after_repair(local, monkeypatch):
    local.commit(manifest(0))

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(JobError, match="No space left"):
            local.commit(manifest(1))
    assert local.batch_ids() == [0] and local.files.list("manifests") == [manifest_path(0)]
    local.commit(manifest(1))
    assert local.batch_ids() == [0, 1]


def test_a_store_can_be_made_over_files_or_an_address(tmp_path):
    assert CheckpointStore(str(tmp_path)).files == CheckpointStore(files_at(str(tmp_path))).files


def test_batches_of_our_own_belong_to_the_batch_of_the_source_before_them(store):
    for batch_id, source in enumerate([0, 1, 1, 2, 2, 2]):
        store.commit(Manifest("spark-query", batch_id, streams=Streams(source_batch=source)))
    assert store.before(3, "spark-query") == store.read(5)
    assert [(b and b.batch_id, m.batch_id) for b, m in store.done(2)] == [(2, 3), (3, 4), (4, 5)]
    assert [(b and b.batch_id, m.batch_id) for b, m in store.done(1)] == [(0, 1), (1, 2)]
    assert [(b and b.batch_id, m.batch_id) for b, m in store.done(0)] == [(None, 0)]
    with pytest.raises(JobError, match="continues with batch 4, but .* batch 2 is the last"):
        store.before(4, "spark-query")
    store.retain(3)
    with pytest.raises(JobError, match="only keeps batches from 3"):
        store.done(2)
