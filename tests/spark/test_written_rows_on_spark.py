"""Random rows, written as files of each format, go through a job on Spark as they are."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.connectors.test_written_rows import tables_of

from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.lab.fuzz.written import differences_in_a_job


def require_same(spark: Any, seed: int, folder: Path) -> None:
    """Fails if a seed's rows come otherwise through a job than they were written."""
    folder.mkdir()
    with CheckpointSession(spark, checkpoint=str(folder / "checkpoint"), slots=2) as session:
        assert list(differences_in_a_job(session, tables_of(seed)[0], Random(seed), folder)) == []


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_are_written_as_files_go_through_a_job_on_spark(spark, seed, tmp_path):
    require_same(spark, seed, tmp_path / "rows")


@pytest.mark.slow
def test_many_rows_that_are_written_as_files_go_through_a_job_on_spark(spark, tmp_path):
    for seed in range(3, 100):
        require_same(spark, seed, tmp_path / str(seed))
