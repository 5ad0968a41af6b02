"""The decision, fed with made-up statistics and a made-up clock."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import midstream as ms
from midstream.adaptation.migration_cost import migration_cost
from midstream.adaptation.plan_changes import PlanDecider, PlanMemory
from midstream.adaptation.policy import Policy
from midstream.algebra.statistics import Estimate, KeyProfile, Statistics, StreamStatistics
from midstream.codec import read, written
from midstream.inputs import catalog_of
from midstream.language import parse
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.plans import plan_query

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
QUERY = parse(
    "SELECT A.k FROM A [RANGE 100], B [RANGE 100], C [RANGE 100] WHERE A.k = B.k AND B.v = C.v",
    catalog_of({name: SCHEMA for name in "ABC"}, "ts"),
)
LEFT, RIGHT = plan_query(QUERY, "((A B) C)"), plan_query(QUERY, "(A (B C))")


def decider(policy: Policy | None = None) -> PlanDecider:
    return PlanDecider(policy or Policy(), 101, lambda text: plan_query(QUERY, text))


def key(values: int) -> KeyProfile:
    return KeyProfile(np.arange(values, dtype=np.uint64), np.full(values, 1 / values), np.ones(values, bool), 4, 1000.0)


def seen(ab: int, bc: int, moment: int, rate: float = 5.0) -> Statistics:
    """Streams whose links have so many values: few values make a link multiply."""
    streams = {alias: StreamStatistics(Estimate(rate, 0.05)) for alias in "ABC"}
    keys = {"A.k": key(ab), "B.k": key(ab), "B.v": key(bc), "C.v": key(bc)}
    return Statistics(streams, keys, batch_ticks=10.0, moment=moment)


def follow(controller, plan, phases, step: int = 10, clock=lambda moment: float(moment)):
    """Runs the controller over (ab, bc, steps) phases, migrating when told; gives the decisions."""
    decisions, moment = [], 0
    for ab, bc, steps in phases:
        for _ in range(steps):
            moment += step
            decision = controller.consider(clock(moment), seen(ab, bc, moment), plan, step)
            decisions.append(decision)
            if decision is not None and decision.action in ("migrate", "rollback"):
                controller.migrated(clock(moment), moment, plan, decision.target)
                plan = decision.target
    return decisions, plan


def actions(decisions):
    return [d.action for d in decisions if d is not None and d.action != "stay"]


def test_it_stays_on_the_best_plan_and_says_so():
    decisions, _ = follow(decider(Policy()), LEFT, [(5000, 5, 20)])
    assert actions(decisions) == []
    assert "is the best known" in decisions[-1].reason


def test_it_migrates_once_when_the_streams_change_for_good():
    decisions, plan = follow(decider(Policy()), LEFT, [(5000, 20, 20), (20, 5000, 60)])
    assert actions(decisions) == ["migrate"] and plan.text == "(A (B C))"
    chosen = next(d for d in decisions if d.action == "migrate")
    assert chosen.target_cost < chosen.cost and "Migrating" in chosen.reason
    assert chosen.as_dict()["target"] == "(A (B C))"


def test_it_waits_for_evidence_before_it_moves():
    decisions, _ = follow(decider(Policy(patience=5)), LEFT, [(20, 5000, 4)])
    assert actions(decisions) == [] and "waiting for" in decisions[-1].reason


def test_a_small_gain_is_not_worth_a_change():
    controller = decider(Policy(least_gain=0.99))
    decisions, _ = follow(controller, LEFT, [(200, 5000, 40)])
    assert actions(decisions) == [] and "not worth a change" in decisions[-1].reason


def test_it_does_not_pay_if_it_does_not_last():
    decisions, _ = follow(decider(Policy(horizon=0.01)), LEFT, [(20, 5000, 40)])
    assert actions(decisions) == [] and "expected to last" in decisions[-1].reason


def test_it_learns_that_changes_do_not_last():
    controller = decider(Policy(evidence=0.01, patience=1))
    decisions, _ = follow(controller, LEFT, [(200, 5000, 2), (5000, 200, 2)] * 40, step=2)
    early, late = actions(decisions[:40]), actions(decisions[-80:])
    assert len(late) < len(early) and late == []


def test_the_budget_of_an_hour_holds():
    controller = decider(Policy(per_hour=1, patience=1, evidence=0.0))
    phases = [(20, 5000, 30), (5000, 20, 30), (20, 5000, 30)]
    decisions, _ = follow(controller, LEFT, phases, step=50, clock=lambda moment: 0.0)
    assert actions(decisions) == ["migrate"]
    assert any("in the last hour" in d.reason for d in decisions if d is not None)


def test_suggesting_changes_nothing():
    decisions, plan = follow(decider(Policy("suggest")), LEFT, [(20, 5000, 30)])
    assert plan is LEFT and set(actions(decisions)) == {"suggest"}


def test_it_goes_back_when_the_new_plan_is_worse_than_predicted():
    controller = decider(Policy())
    controller.migrated(0.0, 0, LEFT, RIGHT)
    predicted = Estimator(seen(20, 5000, 0), RIGHT.emission).cost(RIGHT.logical).work
    old = Estimator(seen(20, 5000, 0), LEFT.emission).cost(LEFT.logical).work
    decision = None
    for moment in range(10, 1000, 10):
        worse = max(predicted, old) * 3
        decision = controller.consider(0.0, seen(20, 5000, moment), RIGHT, 10, worse, changed=False)
        if decision is not None:
            break
    assert decision is not None and decision.action == "rollback" and decision.target is LEFT
    assert "Going back" in decision.reason
    assert controller.memory.changes.mistrust[RIGHT.text] > 1


def test_a_plan_that_does_as_predicted_stays():
    controller = decider(Policy())
    controller.migrated(0.0, 0, LEFT, RIGHT)
    for moment in range(10, 1000, 10):
        work = Estimator(seen(20, 5000, moment), RIGHT.emission).cost(RIGHT.logical).work
        assert controller.consider(0.0, seen(20, 5000, moment), RIGHT, 10, work, changed=False) is None
    assert controller.memory.changes.watches == {}
    assert read(PlanMemory, written(controller.memory)) == controller.memory


def test_moving_to_a_plan_that_keeps_the_same_is_cheap():
    estimator = Estimator(seen(20, 5000, 0), LEFT.emission)
    same = migration_cost(LEFT.logical, LEFT.logical, estimator)
    assert same < migration_cost(LEFT.logical, RIGHT.logical, estimator)
    assert migration_cost(RIGHT.logical, LEFT.logical, estimator) > migration_cost(
        LEFT.logical, RIGHT.logical, estimator
    )


def test_an_unknown_mode_is_refused():
    with pytest.raises(ms.QueryError):
        Policy("always")  # type: ignore[arg-type]
