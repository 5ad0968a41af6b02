"""Collecting: what a retained manifest names stays, and so does what a batch in progress makes."""

from __future__ import annotations

import tempfile
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.checkpoint.making import grown, manifest, pack
from tests.checkpoint.storages import objects

from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.check import check
from midstream.checkpoint.collect import collect, garbage
from midstream.checkpoint.file_entries import DeadLetterFile, FileLog, ResultFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.lists import dead_letters_of, listed_in, results_of, shorten
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import DATA_FOLDERS, batch_of, name_for
from midstream.checkpoint.opening import open_segment
from midstream.checkpoint.packs import SegmentEntry
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError

NONE: FileLog[ResultFile] = FileLog()


def everything_named(store: CheckpointStore) -> set[str]:
    """What the retained manifests name, found the slow way."""
    named: set[str] = set()
    for batch_id in store.batch_ids():
        read = CheckpointStore(store.files).read(batch_id)
        named |= read.files() | listed_in(store.files, read.lists())
    return named


def result(files: Files, batch_id: int) -> ResultFile:
    path = name_for("results/hot", batch_id, 0, 0)
    files.write_atomic(path, b"rows")
    return ResultFile(path, 4, batch_id, batch_id, batch_id)


def dead_letter(files: Files, batch_id: int) -> DeadLetterFile:
    path = name_for("dead_letters", batch_id, 0, 0)
    files.write_atomic(path, b"rows")
    return DeadLetterFile(path, 2, batch_id)


def made_by(path: str) -> int:
    batch_id = batch_of(path)
    assert batch_id is not None
    return batch_id


@pytest.fixture
def files(tmp_path):
    return files_at(str(tmp_path / "checkpoint"))


def test_before_the_first_manifest_nothing_is_rubbish(files):
    pack(files, 0)
    assert garbage(CheckpointStore(files), files) == []


def test_lost_attempts_go_and_what_counts_stays(files):
    store = CheckpointStore(files)
    kept = pack(files, 3)
    (lost,) = pack(files, 3)
    store.commit(manifest(3, kept))
    assert collect(store, files) == [lost.file]
    assert len(open_segment(files, kept[0])) == 4


def test_a_batch_in_progress_is_left_alone(files):
    store = CheckpointStore(files)
    store.commit(manifest(3, pack(files, 3)))
    (coming,) = pack(files, 4)
    files.write_atomic("state/.000000000004-00-0000-0123456789ab.pack.0123abcd.tmp", b"half")
    assert collect(store, files) == []
    store.commit(manifest(4, [coming]))
    assert "state/.000000000004-00-0000-0123456789ab.pack.0123abcd.tmp" in collect(store, files)


def test_unfinished_files_of_past_batches_go(files):
    store = CheckpointStore(files)
    torn = [
        "manifests/.000000000003.manifest.0123abcd.tmp",
        "state/.000000000002-00-0000-0123456789ab.pack.0123abcd.tmp",
    ]
    for path in torn:
        files.write_atomic(path, b"half")
    store.commit(manifest(3, pack(files, 3)))
    assert collect(store, files) == torn
    assert store.latest() is not None


def test_files_of_others_are_left_alone(files):
    store = CheckpointStore(files)
    files.write_atomic("state/README", b"mine")
    files.write_atomic("spark/offsets/0", b"Spark's")
    store.commit(manifest(3))
    assert collect(store, files) == []


def test_a_damaged_retained_manifest_stops_the_collection(files):
    store = CheckpointStore(files)
    (kept,) = pack(files, 0)
    store.commit(manifest(0, [kept]))
    files.write_atomic("manifests/000000000001.manifest", b"torn")
    with pytest.raises(JobError, match="damaged"):
        collect(CheckpointStore(files), files)
    assert files.exists(kept.file)


