"""A stream whose folder is another one than before: no file is read twice, and none is left out without a word."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import midstream as ms
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.errors import InputError, JobError


def run(base: Path, folder: Path, finish: bool = False) -> list[int]:
    """Runs a job over what a folder has; gives the values of the rows that its query has had, if it is finished."""
    with CheckpointSession(checkpoint=str(base / "checkpoint"), on="local") as session:
        session.open_stream("A", "csv", path=str(folder), schema="ts BIGINT, v BIGINT", lateness=1000, max_ahead="any")
        session.query("q", "SELECT v FROM A [RANGE 5]")
        session.process_available(finish=finish)
        return sorted(row["v"] for row in session.results("q").to_pylist())


def rows_taken(base: Path) -> int:
    """How many rows a job has had."""
    manifest = CheckpointStore(str(base / "checkpoint")).latest()
    assert manifest is not None
    return manifest.streams.rows["A"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder two files of which were read, one of them in a folder of its own."""
    made = tmp_path / "data" / "in"
    (made / "sub").mkdir(parents=True)
    (made / "a.csv").write_text("1,1\n")
    (made / "sub" / "b.csv").write_text("2,2\n")
    run(tmp_path, made)
    assert rows_taken(tmp_path) == 2
    return made


def test_the_folder_above_has_the_same_files(tmp_path, folder):
    (folder.parent / "c.csv").write_text("3,3\n")
    run(tmp_path, folder.parent)
    assert run(tmp_path, folder, finish=True) == [1, 2, 3]


def test_the_folder_below_has_some_of_them(tmp_path, folder):
    (folder / "sub" / "c.csv").write_text("3,3\n")
    run(tmp_path, folder / "sub")
    assert run(tmp_path, folder, finish=True) == [1, 2, 3]


@pytest.mark.parametrize("come", [shutil.copy2, shutil.move])
def test_files_that_come_into_the_new_folder_later_are_not_read_again(tmp_path, folder, come):
    new = tmp_path / "new"
    new.mkdir()
    run(tmp_path, new)
    come(folder / "a.csv", new / "a.csv")
    run(tmp_path, new)
    (new / "sub").mkdir()
    come(folder / "sub" / "b.csv", new / "sub" / "b.csv")
    (new / "sub" / "a.csv").write_text("3,3\n")
    os.utime(new / "sub" / "a.csv", (new / "a.csv").stat()[7:9])
    if come is shutil.move:  # then only its time would tell that it is another file
        os.utime(new / "sub" / "a.csv")
    assert run(tmp_path, new, finish=True) == [1, 2, 3]


@pytest.mark.parametrize("spelled", ["moved", "link"])
def test_a_folder_that_was_moved_has_the_same_files(tmp_path, folder, spelled):
    moved = folder.rename(tmp_path / "moved")
    (tmp_path / "link").symlink_to(moved)
    (moved / "c.csv").write_text("3,3\n")
    run(tmp_path, tmp_path / spelled)
    assert run(tmp_path, moved, finish=True) == [1, 2, 3]


def test_a_folder_that_was_moved_into_another_has_the_same_files(tmp_path, folder):
    (tmp_path / "all").mkdir()
    folder.rename(tmp_path / "all" / "in")
    (tmp_path / "all" / "c.csv").write_text("3,3\n")
    assert run(tmp_path, tmp_path / "all", finish=True) == [1, 2, 3]


@pytest.mark.parametrize("copy", [shutil.copy, shutil.copy2], ids=["new times", "old times"])
def test_a_copy_has_the_same_files(tmp_path, folder, copy):
    copied = shutil.copytree(folder, tmp_path / "copied", copy_function=copy)
    (copied / "c.csv").write_text("3,3\n")
    assert run(tmp_path, copied, finish=True) == [1, 2, 3]


def test_a_copy_whose_files_have_other_paths_has_the_same_files(tmp_path, folder):
    copied = shutil.copytree(folder / "sub", tmp_path / "copied")
    (copied / "c.csv").write_text("3,3\n")
    assert run(tmp_path, copied, finish=True) == [1, 2, 3]


