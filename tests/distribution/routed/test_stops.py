"""How rows get from probe to probe on a way of a routed join in slots."""

from __future__ import annotations

from random import Random

import pytest
from tests.distribution.routed.joins import Joined, draw_join, draw_plan

from midstream.distribution.routed_cutting import Stop, Travel, stops
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan, parse_plan
from midstream.lab.papers.node_operator_sets.query import RoutedQuery


@pytest.fixture
def chained() -> RoutedQuery:
    text = "SELECT A.v AS a FROM A [RANGE 5], B [RANGE 5], C [RANGE 5], D [RANGE 5] "
    joined = draw_join(Random(0), 4, 4)
    return Joined(text + "WHERE A.k0 = B.k0 AND B.k1 = C.k1 AND C.v < D.v", joined.tables).query


def stops_of(query: RoutedQuery, plan: JoinPlan, head: str) -> list[Stop]:
    way = plan.way(head)
    route = [query.step(head, way.order[:place], target) for place, target in enumerate(way.order)]
    return stops(route, way.placements)


def test_a_way_over_differing_keys_travels_by_each(chained):
    plan = parse_plan("A -> B -> C -> D, B -> A -> C <- D, C -> B -> A -> D, D <- C -> B -> A", chained.conditions)
    assert stops_of(chained, plan, "A") == [
        Stop(Travel.BY_KEY, ("A.k0",), Travel.BY_KEY),
        Stop(Travel.BY_KEY, ("B.k1",), Travel.BY_KEY),
        Stop(Travel.TO_ALL, (), Travel.STAY),
    ]
    assert stops_of(chained, plan, "D")[0] == Stop(Travel.STAY, (), Travel.TO_ALL)


def test_equal_keys_are_met_without_a_second_exchange():
    joined = draw_join(Random(0), 3, 4)
    text = "SELECT A.v AS a FROM A [RANGE 5], B [RANGE 5], C [RANGE 5] WHERE A.k0 = B.k0 AND B.k0 = C.k0"
    query = Joined(text, joined.tables).query
    plan = parse_plan("A -> B -> C, B -> A -> C, C -> B -> A", query.conditions)
    for head in "ABC":
        assert [stop.travel for stop in stops_of(query, plan, head)] == [Travel.BY_KEY, Travel.STAY]


def test_source_placement_everywhere_needs_no_exchange(chained):
    plan = parse_plan(str(draw_plan(Random(1), chained.conditions)).replace("->", "<-"), chained.conditions)
    assert {stop.travel for head in "ABCD" for stop in stops_of(chained, plan, head)} == {Travel.STAY}
