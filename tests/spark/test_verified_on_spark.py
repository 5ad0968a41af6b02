"""Verified migrations on Spark: a right plan takes over, a wrong one does not; also over restarts, under retention."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.job.test_chain import GROUPS, tables
from tests.spark.feeding import Feed
from tests.spark.test_moving_on_spark import feed_all

import midstream as ms
from midstream.algebra.plan import Distinct, Relation, rewrite_plan
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.job.queries.running_query import RunningQuery
from midstream.optimizer.plans import Plan

QUERY = "SELECT DISTINCT A.k FROM A [RANGE 10], B [RANGE 6], C [RANGE 14] WHERE A.k = B.k AND B.k = C.k"
CHANGE = ms.Migration(at=20, plan="(A (B C))", strategy="genmig", verify=5)


def streams() -> dict[str, pa.Table]:
    times = list(range(60))
    return {name: pa.table({"ts": times, "k": [(t * (i + 2)) % 3 for t in times]}) for i, name in enumerate("ABC")}


def verified(spark: Any) -> Any:
    result = ms.run(QUERY, streams(), on=spark, plan="((A B) C)", migrations=[CHANGE], batch_rows=30, full=True)
    assert ms.snapshot_equal(result.table, ms.reference(QUERY, streams()))
    return result.history[-1].record


def test_a_right_plan_takes_over_on_spark(spark: Any) -> None:
    record = verified(spark)
    assert (record["status"], record["verified"]["difference"]) == ("done", None)


def test_a_wrong_plan_does_not_take_over_on_spark(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = RunningQuery.of

    def without_distinct(node: Relation) -> Relation:
        return node.input if isinstance(node, Distinct) else node

    def of(name: str, cql: str, plan: Plan, *rest: Any, **options: Any) -> RunningQuery:
        wrong = plan.text == CHANGE.plan
        made = replace(plan, logical=rewrite_plan(plan.logical, without_distinct)) if wrong else plan
        return right(name, cql, made, *rest, **options)

    monkeypatch.setattr(RunningQuery, "of", staticmethod(of))
    record = verified(spark)
    assert record["status"] == "differs" and record["verified"]["only_in_new"]


@pytest.mark.slow
def test_slots_are_verified_over_restarts_under_retention_on_spark(spark: Any, tmp_path: Path) -> None:
    """Every batch is of another session; results that were compared may go, and those that were not may not."""
    inputs = tables(rows=60, last=100)
    feeds = {name: Feed(tmp_path / name) for name in "ABC"}
    place = str(tmp_path / "checkpoint")
    for since in range(0, 100, 20):
        feed_all(feeds, inputs, since, since + 20)
        kept = {"results": "1 batches"}
        with CheckpointSession(spark, checkpoint=place, slots=2, retained=1, retention=kept) as session:
            for name, feed in feeds.items():
                session.stream(name, feed.frame(spark), time="ts")
            session.query("q", GROUPS, plan="((A B) C)")
            if since == 20:
                session.queries["q"].migrate("(A (B C))", "moving_state", slots=[1], verify=30)
            session.process_available(finish=since == 80)
    record = ms.open(place).queries["q"].history[-1].record
    assert (record["status"], record["slots"]) == ("done", [1])
    assert record["verified"]["difference"] is None
    assert record["verified"]["compared_to"] >= record["verified"]["since"] + 30
    assert ms.open(place).manifest.account("q").plans.of_slots == {1: "(A (B C))"}
