"""Random rows, written as files of each format, are read back as they are."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import midstream as ms
from midstream.lab.fuzz.cases import random_case
from midstream.lab.fuzz.odd_values import with_odd_values
from midstream.lab.fuzz.written import differences, differences_in_a_job


@pytest.mark.parametrize("seed", range(30))
def test_rows_that_are_written_as_files_are_read_back(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    for table in tables_of(seed):
        assert list(differences(table, random, tmp_path)) == []


def tables_of(seed: int) -> list[pa.Table]:
    """The tables of a seed; every third one has values that are rare."""
    case = random_case(seed)
    return list((with_odd_values(case, Random(seed)) if seed % 3 == 0 else case).inputs.values())


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_are_written_as_files_go_through_a_job(seed: int, tmp_path: Path) -> None:
    with ms.Session(checkpoint=str(tmp_path / "checkpoint"), on="local") as session:
        assert list(differences_in_a_job(session, tables_of(seed)[0], Random(seed), tmp_path)) == []
