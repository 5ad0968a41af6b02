"""A name that must be new: of any number of writers one wins, wherever each of them is interrupted."""

from __future__ import annotations

import errno
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.checkpoint.s3_server import s3_bucket
from tests.checkpoint.storages import ArrowHdfs, hdfs

from midstream.checkpoint import object_files
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.failures import AlreadyThere
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.object_files import ObjectFiles
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError

TRIALS = 40


class Halted(BaseException):
    """A process that dies."""


class Turns:
    """Lets one of several threads go on at a time, chosen by a seed before each operation of the storage.

    Of threads that are to die, each does so before the operation of its number.
    """

    def __init__(self, seed: int, dying: dict[int, int]) -> None:
        self.random = random.Random(seed)
        self.dying = dying
        self.baton = threading.Condition()
        self.running: set[int] = set()
        self.whose: int | None = None
        self.names: dict[int, int] = {}
        self.done: dict[int, int] = {}

    def run(self, works: list[Any]) -> list[Any]:
        """What each gave, or what it raised."""
        self.running = set(range(len(works)))
        self.whose = self.random.choice(sorted(self.running))
        with ThreadPoolExecutor(len(works)) as pool:
            return list(pool.map(self._one, range(len(works)), works))

    def _one(self, number: int, work: Any) -> Any:
        self.names[threading.get_ident()] = number
        self._wait(number)
        try:
            return work()
        except (Exception, Halted) as error:
            return error
        finally:
            with self.baton:
                self.running.discard(number)
                self._pass_on()

    def _wait(self, number: int) -> None:
        with self.baton:
            self.baton.wait_for(lambda: self.whose == number)

    def _pass_on(self) -> None:
        self.whose = self.random.choice(sorted(self.running)) if self.running else None
        self.baton.notify_all()

    def before(self, name: str, *places: Any) -> None:
        """To be called before each operation."""
        number = self.names.get(threading.get_ident())
        if number is None:
            return
        self.done[number] = self.done.get(number, 0) + 1
        if self.done[number] >= self.dying.get(number, 1 << 30):
            raise Halted
        with self.baton:
            self._pass_on()
        self._wait(number)


def _write(files: Any, content: bytes) -> bytes:
    files.write_atomic("manifests/000000000007.manifest", content, only_if_absent=True)
    return content


@pytest.mark.parametrize("seed", range(60))
def test_of_several_writers_on_hdfs_one_wins_and_nothing_is_deleted(seed, tmp_path):
    turns = Turns(seed, {})
    storage = ArrowHdfs(turns.before)
    contents = [b"of the first", b"of the second", b"of the third"][: 2 + seed % 2]
    outcomes = turns.run([lambda c=c: _write(hdfs(tmp_path, storage), c) for c in contents])
    won = [outcome for outcome in outcomes if isinstance(outcome, bytes)]
    assert len(won) == 1 and storage.clobbered == []
    assert [type(o) for o in outcomes if not isinstance(o, bytes)] == [AlreadyThere] * (len(contents) - 1)
    assert hdfs(tmp_path).read("manifests/000000000007.manifest") == won[0]
    assert hdfs(tmp_path).list("") == ["manifests/000000000007.manifest"]


@pytest.mark.parametrize("seed", range(60))
def test_a_writer_that_dies_on_hdfs_blocks_nobody_and_wins_or_loses_as_a_whole(seed, tmp_path):
    turns = Turns(seed, {0: 1 + seed % 20})
    storage = ArrowHdfs(turns.before)
    dying, living = turns.run([lambda c=c: _write(hdfs(tmp_path, storage), c) for c in (b"dying", b"living")])
    stored = hdfs(tmp_path).read("manifests/000000000007.manifest")
    assert storage.clobbered == []
    assert stored == (b"living" if isinstance(living, bytes) else b"dying")
    assert not (isinstance(dying, bytes) and isinstance(living, bytes))
    with pytest.raises(AlreadyThere):
        _write(hdfs(tmp_path), b"later")
    assert CheckpointStore(hdfs(tmp_path)).batch_ids() == [7]


