"""Files: whole or absent, whatever the storage does meanwhile."""

from __future__ import annotations

import errno
import os
import pickle

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from tests.checkpoint.making import pack, same, segment
from tests.checkpoint.storages import MockObjects, hdfs, objects

from midstream.checkpoint import fetched, local_files
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.failures import AlreadyThere, MissingFile
from midstream.checkpoint.local_files import LocalFiles
from midstream.checkpoint.opening import open_segment
from midstream.checkpoint.remote_files import RemoteFiles
from midstream.errors import JobError

KINDS = ("local", "objects", "renaming", "subtree")


@pytest.fixture(params=KINDS)
def files(request, tmp_path, monkeypatch):
    """The same files on every kind of storage."""
    monkeypatch.setenv(fetched.CACHE_DIR, str(tmp_path / "cache"))
    match request.param:
        case "local":
            return files_at(str(tmp_path / "checkpoint"))
        case "objects":
            return objects()
        case "renaming":
            return hdfs(tmp_path / "job")
        case _:
            (tmp_path / "base").mkdir()
            below = pafs.SubTreeFileSystem(str(tmp_path / "base"), pafs.LocalFileSystem())
            return MockObjects("subtree://job", below, "job")


def test_what_is_written_is_read(files):
    files.write_atomic("a/b/c", b"some bytes")
    assert files.read("a/b/c") == b"some bytes"
    assert bytes(files.open_map("a/b/c")) == b"some bytes"
    assert files.exists("a/b/c") and not files.exists("a/b") and not files.exists("a/x")


def test_pieces_are_written_one_after_the_other(files):
    files.write_atomic("pieces", [b"one ", pa.py_buffer(b"two "), b"", b"three"])
    assert files.read("pieces") == b"one two three"


def test_nothing_can_be_written_too(files):
    files.write_atomic("empty", b"")
    assert files.read("empty") == b"" and files.open_map("empty").size == 0


def test_a_file_is_replaced_as_a_whole(files):
    files.write_atomic("a", b"old and long")
    files.write_atomic("a", b"new")
    assert files.read("a") == b"new"


def test_a_file_that_must_be_new_is_never_replaced(files):
    files.write_atomic("a", b"old", only_if_absent=True)
    with pytest.raises(AlreadyThere):
        files.write_atomic("a", b"new", only_if_absent=True)
    assert files.read("a") == b"old"
    assert files.list("") == ["a"]


def test_a_list_names_all_files_below_a_folder_in_order(files):
    for path in ("d/2", "d/1", "d/sub/3", "e"):
        files.write_atomic(path, b"x")
    assert files.list("d") == ["d/1", "d/2", "d/sub/3"]
    assert files.list("") == ["d/1", "d/2", "d/sub/3", "e"]
    assert files.list("nowhere") == []


def test_deleting_twice_is_deleting_once(files):
    files.write_atomic("a", b"x")
    files.open_map("a")
    files.delete("a")
    files.delete("a")
    assert not files.exists("a")
    with pytest.raises(MissingFile, match="a"):
        files.open_map("a")


def test_reading_what_is_not_there_names_it(files):
    with pytest.raises(MissingFile) as error:
        files.read("folder/absent")
    assert files.full("folder/absent") in str(error.value)


def test_folders_can_be_made_and_synced(files):
    files.make("x/y")
    files.make("x/y")
    files.sync("x/y")


def test_segments_are_read_from_any_storage(files):
    written = segment({"s": ["a", None, "c"]})
    (entry,) = pack(files, segments=[written])
    assert same(open_segment(files, entry), written)
    assert same(open_segment(files, entry), written)


def test_a_remote_file_is_fetched_once_for_all_processes(tmp_path, monkeypatch):
    monkeypatch.setenv(fetched.CACHE_DIR, str(tmp_path / "cache"))
    storage = pafs._MockFileSystem()
    files = MockObjects("mock://b/j", storage, "b/j")
    files.write_atomic("a", b"bytes")
    files.open_map("a")
    storage.delete_file("b/j/a")
    assert bytes(files.open_map("a")) == b"bytes"
    assert len(os.listdir(fetched.folder())) == 2  # with the tag


