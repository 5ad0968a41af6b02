from __future__ import annotations

from random import Random

import pytest
from tests.distribution.routed.drawing import draw_case

from midstream.algebra.placements import Placement
from midstream.errors import QueryError
from midstream.lab.papers.node_operator_sets.greedy import greedy_plan
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan, checked, head_plan, parse_plan
from midstream.lab.papers.node_operator_sets.query_shapes import chain, clique, graph_of
from midstream.optimizer.routed.text import is_routed

EXAMPLE = "S1 -> S2 -> S3, S2 <- S1 -> S3, S3 <- S1 <- S2"
CHAIN = chain("ABC")


def test_the_papers_first_example_reads_and_prints():
    plan = parse_plan(EXAMPLE, clique(["S1", "S2", "S3"]))
    assert plan.way("S1") == head_plan("S1", ["S2", "S3"], [1, 1])
    assert plan.way("S2") == head_plan("S2", ["S1", "S3"], [0, 1])
    assert plan.way("S3") == head_plan("S3", ["S1", "S2"], [0, 0])
    assert plan.way("S2").placements == (Placement.SOURCE, Placement.DESTINATION)
    assert str(plan) == EXAMPLE


def test_printed_plans_read_back():
    random = Random(4)
    for _ in range(200):
        conditions, statistics, costs = draw_case(random, random.randint(2, 6))
        plan = checked(greedy_plan(conditions, statistics, costs), conditions)
        assert parse_plan(str(plan), conditions) == plan


def test_names_that_would_be_misread_are_quoted():
    odd = ('a "b"', "x->y", "p,q")
    conditions = clique(odd)
    plan = JoinPlan(tuple(head_plan(h, [s for s in odd if s != h], [1, 0]) for h in odd))
    assert parse_plan(str(plan), conditions) == plan


def test_only_texts_with_arrows_are_routed():
    assert is_routed("A->B, B<-A")
    assert not is_routed("((A B) C)") and not is_routed("A: B C, B: A C, C: B A") and not is_routed('("a->b" C)')


@pytest.mark.parametrize(
    ("text", "problem", "column"),
    [
        ("A -> C -> B, B -> A -> C, C -> B -> A", "probes C without a condition", 6),
        ("A -> B -> C, B -> A -> C, C -> A -> B", "probes A without a condition", 32),
        ("A -> B, B -> A -> C, C -> B -> A", "never meets C", 7),
        ("A -> B -> B, B -> A -> C, C -> B -> A", "meets B twice", 11),
        ("A -> B -> C, B -> A -> C", "no way for C", 25),
        ("A -> B -> C, A -> B -> C, C -> B -> A", "second way for A", 14),
        ("A -> B -> D, B -> A -> C, C -> B -> A", "names D", 11),
        ("A B -> C, B -> A -> C, C -> B -> A", "'B' where an arrow", 3),
        ("A -> -> C, B -> A -> C, C -> B -> A", "'->' where a stream", 6),
        ("A -> B ->, B -> A -> C, C -> B -> A", "ends in an arrow", 8),
        ('A -> "B -> C', "not closed", 6),
        ("A -> B -> C,, B -> A", "empty way", 0),
    ],
)
def test_wrong_plans_are_refused_at_the_place(text, problem, column):
    with pytest.raises(QueryError) as refused:
        parse_plan(text, CHAIN)
    assert problem in str(refused.value)
    if column:
        assert refused.value.column == column


def test_a_refused_probe_says_what_would_be_right():
    with pytest.raises(QueryError, match="probe B first"):
        parse_plan("A -> C -> B, B -> A -> C, C -> B -> A", CHAIN)


def test_a_cross_product_that_cannot_be_helped_is_allowed():
    apart = graph_of("ABC", ["AB"])
    assert parse_plan("A -> B -> C, B -> A -> C, C -> A -> B", apart)
    with pytest.raises(QueryError):
        parse_plan("A -> C -> B, B -> A -> C, C -> A -> B", apart)
