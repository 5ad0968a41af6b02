"""Random rows, written as files of each format, are read back as they are."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from midstream.lab.fuzz.cases import random_case
from midstream.lab.fuzz.odd_values import with_odd_values
from midstream.lab.fuzz.written import differences


@pytest.mark.parametrize("seed", range(30))
def test_rows_that_are_written_as_files_are_read_back(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    case = random_case(seed)
    for table in (with_odd_values(case, random) if seed % 3 == 0 else case).inputs.values():
        assert list(differences(table, random, tmp_path)) == []