def test_copies_used_longest_ago_go_when_the_folder_is_full(tmp_path, monkeypatch):
    monkeypatch.setenv(fetched.CACHE_DIR, str(tmp_path / "cache"))
    monkeypatch.setenv(fetched.CACHE_BYTES, "25")
    files = objects()
    for i in range(5):
        files.write_atomic(str(i), b"0123456789")
        files.open_map(str(i))
        os.utime(fetched.place_of(files.full(str(i))), (i, i))
    left = [i for i in range(5) if fetched.place_of(files.full(str(i))).exists()]
    assert left == [3, 4]
    assert bytes(files.open_map("0")) == b"0123456789"


def test_a_failed_fetch_leaves_no_copy(tmp_path, monkeypatch):
    monkeypatch.setenv(fetched.CACHE_DIR, str(tmp_path / "cache"))
    with pytest.raises(MissingFile):
        objects().open_map("absent")
    assert os.listdir(fetched.folder()) == [fetched.TAG]


def test_making_room_removes_nothing_but_copies(tmp_path, monkeypatch):
    monkeypatch.setenv(fetched.CACHE_DIR, str(tmp_path))
    monkeypatch.setenv(fetched.CACHE_BYTES, "15")
    (tmp_path / "thesis.tex").write_bytes(b"x" * 100)
    files = objects()
    for i in range(3):
        files.write_atomic(str(i), b"0123456789")
        files.open_map(str(i))
        (fetched.folder() / f"notes {i}.txt").write_bytes(b"y" * 100)
    assert (tmp_path / "thesis.tex").exists()
    assert sorted(path.name for path in fetched.folder().glob("notes*")) == [f"notes {i}.txt" for i in range(3)]
    assert len([path for path in fetched.folder().iterdir() if fetched._COPY.fullmatch(path.name)]) == 1


def test_a_folder_of_that_name_with_foreign_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(fetched.CACHE_DIR, str(tmp_path))
    fetched.folder().mkdir()
    (fetched.folder() / "thesis.tex").write_bytes(b"x")
    files = objects()
    files.write_atomic("a", b"x")
    with pytest.raises(JobError, match="not a folder of copies"):
        files.open_map("a")
    assert os.listdir(fetched.folder()) == ["thesis.tex"]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_made_is_for_its_user_alone_and_what_exists_keeps_its_rights(tmp_path, umask):
    (tmp_path / "shared").mkdir(mode=0o755)
    (tmp_path / "shared").chmod(0o755)
    before = os.umask(umask)
    try:
        files = LocalFiles(str(tmp_path / "shared" / "job"))
        files.write_atomic("state/a", b"x")
        files.write_atomic("manifests/b", b"x", only_if_absent=True)
        files.make("control/requests")
    finally:
        os.umask(before)
    rights = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert rights == {
        "shared": 0o755,
        **dict.fromkeys(("shared/job", "shared/job/state", "shared/job/manifests", "shared/job/control"), 0o700),
        "shared/job/control/requests": 0o700,
        "shared/job/state/a": 0o600,
        "shared/job/manifests/b": 0o600,
    }


def test_what_is_meant_for_others_can_be_read_by_them(tmp_path):
    before = os.umask(0o022)
    try:
        files_at(str(tmp_path / "sink"), private=False).write_atomic("a", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "sink").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "sink" / "a").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("s3://bucket/job/", "s3://bucket/job"),
        ("s3a://bucket/job", "s3://bucket/job"),
        ("S3A://bucket/job", "s3://bucket/job"),
        ("gs://bucket/job", "gs://bucket/job"),
        ("hdfs://host:8020/job", "hdfs://host:8020/job"),
    ],
)
def test_addresses_are_mapped_to_what_arrow_calls_them(uri, address):
    files = files_at(uri)
    assert isinstance(files, RemoteFiles) and files.uri == address


def test_local_paths_and_addresses_are_the_same(tmp_path):
    plain = files_at(str(tmp_path / "a b"))
    assert files_at((tmp_path / "a b").as_uri()) == plain
    assert files_at(f"file:{tmp_path}/a%20b") == plain
    assert files_at("run:3").uri == os.path.abspath("run:3")
    assert files_at("~/x").uri == os.path.expanduser("~/x")


