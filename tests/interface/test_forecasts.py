"""Forecasts in words: lengths of time as people read them."""

from __future__ import annotations

import pytest

from midstream.interface.answers import migration_forecast


@pytest.mark.parametrize(
    ("time", "takes"), [("timestamp", "9 seconds to 15 minutes"), ("integer", "9 to 900 million ticks")]
)
def test_how_long_a_migration_takes_is_said_in_the_units_of_time(time, takes):
    ranges = {"duration": [9_000_000, 900_000_000], "work": [120, 12_000], "rows": [3, 300], "silence": [0, 0]}
    genmig = {"strategy": "genmig", "legal": True, "ranges": ranges}
    told = {"query": "q", "time": time, "from": "(A B)", "to": "(B A)", "part": None, "strategy": "genmig"}
    shown = migration_forecast({**told, "strategies": [genmig], "observed": True})
    line = next(line for line in shown.splitlines() if line.startswith("* genmig"))
    assert takes in line and "120 to 12,000" in line and "3 to 300" in line
    assert "stream time" in shown and "not measured in this job yet" in shown
    corrected = migration_forecast({**told, "strategies": [{**genmig, "measured": 1}], "observed": True})
    assert "took: genmig (1 migration)" in corrected and "not measured" not in corrected
    guessed = migration_forecast({**told, "strategies": [genmig], "observed": True, "unknown": ["A"]})
    assert "how many rows come from A is not known yet (two batches tell): these figures are guesses" in guessed
