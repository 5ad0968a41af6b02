"""What moves between stages, as plans are weighed by it and as they are cut."""

from __future__ import annotations

from random import Random

import pytest
from tests.distribution.routed.joins import draw_plan
from tests.optimizer.test_plan_choice import SCHEMA, query, statistics

from midstream.distribution.stages import cut
from midstream.inputs import catalog_of
from midstream.job.task.in_place import arrivals
from midstream.lab.papers.node_operator_sets.query import RoutedQuery
from midstream.optimizer.cost import Constants
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.graph_estimates import Flow, GraphEstimator
from midstream.optimizer.join_graph import join_graph
from midstream.optimizer.ordering import all_trees, shape_cost
from midstream.optimizer.plans import enumerate_plans, plan_query
from midstream.optimizer.routed.weighing import SLOTS

QUERIES = [
    ("A B C", "A.k = B.k AND B.v = C.v"),
    ("A B C D", "A.k = B.k AND B.k = C.k AND C.v = D.v"),
    ("A B C D", "A.k = B.k AND B.v = C.v AND C.w = D.w"),
    ("A B C D", "A.k = B.k AND A.k = C.k AND A.k = D.k"),
    ("A B C D", "A.k = B.k AND A.v = C.v AND A.w = D.w"),
]


def known(names: str, values: int = 50):
    aliases = names.split()
    return statistics({a: 5.0 for a in aliases}, {f"{a}.{c}": values for a in aliases for c in "kvw"})


@pytest.mark.parametrize(("names", "where"), QUERIES)
def test_what_is_charged_is_what_the_stages_send(names, where, monkeypatch):
    """With every flow counted as one, as much moves as there are fragments beside the last."""
    plans = [p for p in enumerate_plans(query(names, where), statistics=known(names)) if p.text.startswith("(")]
    assert len(plans) > 1
    monkeypatch.setattr(GraphEstimator, "flow", lambda self, inputs: Flow(1.0, 1.0))
    for plan in plans:
        moved = Estimator(known(names), plan.emission, None, spread=True).cost(plan.logical).moved
        assert moved == len(cut(plan.physical).fragments) - 1, plan.text


@pytest.mark.parametrize(("names", "where"), [*QUERIES, ("A B C D", "A.k = B.k AND B.v < C.v AND C.w = D.w")])
def test_what_is_charged_for_a_routed_join_is_what_its_rounds_send(names, where, monkeypatch):
    """With every flow counted as one: each fragment's output once for each stage that it passes, and once a slot.

    What the first probes read arrives where it is read, and only what arrives once more is charged.
    """
    asked, random = query(names, where), Random(7)
    monkeypatch.setattr(GraphEstimator, "flow", lambda self, inputs: Flow(1.0, 1.0))
    monkeypatch.setattr(Estimator, "flow", lambda self, plan: Flow(1.0, 1.0))
    conditions = RoutedQuery(asked).conditions
    for _ in range(12):
        plan = plan_query(asked, str(draw_plan(random, conditions)))
        cost = Estimator(known(names), plan.emission, None, spread=True).cost(plan.logical)
        staged = cut(plan.physical)
        streams = dict(enumerate(catalog_of({name: SCHEMA for name in names.split()}, "ts").streams.values()))
        arriving = arrivals({"q": staged}, streams, {})
        assert arriving.sooner == {"q"}
        sent = 0
        for fragment in staged.fragments[:-1]:
            readers = [f for f in staged.fragments if any(r.fragment == fragment.number for r in f.received)]
            if readers:  # windows give nothing
                stages = readers[0].stage - 1 - max(0, fragment.stage - 1)
                sent += stages * (SLOTS if fragment.route.everywhere else 1)
        assert cost.moved == sent, plan.text
        copies = sum(SLOTS if copy.route.everywhere else 1 for copy in arriving.copies.values())
        assert cost.copied == copies, plan.text
        assert cost.inserted == sum(SLOTS if name.everywhere else 1 for name in staged.windows), plan.text


@pytest.mark.parametrize(("names", "where"), QUERIES)
def test_a_shape_costs_what_its_tree_costs(names, where):
    graph = join_graph(query(names, where).input)
    spread = Estimator(known(names), None, None, spread=True)
    for shape in all_trees(graph, graph.everyone):
        assert shape_cost(spread.graph(graph), shape) == pytest.approx(spread.per_tick(graph.tree(shape)))


def test_fewer_exchanges_win_where_all_else_is_equal():
    """All of A, B and C are joined by k; whether D comes before or after C is one, but for where rows lie."""
    asked = query("A B C D", "A.k = B.k AND A.k = C.k AND A.v = D.v")
    sizes = {"A.k": 100, "B.k": 100, "C.k": 100, "A.v": 100, "D.v": 100}
    seen = statistics({"A": 1.0, "B": 1.0, "C": 1.0, "D": 1.0}, sizes)
    free, dear = Constants(exchange=0.0), Constants(exchange=2.0)
    texts = ["(((A B) D) C)", "(((A B) C) D)"]

    def costs(constants: Constants, spread: bool) -> list[float]:
        plans = [plan_query(asked, text) for text in texts]
        return [Estimator(seen, p.emission, constants, spread).per_tick(p.logical) for p in plans]

    assert costs(dear, False)[0] == pytest.approx(costs(dear, False)[1])
    assert costs(free, True) == pytest.approx(costs(dear, False))
    back_and_forth, once = costs(dear, True)
    assert once < back_and_forth
    assert cut(plan_query(asked, texts[1]).physical).stages < cut(plan_query(asked, texts[0]).physical).stages
