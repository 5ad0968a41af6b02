"""The paper's examples 1 to 3, element by element.

Example 2 prints `join(S1..S1, S3)` where `join(S1..S2, S3)` is right.
"""

from __future__ import annotations

from random import Random

from tests.distribution.routed.drawing import draw_case

from midstream.lab.papers.node_operator_sets.cost import flows, joint_cost
from midstream.lab.papers.node_operator_sets.greedy import greedy_plan
from midstream.lab.papers.node_operator_sets.join_plan import head_plan, parse_plan
from midstream.lab.papers.node_operator_sets.network import RESULTS, Network, node_per_stream
from midstream.lab.papers.node_operator_sets.node_sets import Join, Ship, StreamId, Update, head_sets, node_sets
from midstream.lab.papers.node_operator_sets.query_shapes import clique
from midstream.optimizer.sites.links import Link

STREAMS = ("S1", "S2", "S3")
NETWORK = Network({"S1": "N1", "S2": "N2", "S3": "N3"}, Link(0.005, 128_000))
PLAN = parse_plan("S1 -> S2 -> S3, S2 <- S1 -> S3, S3 <- S1 <- S2", clique(STREAMS))


def texts(sets):
    return {node: set(map(str, operators)) for node, operators in sets.items()}


def test_the_second_example_holds_to_the_element():
    assert texts(node_sets(PLAN, NETWORK)) == {
        "N1": {"ship(S1, N2)", "ship(S1, N3)"},
        "N2": {
            *("join(S1, S2)", "update(S2)", "ship(S1..S2, N3)", "update(S1)", "join(S2, S1)"),
            *("ship(S2..S1, N3)", "ship(S2, N3)"),
        },
        "N3": {
            *("join(S1..S2, S3)", "update(S3)", f"ship(S1..S3, {RESULTS})", "join(S2..S1, S3)"),
            *(f"ship(S2..S3, {RESULTS})", "join(S3, S1)", "join(S3..S1, S2)", "update(S1)", "update(S2)"),
            f"ship(S3..S2, {RESULTS})",
        },
    }


def test_the_third_example_holds_to_the_element():
    assert texts(head_sets(head_plan("S1", ["S2", "S3"], [1, 1]), NETWORK)) == {
        "N1": {"ship(S1, N2)"},
        "N2": {"join(S1, S2)", "update(S2)", "ship(S1..S2, N3)"},
        "N3": {"join(S1..S2, S3)", "update(S3)", f"ship(S1..S3, {RESULTS})"},
    }
    assert texts(head_sets(head_plan("S1", ["S3", "S2"], [0, 1]), NETWORK)) == {
        "N1": {"join(S1, S3)", "update(S3)", "ship(S1..S3, N2)"},
        "N2": {"join(S1..S3, S2)", "update(S2)", f"ship(S1..S2, {RESULTS})"},
        "N3": {"ship(S3, N1)"},
    }


def test_streams_that_share_a_node_ship_nothing_to_each_other():
    together = Network({"S1": "N1", "S2": "N1", "S3": "N3"}, Link(0.005, 128_000))
    sets = texts(node_sets(PLAN, together))
    assert "ship(S1, N1)" not in sets["N1"] and "ship(S2, N1)" not in sets["N1"]
    assert " ".join(map(str, node_sets(PLAN, together)["N1"])).count("ship(S1..S2, N3)") == 1


def test_merged_sets_cost_what_the_joint_cost_says():
    random = Random(9)
    for _ in range(200):
        conditions, statistics, costs = draw_case(random, random.randint(2, 6))
        plan = greedy_plan(conditions, statistics, costs)
        rates = {}
        for way in plan:
            for flow, _ in flows(way, statistics, costs):
                known = StreamId(flow.met[-1], flow.head) if flow.met else StreamId(flow.head)
                rates[known] = flow.rate, flow.rate * flow.size
        total = 0.0
        for node, operators in node_sets(plan, costs.network).items():
            for operator in operators:
                match operator:
                    case Join(source, target):
                        total += rates[source][0] * costs.probe * statistics[target].rows
                    case Update(target):
                        total += statistics[target].rate * costs.update
                    case Ship(source, to) if to != RESULTS:
                        total += costs.network.time(node, to, rates[source][1])
        assert abs(total - joint_cost(plan, statistics, costs)) < 1e-9 * total


def test_every_node_of_the_papers_network_goes_by_its_stream():
    assert node_per_stream(STREAMS, Link(0, 1)).nodes == STREAMS
