"""Every rule keeps every snapshot: on random queries over random streams, by the oracle and by the engine."""

from __future__ import annotations

import pytest
from tests.generators import RELATIONAL, random_case
from tests.optimizer.executed import assert_same, bound, rewritten
from tests.optimizer.test_plan_choice import statistics

from midstream.algebra.emission import emission_of
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.plans import best_plan
from midstream.optimizer.prepare import normalize
from midstream.optimizer.rules import EQUIVALENCES, RULES
from midstream.optimizer.rules.examples import example
from midstream.optimizer.rules.pull_aggregation_above_join import pull_aggregation_above_join
from midstream.optimizer.rules.pull_distinct_above_join import pull_distinct_above_join
from midstream.optimizer.rules.push_aggregation_below_join import push_aggregation_below_join
from midstream.optimizer.rules.push_distinct_below_join import push_distinct_below_join
from midstream.optimizer.rules.push_selection_down import push_selection_down

SEEDS = 40

# Queries that give every rule something to do, over the streams of the generator's columns.
ABOUT = {
    "fold_constants": "SELECT k + 0 * 2 AS x FROM A [RANGE 9] WHERE 1 = 1 AND (v > 1 + 1 OR FALSE)",
    "fold_windows": "SELECT * FROM (SELECT k, count(*) AS n FROM A [RANGE 5] GROUP BY k) [NOW] AS x",
    "push_selection_down": "SELECT * FROM (SELECT DISTINCT A.k, B.v FROM A [RANGE 9] LEFT JOIN B [HOP 8, 4] "
    "ON A.k = B.k) AS x WHERE x.k > 0 AND x.v IS NULL",
    "push_selection_through_union": "SELECT * FROM (SELECT k, v FROM A [RANGE 9] UNION ALL "
    "SELECT v, k FROM B [RANGE 4]) AS x WHERE k > 0",
    "push_selection_through_difference": "SELECT * FROM (SELECT k FROM A [RANGE 9] EXCEPT ALL "
    "SELECT k FROM B [RANGE 9]) AS x WHERE k > 0",
    "eliminate_distinct": "SELECT DISTINCT k, count(*) AS n FROM A [RANGE 9] GROUP BY k",
    "push_projection_down": "SELECT A.v FROM A [RANGE 9] JOIN B [RANGE 9] ON A.k = B.k",
    "push_distinct_below_join": "SELECT DISTINCT A.v FROM A [RANGE 9] JOIN B [HOP 8, 4] ON A.k = B.k",
    "pull_distinct_above_join": "SELECT DISTINCT A.v, B.v AS w FROM A [RANGE 9] JOIN B [RANGE 9] ON A.k = B.k",
    "push_aggregation_below_join": "SELECT B.v, sum(A.v) AS s, count(A.v) AS c, count(*) AS n, sum(B.k) AS t, "
    "count(B.k) AS d, max(B.k) AS m FROM A [TUMBLE 6] JOIN B [TUMBLE 6] ON A.k = B.k GROUP BY B.v",
    "pull_aggregation_above_join": "SELECT B.v, sum(A.v) AS s, count(A.v) AS c, sum(B.k) AS t, count(*) AS n, "
    "count(B.k) AS d, min(B.k) AS m FROM A [RANGE 9] JOIN B [RANGE 9] ON A.k = B.k GROUP BY B.v",
    "commute_join": "SELECT A.v FROM A [RANGE 9] JOIN B [RANGE 9] ON A.k = B.k",
    "associate_join": "SELECT A.v FROM A [RANGE 9] JOIN B [RANGE 4] ON A.k = B.k JOIN C [RANGE 9] ON A.k = C.k",
    "close_equalities": "SELECT A.v FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] "
    "WHERE A.k = B.k AND B.k = C.k AND C.k = 1",
}


def cases(count: int):
    for seed in range(count):
        yield seed, random_case(seed, RELATIONAL)


def test_every_rule_has_an_example():
    assert {rule.__name__ for rule in RULES} == ABOUT.keys()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_keeps_the_snapshots_of_its_example(rule):
    tables = [random_case(seed, RELATIONAL - {"timestamp_time", "zoned_time"}).inputs for seed in range(60)]
    tables = [t for t in tables if len(t) == 3][:4]
    for inputs in tables:
        question = bound(ABOUT[rule.__name__], inputs)
        plan = _prepared(rule, question.plan)
        changed = list(rewritten(plan, rule)) or list(rewritten(normalize(plan), rule))
        assert changed, "the example gives the rule nothing to do"
        for after in changed:
            assert_same(question.plan, after, question)


def _prepared(rule, plan):
    """Some rules do what others leave to do: they pull up what was pushed down, or push on."""
    if rule is pull_distinct_above_join:
        return next(rewritten(plan, push_distinct_below_join))
    if rule.__name__.startswith("push_selection_through"):
        return next(rewritten(plan, push_selection_down))
    if rule is pull_aggregation_above_join:
        return next(rewritten(plan, push_aggregation_below_join))
    return plan


def test_rules_keep_the_snapshots_of_random_queries():
    tried = 0
    for _, case in cases(SEEDS):
        question = bound(case.query, case.inputs)
        plan = question.plan
        for rule in RULES:
            for after in list(rewritten(plan, rule))[:2]:
                assert_same(plan, after, question)
                tried += 1
    assert tried > SEEDS


def test_normalizing_keeps_the_snapshots_of_random_queries():
    changed = 0
    for _, case in cases(2 * SEEDS):
        question = bound(case.query, case.inputs)
        plan = question.plan
        after = normalize(plan)
        if after != plan:
            changed += 1
            assert_same(plan, after, question)
    assert changed > SEEDS // 2


def test_a_selection_never_passes_a_row_window():
    plan = example("SELECT * FROM (SELECT k FROM A [RANGE 5]) [ROWS 3] AS x WHERE x.k = 1")
    assert "Window [ROWS 3]" in str(normalize(plan)).partition("Select")[2]


def test_a_selection_does_not_pass_to_the_padded_side():
    plan = normalize(example("SELECT A.k FROM A [NOW] LEFT JOIN B [NOW] ON A.k = B.k WHERE B.v IS NULL"))
    assert str(plan).index("Select") < str(plan).index("LeftOuterJoin")


def test_a_constant_spreads_over_equal_columns():
    from midstream.optimizer.plans import plan_query

    physical = str(plan_query(example("SELECT A.v FROM A [NOW], B [NOW] WHERE A.k = B.k AND A.k = 7")).physical)
    assert "Filter (A.k = 7)" in physical and "Filter (B.k = 7)" in physical


@pytest.mark.parametrize("rule", EQUIVALENCES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("rates", [(1.0, 1.0, 1.0), (0.01, 5.0, 5.0), (5.0, 0.01, 1.0)])
@pytest.mark.parametrize("values", [3, 5000])
def test_no_equivalence_makes_a_cheaper_plan_than_the_chosen_one(rule, rates, values):
    query = example(ABOUT[rule.__name__])
    known = {f"{alias}.{column}": values for alias in "ABC" for column in "kv"}
    emission = emission_of(query)
    estimator = Estimator(statistics(dict(zip("ABC", rates, strict=True)), known), emission)
    chosen = best_plan(query, emission, estimator).logical
    least = estimator.per_tick(chosen) * (1 - 1e-9)
    for start in (normalize(query), chosen):
        for after in rewritten(start, rule):
            assert estimator.per_tick(after) >= least, f"{chosen}\ncosts more than\n{after}"
