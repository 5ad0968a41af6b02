"""Verified migrations on Spark: a right plan takes over, a wrong one does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import midstream as ms
from midstream.algebra.plan import Distinct, Relation, rewrite_plan
from midstream.job.running_query import RunningQuery
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
