"""When a routed join is chosen: where intermediate results would have to move, and not where they are few."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from tests.distribution.routed.joins import draw_join, draw_plan
from tests.optimizer.test_plan_choice import query, statistics

from midstream.algebra.expressions import conjuncts
from midstream.algebra.plan import RoutedJoins, walk_plan
from midstream.algebra.statistics import Estimate, Statistics, StreamStatistics
from midstream.api import ask
from midstream.distribution.stages import cut
from midstream.optimizer.cost import SPARK
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.graph_estimates import GraphEstimator
from midstream.optimizer.join_graph import JoinGraph
from midstream.optimizer.plans import enumerate_plans, plan_query
from midstream.optimizer.routed.weighing import least_worth, routed_worth

TRIANGLE = "A.k = B.k AND B.v = C.v AND C.w = A.w"
CHAIN = "A.k = B.k AND B.v = C.v"


def known(values: int, names: str = "A B C"):
    aliases = names.split()
    return statistics({a: 5.0 for a in aliases}, {f"{a}.{c}": values for a in aliases for c in "kvw"})


def chosen(where: str, values: int, spread: bool = True) -> str:
    return plan_query(query("A B C", where), statistics=known(values), spread=spread).text


def test_a_triangle_of_which_every_pair_explodes_is_routed_with_windows_in_every_slot():
    assert "<-" in chosen(TRIANGLE, 40)


def test_a_chain_with_few_intermediate_results_stays_a_tree():
    assert "->" not in chosen(CHAIN, 5000) and "<-" not in chosen(CHAIN, 5000)


def test_in_one_place_a_routed_join_is_never_chosen():
    assert "->" not in chosen(TRIANGLE, 40, spread=False) and "<-" not in chosen(TRIANGLE, 40, spread=False)


def test_joins_by_one_key_need_no_ways():
    plan = plan_query(query("A B C", "A.k = B.k AND B.k = C.k"), statistics=known(40), spread=True)
    assert "->" not in plan.text and "<-" not in plan.text


@pytest.mark.parametrize("values", [40, 5000])
@pytest.mark.parametrize("where", [TRIANGLE, CHAIN])
def test_the_choice_is_the_cheapest_of_all_that_are_listed(where, values):
    asked, seen = query("A B C", where), known(values)
    plans = enumerate_plans(asked, statistics=seen, spread=True)
    estimator = Estimator(seen, plans[0].emission, None, spread=True)
    # A multi-way join without a key for all lies in one slot, which the cost of its rows does not tell.
    costs = [estimator.per_tick(plan.logical) for plan in plans if ":" not in plan.text]
    assert costs[0] <= min(costs) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_the_fragments_of_a_routed_join_are_counted_as_they_are_cut(seed):
    random = Random(seed)
    joined = draw_join(random, 3 + seed % 4, 5)
    plan = plan_query(ask(joined.text, joined.tables).plan, str(draw_plan(random, joined.query.conditions)))
    estimator = Estimator(known(40, "A B C D E F"), None, None, spread=True)
    (join,) = (node for node in walk_plan(plan.logical) if isinstance(node, RoutedJoins))
    cost, ticks = estimator.cost(join), estimator.batch_ticks(estimator.flow(join.inputs[0]))
    assert round(cost.fragments * ticks) == len(cut(plan.physical).fragments) - 1


@pytest.mark.parametrize("seed", range(12))
def test_no_routed_join_is_below_the_bound_by_which_the_search_is_spared(seed):
    random = Random(seed)
    joined = draw_join(random, 3 + seed % 4, 5)
    values = {f"{a}.{c}": random.randint(2, 500) for a in "ABCDEF" for c in "kvw"}
    seen = statistics({a: random.choice([0.5, 5.0, 50.0]) for a in "ABCDEF"}, values)
    for _ in range(5):
        plan = plan_query(ask(joined.text, joined.tables).plan, str(draw_plan(random, joined.query.conditions)))
        estimator = Estimator(seen, None, None, spread=True)
        (join,) = (node for node in walk_plan(plan.logical) if isinstance(node, RoutedJoins))
        joins = GraphEstimator(JoinGraph(join.joined, conjuncts(join.on)), estimator)
        assert 0 < least_worth(joins) <= routed_worth(joins, join.orders, join.placements)


def test_where_the_last_stream_of_a_chain_floods_a_tree_of_few_fragments_is_chosen_on_spark():
    """By rows alone the routed join would cost a little less; it has twelve fragments."""
    rates = {"A": 300.0, "B": 300.0, "C": 5400.0}
    streams = {a: StreamStatistics(Estimate(r, 0.01), population=10 * r, rows=20 * r) for a, r in rates.items()}
    keys = statistics({}, {f"{a}.{c}": 40_000 for a in "ABC" for c in "kvw"}).keys
    seen = Statistics(streams, keys, batch_ticks=20.0)
    asked = query("A B C", CHAIN, window=10)
    chosen = {
        price: plan_query(asked, statistics=seen, constants=replace(SPARK, fragment=price), spread=True).text
        for price in (0.0, SPARK.fragment)
    }
    assert "->" in chosen[0.0] and chosen[SPARK.fragment] == "(A (B C))"
