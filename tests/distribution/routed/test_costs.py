from __future__ import annotations

from itertools import permutations, product
from math import isclose
from random import Random

import pytest
from tests.distribution.routed.drawing import draw_case

from midstream.algebra.placements import Placement
from midstream.errors import QueryError
from midstream.lab.papers.node_operator_sets.cost import Costs, flows, joint_cost, paper_cost, violation, way_cost
from midstream.lab.papers.node_operator_sets.exact import exact_plan
from midstream.lab.papers.node_operator_sets.greedy import greedy_plan
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan, checked, head_plan
from midstream.lab.papers.node_operator_sets.joint import best_plan, gathering_plan, improved_plan
from midstream.lab.papers.node_operator_sets.network import node_per_stream
from midstream.lab.papers.node_operator_sets.query_shapes import clique
from midstream.lab.papers.node_operator_sets.statistics import StreamStatistics
from midstream.optimizer.sites.links import Link

A, B, C = StreamStatistics(100, 50, 150, 0.01), StreamStatistics(200, 100, 40, 0.02), StreamStatistics(10, 5, 8, 0.5)
STATISTICS = {"A": A, "B": B, "C": C}
COSTS = Costs(1e-6, 1e-5, node_per_stream(("A", "B", "C"), Link(0.005, 128_000)))


def test_one_way_costs_follow_equations_1_and_2():
    way = head_plan("A", ["B", "C"], [1, 0])
    (first, _), (second, _) = flows(way, STATISTICS, COSTS)
    assert (first.rate, first.size, first.factor, first.node) == (100, 150, 0.01, "A")
    assert (second.rate, second.size, second.factor, second.node) == (100 * 0.01 * 100, 190, 0.02, "B")
    to_b = 0.005 + 100 * 150 / 128_000 + 200 * 1e-5 + 100 * 1e-6 * 100
    to_c = 0.005 + 10 * 8 / 128_000 + 10 * 1e-5 + 100 * 1e-6 * 5
    assert isclose(way_cost(way, STATISTICS, COSTS), to_b + to_c)
    cost, placement = COSTS.choice(second, "C", C)
    assert isclose(cost, to_c) and placement is Placement.SOURCE


def test_equal_costs_choose_the_source():
    alike = {s: StreamStatistics(100, 50, 150, 0.01) for s in "AB"}
    plan = greedy_plan(clique("AB"), alike, Costs(1e-6, 1e-5, node_per_stream(("A", "B"), Link(0.005, 128_000))))
    assert str(plan) == "A <- B, B <- A"


def test_the_joint_cost_pays_once_what_heads_share():
    plan = JoinPlan(
        (head_plan("A", ["B", "C"], [1, 1]), head_plan("B", ["A", "C"], [0, 1]), head_plan("C", ["A", "B"], [0, 0]))
    )
    # A is shipped to B as head and for its window there; windows of B and C at home serve two heads each.
    shared = 0.005 + 100 * 150 / 128_000
    updates = 10 * 1e-5
    assert isclose(paper_cost(plan, STATISTICS, COSTS) - joint_cost(plan, STATISTICS, COSTS), shared + updates)


def test_greedy_plans_hold_the_invariant():
    random = Random(1)
    for _ in range(300):
        conditions, statistics, costs = draw_case(random, random.randint(2, 7))
        plan = checked(greedy_plan(conditions, statistics, costs), conditions)
        assert violation(plan, statistics, costs, conditions) is None


def test_the_invariant_is_seen_to_be_broken():
    conditions, statistics, costs = clique("ABC"), STATISTICS, COSTS
    plan = greedy_plan(conditions, statistics, costs)
    way = plan.heads[0]
    turned = head_plan("A", way.order[::-1], way.placements[::-1])
    assert violation(JoinPlan((turned, *plan.heads[1:])), statistics, costs, conditions)
    other = head_plan("A", way.order, [1 - p.value for p in way.placements])
    assert "dearer" in str(violation(JoinPlan((other, *plan.heads[1:])), statistics, costs, conditions))


def every_plan(conditions):
    ways = []
    for head in conditions.streams:
        others = [s for s in conditions.streams if s != head]
        ways.append([head_plan(head, o, p) for o in permutations(others) for p in product((0, 1), repeat=len(others))])
    for heads in product(*ways):
        try:
            yield checked(JoinPlan(heads), conditions)
        except QueryError:
            continue


def test_the_exact_search_finds_what_trying_everything_finds():
    random = Random(5)
    for _ in range(8):
        conditions, statistics, costs = draw_case(random, 3)
        best = min(joint_cost(plan, statistics, costs) for plan in every_plan(conditions))
        assert isclose(joint_cost(exact_plan(conditions, statistics, costs), statistics, costs), best, rel_tol=1e-8)


def test_no_other_plan_beats_the_exact_one():
    random = Random(6)
    for _ in range(12):
        conditions, statistics, costs = draw_case(random, random.randint(4, 6))
        exact = checked(exact_plan(conditions, statistics, costs), conditions)
        least = joint_cost(exact, statistics, costs) * (1 - 1e-8)
        others = [greedy_plan(conditions, statistics, costs), improved_plan(conditions, statistics, costs)]
        others += [checked(gathering_plan(hub, conditions), conditions) for hub in conditions.streams]
        assert all(least <= joint_cost(plan, statistics, costs) for plan in others)
        assert joint_cost(others[1], statistics, costs) <= joint_cost(others[0], statistics, costs)


def test_many_streams_get_an_improved_plan():
    conditions, statistics, costs = draw_case(Random(8), 8)
    plan = checked(best_plan(conditions, statistics, costs), conditions)
    assert joint_cost(plan, statistics, costs) <= joint_cost(
        greedy_plan(conditions, statistics, costs), statistics, costs
    )
    with pytest.raises(QueryError, match="at most 6"):
        exact_plan(conditions, statistics, costs)