def test_several_copies_of_a_file_are_refused(tmp_path, folder):
    for place in ("one", "two"):
        shutil.copytree(folder / "sub", tmp_path / "copied" / place)
    with pytest.raises(JobError, match=r"cannot be told whether its file sub/b\.csv was read"):
        run(tmp_path, tmp_path / "copied")


def test_another_folder_has_other_files_of_the_same_names_and_sizes(tmp_path, folder):
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.csv").write_text("7,7\n")
    run(tmp_path, other)
    assert run(tmp_path, folder, finish=True) == [1, 2, 7]


def rewritten(file: Path) -> None:
    os.utime(file, ns=(1, 1))


def longer(file: Path) -> None:
    file.write_text(file.read_text() + "9,9\n")


@pytest.mark.parametrize("change", [rewritten, longer])
def test_files_that_may_be_the_same_or_not_are_refused(tmp_path, folder, change: Callable[[Path], None]):
    moved = folder.rename(tmp_path / "moved")
    change(moved / "a.csv")
    with pytest.raises(JobError, match=r"cannot be told whether its file a\.csv was read"):
        run(tmp_path, moved)


def test_what_cannot_be_listed_is_an_error(tmp_path, folder, monkeypatch):
    real = os.scandir

    def scandir(path="."):
        if str(path).endswith("/sub"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(InputError, match="/sub cannot be listed"):
        run(tmp_path, folder)


def test_a_link_that_leads_nowhere_but_to_itself_is_an_error(tmp_path, folder):
    (folder / "loop").symlink_to(folder / "loop")
    with pytest.raises(InputError, match="/loop cannot be listed"):
        run(tmp_path, folder)


def test_a_folder_that_is_gone_while_a_job_runs_is_an_error(tmp_path, folder):
    with CheckpointSession(checkpoint=str(tmp_path / "checkpoint"), on="local") as session:
        session.open_stream("A", "csv", path=str(folder), schema="ts BIGINT, v BIGINT", max_ahead="any")
        session.query("q", "SELECT v FROM A [RANGE 5]")
        session.start()
        shutil.rmtree(folder)
        with pytest.raises(InputError, match="cannot be listed"):
            session.wait(60)


def test_a_link_to_a_folder_above_is_refused(tmp_path, folder):
    (folder / "sub" / "up").symlink_to(folder)
    with pytest.raises(InputError, match="leads to a folder that it lies in"):
        run(tmp_path, folder)


@pytest.mark.parametrize("on", ["csv", "json"])
def test_a_folder_named_after_a_declared_column_is_refused(tmp_path, on):
    (tmp_path / "in" / "day=1").mkdir(parents=True)
    (tmp_path / "in" / "day=1" / f"a.{on}").write_text("")
    with CheckpointSession(checkpoint=str(tmp_path / "checkpoint"), on="local") as session:
        session.open_stream("A", on, path=str(tmp_path / "in"), schema="ts BIGINT, day BIGINT")
        session.query("q", "SELECT day FROM A [RANGE 5]")
        with pytest.raises(ms.InputError, match="columns come from files only"):
            session.process_available()


@pytest.mark.parametrize(
    ("options", "batches"),
    [({}, [2, 2, 1]), ({"maxBytesPerTrigger": "any"}, [5]), ({"maxBytesPerTrigger": "4"}, [1] * 5)],
    ids=["usual", "any", "one by one"],
)
def test_a_backlog_is_cut_to_what_fits(tmp_path, monkeypatch, options, batches):
    monkeypatch.setattr("midstream.connectors.files.options.USUAL", 10)
    (tmp_path / "in").mkdir()
    for number in range(5):
        (tmp_path / "in" / f"{number}.csv").write_text(f"{number},{number}\n")
    taken: list[int] = []
    with CheckpointSession(checkpoint=str(tmp_path / "checkpoint"), on="local") as session:
        schema = "ts BIGINT, v BIGINT"
        session.open_stream("A", "csv", path=str(tmp_path / "in"), schema=schema, options=options, lateness=9)
        session.query("q", "SELECT v FROM A [RANGE 5]")
        session.on_progress(lambda event: taken.append(event["rows"]["A"]))
        session.process_available()
    assert taken == batches
