"""Every construct of the language, as the plan it becomes."""

from __future__ import annotations

import pytest
from tests.language.catalogs import CATALOG
from tests.language.golden import examples

from midstream.algebra.plan import Relation, Stream, streams_of, walk_plan
from midstream.language import parse


@pytest.mark.parametrize(("query", "expected"), examples("plans"))
def test_a_query_becomes_this_plan(query: str, expected: str) -> None:
    plan = parse(query, CATALOG)
    assert str(plan) == expected
    assert_names_are_unique(plan)


def assert_names_are_unique(plan: Relation) -> None:
    streams = [stream.alias for stream in streams_of(plan)]
    assert len({alias.casefold() for alias in streams}) == len(streams)
    for node in walk_plan(plan):
        names = node.schema.names
        assert len(set(names)) == len(names)


def test_the_same_query_becomes_the_same_plan() -> None:
    query = "WITH x AS (SELECT k FROM A [NOW]) SELECT x.k FROM x, x AS y WHERE x.k = y.k"
    assert parse(query, CATALOG) == parse(query, CATALOG)


def test_letter_case_and_layout_make_no_difference() -> None:
    written = "select a.K, COUNT(*) as n\nfrom a [range 10] -- all of them\nwhere A.V > 1 /* big */ group BY k;"
    assert parse(written, CATALOG) == parse(
        "SELECT A.k, count(*) AS n FROM A [RANGE 10] WHERE A.v > 1 GROUP BY A.k", CATALOG
    )


def test_types_of_results_follow_from_the_streams() -> None:
    plan = parse("SELECT k + 1 AS a, k / 2 AS b, amount * 2 AS c, at - at AS d, ok AS e FROM orders", CATALOG)
    assert [str(t) for t in plan.schema.types] == ["int64", "double", "decimal128(38, 2)", "duration[us]", "bool"]


def test_outer_streams_keep_their_names_when_inner_ones_repeat_them() -> None:
    plan = parse("SELECT A.k FROM (SELECT A.k FROM A [NOW]) AS s, A [NOW] WHERE s.k = A.k", CATALOG)
    assert [(s.name, s.alias) for s in walk_plan(plan) if isinstance(s, Stream)] == [("A", "A_2"), ("A", "A")]
