"""The oracle's snapshots are what a database answers over the windows' contents at that instant."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from tests.generators import RELATIONAL, Case, cases, random_case
from tests.generators.constructs import (
    AGGREGATION,
    EXPRESSIONS,
    INNER,
    OUTER,
    ROW_WINDOWS,
    SET_OPERATIONS,
    TIME_WINDOWS,
    TIMES,
)
from tests.oracle.database import answer, same_rows, snapshot
from tests.oracle.window_contents import content

import midstream as ms

MOST_INSTANTS = 6


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
    "sub-queries": BASE | {"subquery", "with", "distinct", "group_by", "inner_join"},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_snapshots_of_each_family_equal_a_databases_answer(family: str) -> None:
    for seed in range(40):
        check(random_case(seed, FAMILIES[family]))


def check(case: Case) -> None:
    """Compares the oracle with DuckDB at some instants of a case."""
    assert case.sql is not None
    result = ms.reference(case.query, case.inputs, time="ts")
    for instant in instants(case, result):
        contents = {leaf.alias: content(leaf, case.inputs[leaf.stream.name], instant) for leaf in case.leaves}
        expected, found = answer(case.sql, contents), snapshot(result, instant)
        assert same_rows(expected, found), (
            f"at {instant} the database says {expected}, the oracle {found}\n{case.sql}\n{case}"
        )


def instants(case: Case, result: pa.Table) -> list[int]:
    """Some instants at which something happens or has just happened, spread over all of them."""
    times = [table.column("ts") for table in case.inputs.values()]
    moments: set[int] = set()
    for column in [*times, result.column("valid_from"), result.column("valid_to")]:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz))
        moments.update(moment for moment in column.cast(pa.int64()).to_pylist() if moment is not None)
    near = sorted({m + shift for m in moments for shift in (-1, 0)})
    step = max(1, len(near) // MOST_INSTANTS)
    return near[step // 2 :: step]
