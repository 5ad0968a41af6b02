"""A job that is struck from outside, in one process and on Spark: what it gives is what DuckDB says."""

from __future__ import annotations

import pytest

from midstream.lab.bench.chaos import bench_chaos


def struck(on: str, kills: int, seed: int) -> dict[str, float]:
    """The figures of a job that is struck, none of which may be wrong."""
    figures = {figure.name.removeprefix(f"{on}: "): figure for figure in bench_chaos(kills, seed, on).figures}
    assert figures["queries that differ"].holds
    assert figures["ends not told in words"].holds
    assert figures["strikes"].value == kills
    return {name: figure.value for name, figure in figures.items()}


def test_a_job_that_is_killed_restored_and_asked_by_commands_gives_what_duckdb_says():
    figures = struck("local", kills=4, seed=26)
    for happened in ("everything", "sink fails", "restored copy", "add, typed", "migrate, typed", "adapt, typed"):
        assert figures[happened] > 0, happened


@pytest.mark.slow
def test_a_job_gives_what_duckdb_says_through_all_strikes_and_commands():
    figures = struck("local", kills=24, seed=2)
    for strike in ("everything", "stop and go on", "byte flip", "sink fails", "restored copy"):
        assert figures[strike] > 0, strike
    for command in ("add", "migrate", "adapt", "drop"):
        assert figures[f"{command}, typed"] > 0, command


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("master", ["local[2,4]", "local-cluster[2,1,1500]"])
def test_a_job_that_is_struck_again_and_again_gives_what_duckdb_says(master):
    struck(master, kills=8, seed=1)