steps = st.lists(
    st.tuples(
        st.integers(0, 3),  # segments added
        st.lists(st.integers(0, 9), max_size=4),  # which of the segments held are dropped
        st.integers(0, 2),  # attempts lost
        st.integers(0, 3),  # result files added
        st.sampled_from(["", "collect", "retain"]),
        st.integers(1, 4),  # manifests retained
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=50, deadline=None)
@given(steps, st.booleans())
def test_nothing_that_a_retained_manifest_names_is_ever_removed(steps, remote):
    with tempfile.TemporaryDirectory() as folder, patch("os.fsync"):
        _play(objects(f"mock://{folder}") if remote else files_at(folder), steps)


def _play(files, steps):
    store = CheckpointStore(files)
    held: list[SegmentEntry] = []
    last = Manifest("spark-query", -1)
    for batch_id, (added, dropped, lost, results, then, n) in enumerate(steps):
        for _ in range(lost):
            pack(files, batch_id)
        held = [entry for i, entry in enumerate(held) if i not in dropped]
        held += [entry for _ in range(added) for entry in pack(files, batch_id)]
        given = grown(last.outputs.results.get("hot", NONE), *(result(files, batch_id) for _ in range(results)))
        last = manifest(batch_id, held, results={"hot": given}, released={"hot": batch_id})
        last = shorten(files, last, most=2)
        store.commit(last)
        coming = pack(files, batch_id + 1)
        if then == "collect":
            collect(store, files)
        elif then == "retain":
            store.retain(n)
        present = {path for folder in DATA_FOLDERS for path in files.list(folder)}
        named = everything_named(store)
        assert named <= present
        assert {entry.file for entry in coming} <= present
        assert check(files, last) == []
        if then == "collect":
            assert all(path in named or made_by(path) > batch_id for path in present)
    store.retain(1)
    collect(store, files)
    left = {path for folder in DATA_FOLDERS for path in files.list(folder)}
    assert {path for path in left if made_by(path) <= last.batch_id} == everything_named(store)


def test_old_results_move_into_lists_and_none_is_lost():
    files = objects()
    store = CheckpointStore(files)
    written, dead, last = [], [], Manifest("spark-query", -1)
    for batch_id in range(200):
        written.append(result(files, batch_id))
        dead.append(dead_letter(files, batch_id))
        last = manifest(
            batch_id,
            results={"hot": grown(last.outputs.results.get("hot", NONE), written[-1])},
            released={"hot": batch_id},
            dead_letters=grown(last.outputs.dead_letters, dead[-1]),
        )
        last = shorten(files, last, most=3)
        store.commit(last)
        store.retain(2)
        collect(store, files)
    assert list(results_of(files, last, "hot")) == written
    assert list(dead_letters_of(files, last)) == dead
    log = last.outputs.results["hot"]
    assert log.count == 200 and len(log.lists) < 20 and len(log.newer) <= 4
    assert garbage(store, files) == [] and check(files, last) == []


def test_the_listed_results_of_a_dropped_query_go_with_it(files):
    store = CheckpointStore(files)
    written = tuple(result(files, 0) for _ in range(5))
    first = shorten(files, manifest(0, results={"hot": FileLog(written)}, released={"hot": 9}), most=2)
    log = first.outputs.results["hot"]
    assert log.newer == () and len(log.lists) == 1
    store.commit(first)
    store.commit(manifest(1, pack(files, 1)))
    store.retain(1)
    assert collect(store, files) == sorted([*(file.path for file in written), log.lists[0].path])


def test_results_that_are_not_released_stay_in_the_manifest(files):
    waiting = FileLog(tuple(ResultFile(f"results/hot/{i}", 1, i, i, 0) for i in range(10)))
    assert shorten(files, manifest(0, results={"hot": waiting}), most=2).outputs.results["hot"] == waiting
    shortened = shorten(files, manifest(0, results={"hot": waiting}, released={"hot": 7}), most=2)
    assert shortened.outputs.results["hot"].newer == waiting.newer[7:]


def test_a_short_manifest_stays_as_it_is(files):
    short = manifest(0, results={"hot": FileLog((ResultFile("results/hot/1", 1, 1, 1, 0),))}, released={"hot": 7})
    assert shorten(files, short) == short
    assert files.list("") == []


def test_checking_names_everything_that_is_wrong(files):
    store = CheckpointStore(files)
    good, bad, gone = (pack(files, 0)[0] for _ in range(3))
    output = result(files, 0)
    last = manifest(0, [good, bad, gone], results={"hot": FileLog((output,))})
    store.commit(last)
    assert check(files, last) == []
    files.write_atomic(bad.file, files.read(bad.file)[:-70] + b"x" * 70)
    files.delete(gone.file)
    files.delete(output.path)
    wrong = [str(error) for error in check(files, last)]
    assert len(wrong) == 3
    assert all(any(path in text for text in wrong) for path in (bad.file, gone.file, output.path))
