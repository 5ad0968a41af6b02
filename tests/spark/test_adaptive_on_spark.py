"""Adaptive queries on Spark itself: finite inputs, and a session that is stopped on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import midstream as ms
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.interface.cli.app import app
from midstream.interface.cli.demo import write
from midstream.interface.demo.check import compare
from midstream.interface.demo.streams import STREAMS, Scenario, generate

pytestmark = pytest.mark.spark

SMALL = Scenario(seconds=14, flips_at=6, window=3, slow=16, fast=50, shared=3, own=36, common=6)


@pytest.mark.slow
def test_a_finite_run_adapts_and_answers_the_same(spark):
    batches = generate(SMALL)
    tables = {name: pa.concat_tables([batch[name] for batch in batches]) for name in STREAMS}
    rows = sum(table.num_rows for table in tables.values())
    result = ms.run(
        SMALL.query,
        tables,
        on=spark,
        plan=SMALL.old_plan,
        batch_rows=rows // SMALL.seconds,
        adaptive="auto",
        full=True,
    )
    got, decisions = result.table, result.decisions
    assert "migrate" in [d.action for d in decisions]
    assert {d.plan.text for d in decisions if d.action == "migrate"} == {SMALL.old_plan}
    assert ms.snapshot_equal(got, ms.run(SMALL.query, tables))
    assert ms.snapshot_equal(got, ms.reference(SMALL.query, tables))


@pytest.mark.slow
def test_a_session_decides_across_a_restart_and_its_checkpoint_says_why(spark, tmp_path):
    batches = generate(SMALL)
    write(tmp_path, batches[:8])
    with opened(spark, tmp_path) as session:
        session.process_available()
        seen = session.queries["matches"].observed
        assert set(seen.streams) == set(STREAMS)
        before = session.queries["matches"].decisions
    late = tmp_path / "late"
    late.mkdir()
    write(late, batches)
    for name in STREAMS:
        for path in sorted((late / name).iterdir())[8:]:
            path.rename(tmp_path / name / path.name)
    with opened(spark, tmp_path) as session:
        query = session.queries["matches"]
        assert query.decisions == before
        session.process_available()
        session.finish()
        assert query.decisions[: len(before) - 1] == before[:-1]
        migrated = [d for d in query.decisions if d.action == "migrate"]
        assert migrated and query.plan.text == migrated[-1].target
        assert [r.trigger for r in query.history if r.status == "done"] == [d.reason for d in migrated]
        assert query.statistics["observed"]["streams"]["A"]["rate"] > 0
        assert compare(query.table(), batches, SMALL).right
    checkpoint = str(tmp_path / "checkpoint")
    told = CliRunner().invoke(app, ["explain", "matches", "--checkpoint", checkpoint, "--why"])
    assert told.exit_code == 0 and "The running plan" in told.output
    told = CliRunner().invoke(app, ["explain", "matches", "--checkpoint", checkpoint, "--json"])
    account = json.loads(told.stdout)
    assert account["adaptivity"] == "auto" and account["plan"] == migrated[-1].target
    assert [d["reason"] for d in account["decisions"]] == [d.reason for d in query.decisions]


def opened(spark, folder: Path) -> CheckpointSession:
    session = CheckpointSession(spark, checkpoint=str(folder / "checkpoint"), slots=2)
    for name in STREAMS:
        files = spark.readStream.schema("id BIGINT, k BIGINT, ts TIMESTAMP").option("maxFilesPerTrigger", 1)
        session.stream(name, files.parquet(str(folder / name)), time="ts")
    session.query("matches", SMALL.query, plan=SMALL.old_plan, adaptive="auto")
    return session
