"""A change is tried on Spark: batches are those of the job, and both sides give what the oracle does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.job.test_replacing import clipped
from tests.local.test_trying import COUNTS, JOIN, worked

import midstream as ms


@pytest.mark.slow
def test_a_change_is_tried_on_spark(spark: Any, tmp_path: Path) -> None:
    session = worked(tmp_path, retain="AB")
    changed = COUNTS.replace("RANGE 10", "RANGE 5")
    found = session.try_({"counts": changed}, last=2, slots=1, on="spark")
    session.stop()
    rows = pa.Table.from_pylist([{"k": ts % 4, "v": ts % 7, "x": 1, "ts": ts} for ts in range(60)])
    for name, side, cql in (
        ("join", found.before, JOIN),
        ("join", found.after, JOIN),
        ("counts", found.before, COUNTS),
        ("counts", found.after, changed),
    ):
        expected = ms.reference(cql, {"A": rows, "B": rows})
        assert ms.snapshot_equal(clipped(side.results[name], found.since), clipped(expected, found.since))
    assert found.batches == 2 and found.on == "spark" and found.rows == {"A": 10, "B": 10}
    assert found.differences["join"] and not found.differences["counts"]
    assert found.after.queries["join"]["probed"] == 20 and found.after.seconds["job"] > 0
