"""Latency by the clock is counted from rows to results; newest results are found without reading all."""

from __future__ import annotations

from pathlib import Path

from tests.dashboard.jobs import batches, shop

import midstream as ms
from midstream.checkpoint.metrics import latencies, table_of


def test_latency_counts_from_the_batch_that_brought_the_rows_to_the_one_that_completed_their_results():
    row = {"rows": {}, "seconds": {"batch": 0.5}}
    told = [
        {**row, "batch_id": 0, "at": 100.0, "latest": {"A": 10, "B": 90}, "released": {}},
        {**row, "batch_id": 1, "at": 110.0, "latest": {"A": 20, "B": 90}, "released": {"q": 10, "both": 10}},
        {**row, "batch_id": 2, "at": 130.0, "latest": {"A": 20, "B": 90}, "released": {"q": 20, "both": 30}},
        {**row, "batch_id": 3, "at": 140.0, "latest": {"A": 20, "B": 90}, "released": {"q": 35}},
    ]
    found = latencies(table_of(told), {"q": ["A"], "both": ["A", "B"], "none": []})
    assert found == {
        "q": [None, 10.5, 20.5, 0.5],  # nothing newer came: the last batch itself completed it
        "both": [None, 10.5, 30.5, None],
        "none": [None] * 4,
    }
    assert latencies(table_of([]), {"q": ["A"]}) == {"q": []}


def test_newest_results_are_the_last_of_all_however_they_lie_in_files(tmp_path: Path):
    job = shop(tmp_path / "shop", slots=2)
    for part in batches(40):
        job.batch(part)
    stored = ms.open(tmp_path / "shop")
    for query in stored.queries:
        whole = stored.results(query)
        for rows in (1, 3, 40, 10_000):
            assert stored.newest_results(query, rows).equals(whole.slice(max(0, whole.num_rows - rows)))
