"""Files that are read ahead: what was read counts only for the very files of the next batch."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.job.threadless import AtOnce

from midstream.checkpoint.file_entries import SourceFile
from midstream.checkpoint.process import running_as
from midstream.cluster.local.backend import FEW, MOST, ReadAhead
from midstream.errors import InputError

FIRST, SECOND = SourceFile("1.parquet", FEW, 1), SourceFile("2.parquet", FEW, 2)


class Folder:
    """Counts how often files are read, and fails as often as it is told to."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.failures = 0

    def __call__(self, name, files):
        self.read += [f"{name}/{file.path}" for file in files]
        if self.failures:
            self.failures -= 1
            raise InputError("the file is not whole")
        return pa.table({"path": [file.path for file in files]}), list(files)


def paths(read):
    return {name: rows["path"].to_pylist() for name, (rows, _) in read.items()}


def test_files_that_were_read_ahead_are_read_once():
    folder = Folder()
    ahead = ReadAhead(folder)
    ahead.begin({"A": [FIRST], "B": [SECOND]})
    assert paths(ahead.take({"A": [FIRST], "B": [SECOND]})) == {"A": ["1.parquet"], "B": ["2.parquet"]}
    assert folder.read == ["A/1.parquet", "B/2.parquet"]
    assert paths(ahead.take({"A": [FIRST]})) == {"A": ["1.parquet"]}
    assert folder.read.count("A/1.parquet") == 2


@pytest.mark.parametrize("other", [SECOND, SourceFile("1.parquet", FEW, 3), SourceFile("1.parquet", FEW + 1, 1)])
def test_other_files_than_those_read_ahead_are_read_themselves(other):
    folder = Folder()
    ahead = ReadAhead(folder)
    ahead.begin({"A": [FIRST]})
    assert ahead.take({"A": [other]})["A"][1] == [other]


def test_a_failure_ahead_is_one_only_if_it_happens_again():
    folder = Folder()
    ahead = ReadAhead(folder)
    folder.failures = 1
    ahead.begin({"A": [FIRST]})
    assert paths(ahead.take({"A": [FIRST]})) == {"A": ["1.parquet"]}
    folder.failures = 2
    ahead.begin({"A": [FIRST]})
    with pytest.raises(InputError, match="not whole"):
        ahead.take({"A": [FIRST]})


@pytest.mark.parametrize(("size", "ahead_of_time"), [(FEW - 1, ["A/1.parquet"]), (MOST + 1, [])])
def test_small_files_are_read_ahead_once_steps_have_run_and_very_large_ones_are_not(size, ahead_of_time):
    folder = Folder()
    files = {"A": [SourceFile("1.parquet", size, 1)]}
    with running_as(AtOnce()):
        ahead = ReadAhead(folder)
        ahead.begin(files)
        assert folder.read == []
        ahead.begin_few()
        ahead.begin_few()
        assert folder.read == ahead_of_time
        ahead.take(files)
    assert folder.read == ["A/1.parquet"]


def test_files_of_a_batch_that_has_been_taken_are_not_read_ahead_any_more():
    folder = Folder()
    ahead = ReadAhead(folder)
    files = {"A": [SourceFile("1.parquet", 1, 1)]}
    ahead.begin(files)
    ahead.take(files)
    ahead.begin_few()
    assert folder.read == ["A/1.parquet"]
