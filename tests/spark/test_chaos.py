"""A job on Spark that is struck from outside: what it gives is what DuckDB says."""

from __future__ import annotations

import pytest
from tests.interface.struck_jobs import struck


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("master", ["local[2,4]", "local-cluster[2,1,1500]"])
def test_a_job_that_is_struck_again_and_again_gives_what_duckdb_says(master):
    struck(master, kills=8, seed=1)
