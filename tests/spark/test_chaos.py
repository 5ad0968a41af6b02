"""A job on Spark that is struck from outside: what it gives is what DuckDB says."""

from __future__ import annotations

import pytest

from midstream.lab.bench.chaos import bench_chaos


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("master", ["local[2,4]", "local-cluster[2,1,1500]"])
def test_a_job_that_is_struck_again_and_again_gives_what_duckdb_says(master):
    figures = {figure.name: figure for figure in bench_chaos(kills=8, seed=1, on=master).figures}
    assert figures[f"{master}: strikes"].value == 8
    assert figures[f"{master}: queries that differ"].holds
    assert figures[f"{master}: ends not told in words"].holds