def test_a_manifest_that_appears_while_another_is_written_on_hdfs_stays(tmp_path):
    store = CheckpointStore(hdfs(tmp_path))
    theirs = Manifest("q", 0, offsets="of the driver that took over")

    def other(name: str, *places: Any) -> None:
        if name == "move":
            storage.before = lambda *_: None
            store.commit(theirs)

    storage = ArrowHdfs(other)
    with pytest.raises(JobError, match="done already"):
        CheckpointStore(hdfs(tmp_path, storage)).commit(Manifest("q", 0, offsets="of the driver that lost its lease"))
    assert store.read(0) == theirs


def test_a_file_system_without_links_has_one_winner_too(tmp_path, monkeypatch):
    def no_links(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    for trial in range(TRIALS):
        files = files_at(str(tmp_path / str(trial)))
        won = _at_once([lambda c=c, f=files: _write(f, c) for c in (b"one", b"two")])
        assert len(won) == 1 and files.read("manifests/000000000007.manifest") == won[0]
        assert files.list("") == ["manifests/000000000007.manifest"]


def _at_once(works: list[Any]) -> list[bytes]:
    """What those gave that won, all having begun together."""
    barrier = threading.Barrier(len(works))

    def one(work: Any) -> Any:
        barrier.wait()
        try:
            return work()
        except AlreadyThere:
            return None

    with ThreadPoolExecutor(len(works)) as pool:
        return [outcome for outcome in pool.map(one, works) if outcome is not None]


@pytest.fixture(scope="module")
def bucket():
    with s3_bucket() as address:
        yield address


def test_of_two_writers_on_s3_exactly_one_wins(bucket):
    for trial in range(TRIALS):
        uri = f"{bucket}/trial{trial}"
        won = _at_once([lambda c=c, u=uri: _write(files_at(u), c) for c in (b"one", b"two")])
        assert len(won) == 1
        assert files_at(uri).read("manifests/000000000007.manifest") == won[0]


def test_a_checkpoint_on_s3_commits_and_is_read_again(bucket):
    store = CheckpointStore(f"{bucket}/job")
    store.commit(Manifest("q", 0))
    store.commit(Manifest("q", 0))
    with pytest.raises(JobError, match="done already"):
        store.commit(Manifest("q", 0, offsets="another"))
    assert CheckpointStore(f"{bucket}/job").read(0) == Manifest("q", 0)
    assert store.files.list("") == ["manifests/000000000000.manifest"]


def test_without_obstore_an_object_store_is_refused_by_name(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    with pytest.raises(JobError, match="obstore is not installed") as error:
        ObjectFiles("s3://bucket/job")._put_new("a", b"x")
    assert "midstream[object-stores]" in str(error.value)


def test_an_object_store_that_cannot_be_reached_is_named(monkeypatch):
    pytest.importorskip("obstore")
    from obstore.exceptions import GenericError

    monkeypatch.setattr("midstream.checkpoint.object_files._store", lambda *_: None)
    monkeypatch.setattr("obstore.put", lambda *_, **__: (_ for _ in ()).throw(GenericError("connection refused")))
    files = ObjectFiles("s3://bucket/job", object(), "bucket/job")
    with pytest.raises(JobError, match="cannot write s3://bucket/job/a") as error:
        files._put_new("a", b"x")
    assert "connection refused" in str(error.value)


@pytest.mark.parametrize(
    ("uri", "kind", "told"),
    [
        ("gs://bucket/job", "GCSStore", {"bucket": "bucket"}),
        ("gs://anonymous@bucket/job?retry_limit_seconds=5", "GCSStore", {"bucket": "bucket", "skip_signature": "true"}),
        ("abfss://files@account.dfs.core.windows.net/job", "AzureStore", {"container_name": "files"}),
        (
            "s3://key:secret@bucket/job?region=eu-west-1&endpoint_override=host:9000&scheme=http",
            "S3Store",
            {"bucket": "bucket", "region": "eu-west-1", "endpoint": "http://host:9000", "access_key_id": "key"},
        ),
    ],
)
def test_conditional_puts_go_where_arrow_writes(uri, kind, told):
    pytest.importorskip("obstore")
    store = object_files._store(uri, None)
    assert type(store).__name__ == kind and store.prefix == "job"
    assert told.items() <= store.config.items()
