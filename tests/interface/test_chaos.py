"""A job in one process that is struck from outside: what it gives is what DuckDB says."""

from __future__ import annotations

import pytest
from tests.interface.struck_jobs import struck
from tests.processes import Program


@pytest.fixture(autouse=True)
def _loaded_once(monkeypatch):
    """Jobs and commands are processes as ever, but of a program that is loaded."""
    monkeypatch.setattr("midstream.lab.bench.chaos.typed", Program)


def test_a_job_that_is_killed_restored_and_asked_by_commands_gives_what_duckdb_says():
    figures = struck("local", kills=5, seed=1720)
    for strike in ("everything", "sink fails", "restored copy", "source moved", "source away"):
        assert figures[strike] > 0, strike
    for command in ("add", "migrate", "adapt"):
        assert figures[f"{command}, typed"] > 0, command


@pytest.mark.slow
def test_a_job_gives_what_duckdb_says_through_all_strikes_and_commands():
    figures = struck("local", kills=24, seed=2)
    for strike in (
        "everything",
        "stop and go on",
        "byte flip",
        "sink fails",
        "restored copy",
        "source moved",
        "source away",
    ):
        assert figures[strike] > 0, strike
    for command in ("add", "migrate", "adapt", "drop"):
        assert figures[f"{command}, typed"] > 0, command
