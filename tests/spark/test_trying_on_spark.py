"""A change is tried on Spark: batches are those of the job, and both sides give what the oracle does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.job.test_replacing import clipped
from tests.local.test_trying import COUNTS, JOB, JOIN, worked
from typer.testing import CliRunner

import midstream as ms
from midstream.interface.cli.app import app


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


@pytest.mark.slow
def test_a_job_file_is_tried_on_spark_by_command(spark: Any, tmp_path: Path) -> None:
    worked(tmp_path).stop()
    for name in "ab":
        (tmp_path / name).mkdir()
    (tmp_path / "job.toml").write_text(JOB.format(join=JOIN, counts=COUNTS).replace('"local"', '"spark"\nslots = 1'))
    command = ["try", str(tmp_path / "c"), str(tmp_path / "job.toml"), "--batches", "2", "--on", "spark"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "2 batches with 20 rows on Spark" in done.stdout and done.stdout.count("results are the same") == 3
