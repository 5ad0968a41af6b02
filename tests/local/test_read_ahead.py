"""Files that are read ahead: what was read counts only for the very files of the next batch."""

from __future__ import annotations

import pyarrow as pa
import pytest

from midstream.checkpoint.file_entries import SourceFile
from midstream.cluster.local.read_ahead import LEAST, MOST, ReadAhead
from midstream.errors import InputError

FIRST, SECOND = SourceFile("1.parquet", LEAST, 1), SourceFile("2.parquet", LEAST, 2)


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


@pytest.mark.parametrize("other", [SECOND, SourceFile("1.parquet", LEAST, 3), SourceFile("1.parquet", LEAST + 1, 1)])
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


@pytest.mark.parametrize("size", [LEAST - 1, MOST + 1])
def test_files_that_are_small_or_very_large_are_not_read_ahead(size):
    folder = Folder()
    ahead = ReadAhead(folder)
    ahead.begin({"A": [SourceFile("1.parquet", size, 1)]})
    assert folder.read == []
