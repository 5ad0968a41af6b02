"""A job in one process that is struck from outside: what it gives is what DuckDB says."""

from __future__ import annotations

import pytest
from tests.interface.struck_jobs import struck


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