@pytest.mark.parametrize("uri", ["ftp://host/x", "jdbc://x", "http://host/x"])
def test_an_unknown_scheme_is_named(uri):
    with pytest.raises(JobError, match=uri.partition(":")[0]):
        files_at(uri)


def test_dbfs_is_mapped_where_it_is_mounted_and_refused_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr("midstream.checkpoint.addresses.DBFS_MOUNT", str(tmp_path))
    assert files_at("dbfs:/jobs/a") == files_at(str(tmp_path / "jobs/a"))
    monkeypatch.setattr("midstream.checkpoint.addresses.DBFS_MOUNT", str(tmp_path / "nowhere"))
    with pytest.raises(JobError, match="dbfs:/jobs/a"):
        files_at("dbfs:/jobs/a")


def test_an_empty_path_is_refused():
    with pytest.raises(JobError, match="no path"):
        files_at("")


@pytest.mark.parametrize("uri", ["somewhere", "s3a://bucket/job", "hdfs://host/job"])
def test_files_travel_to_other_processes(uri):
    files = files_at(uri)
    again = pickle.loads(pickle.dumps(files))
    assert again == files and again.full("x") == files.full("x") and hash(again) == hash(files)


def test_an_address_that_cannot_be_reached_is_named(monkeypatch):
    monkeypatch.setattr("midstream.checkpoint.remote_files.pafs", _Refusing)
    with pytest.raises(JobError, match="s3://bucket/job") as error:
        files_at("s3a://bucket/job").read("x")
    assert "no credentials" in str(error.value)


class _Refusing:
    class FileSystem:
        @staticmethod
        def from_uri(uri):
            raise OSError("no credentials")


STEPS = {
    "opening": ("builtins.open", None),
    "syncing the file": ("os.fsync", None),
    "renaming": ("os.replace", None),
    "linking": ("os.link", None),
}
CODES = {errno.ENOSPC: "free space", errno.EACCES: "right to read and write", errno.EIO: "device"}


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("step", STEPS)
def test_a_failure_of_the_disk_says_what_to_do_and_leaves_nothing_half_written(tmp_path, monkeypatch, step, code):
    files = LocalFiles(str(tmp_path))
    files.write_atomic("folder/a", b"old")
    absent = step == "linking"
    target = "folder/new" if absent else "folder/a"

    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(STEPS[step][0], fail)
        with pytest.raises(JobError) as error:
            files.write_atomic(target, b"new", only_if_absent=absent)
    assert target in str(error.value) and os.strerror(code) in str(error.value)
    assert CODES[code] in (error.value.hint or "")
    assert files.list("") == ["folder/a"] and files.read("folder/a") == b"old"
    files.write_atomic(target, b"new", only_if_absent=absent)
    assert files.read(target) == b"new"


def test_a_disk_that_fills_up_while_writing_leaves_nothing_half_written(tmp_path, monkeypatch):
    files = LocalFiles(str(tmp_path))

    def fills_up(file, pieces, point):
        file.write(pieces[0])
        file.flush()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(local_files, "write_halting", fills_up)
    with pytest.raises(JobError, match="state/x.pack"):
        files.write_atomic("state/x.pack", [b"one", b"two"])
    assert files.list("") == []


def test_a_file_system_without_links_still_keeps_what_is_there(tmp_path, monkeypatch):
    files = LocalFiles(str(tmp_path))

    def no_links(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    files.write_atomic("a", b"old", only_if_absent=True)
    with pytest.raises(AlreadyThere):
        files.write_atomic("a", b"new", only_if_absent=True)
    assert files.read("a") == b"old" and files.list("") == ["a"]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_without_the_right_to_write_is_named(tmp_path):
    (tmp_path / "folder").mkdir(mode=0o500)
    with pytest.raises(JobError, match="folder"):
        LocalFiles(str(tmp_path)).write_atomic("folder/a", b"x")


def test_a_path_through_a_file_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(JobError, match="file/a"):
        LocalFiles(str(tmp_path)).write_atomic("file/a", b"x")
