"""The oracle's snapshots are what a database answers over the windows' contents at that instant."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.generators import RELATIONAL, Case, cases, random_case

import midstream as ms
from midstream.lab.fuzz.constructs import (
    AGGREGATION,
    EXPRESSIONS,
    INNER,
    OUTER,
    PLACES,
    ROW_WINDOWS,
    SET_OPERATIONS,
    TIME_WINDOWS,
    TIMES,
)
from midstream.lab.fuzz.database import answer, same_rows
from midstream.lab.fuzz.judge import difference_from_database


@given(cases(RELATIONAL))
def test_snapshots_equal_a_databases_answer(case: Case) -> None:
    check(case)


BASE = frozenset({"integer_time", "timestamp_time", "range", "unbounded", "rows", "hop", "where"})
FAMILIES = {
    "windows": BASE | TIMES | TIME_WINDOWS | ROW_WINDOWS | {"raw"},
    "expressions": BASE | EXPRESSIONS,
    "inner joins": BASE | INNER,
    "outer joins": BASE | OUTER | {"inner_join"},
    "semi and anti joins": BASE | {"semi_join", "anti_join"},
    "set operations": BASE | SET_OPERATIONS,
    "aggregation": BASE | AGGREGATION | EXPRESSIONS,
    "places": BASE | PLACES | {"inner_join"},
    "sub-queries": BASE | {"subquery", "with", "distinct", "group_by", "inner_join"},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_snapshots_of_each_family_equal_a_databases_answer(family: str) -> None:
    for seed in range(25):
        check(random_case(seed, FAMILIES[family]))


def check(case: Case) -> None:
    """Compares the oracle with DuckDB at some instants of a case."""
    assert case.sql is not None
    found = difference_from_database(case, ms.reference(case.query, case.inputs, time="ts"))
    assert found is None, f"{found}\n{case.sql}\n{case}"


def test_rows_that_are_null_in_different_columns_are_told_apart():
    rows = [("a", 1.5, None), ("a", None, 1.5), ("a", 1.5, 2.5)]
    assert same_rows(rows, rows[::-1])
    assert not same_rows(rows[:1], rows[1:2])


def test_a_database_orders_by_constants_too():
    assert answer("SELECT (array_agg(1 ORDER BY 'a' DESC))[1]", {}) == [(1,)]
