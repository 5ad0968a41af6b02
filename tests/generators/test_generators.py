"""The generators themselves: everything appears, everything is allowed to, and every case can be run again."""

from __future__ import annotations

import contextlib
import io
import re

import pyarrow as pa
import pytest
from tests.generators import EVERYTHING, INNER_JOINS, INTERVAL_KEEPING, MONOTONE, RELATIONAL, Case, random_case

import midstream as ms
from midstream.algebra.plan import Join, Project, Select, Stream, Window, is_monotone, walk_plan
from midstream.algebra.semantics import keeps_intervals
from midstream.inputs import catalog_of
from midstream.language import parse

SEEDS = range(1500)
TEXTS = {
    "range": r"\[RANGE",
    "now": r"\[NOW\]",
    "unbounded": r"\[UNBOUNDED\]",
    "valid_until": r"\[VALID UNTIL",
    "qualify": " QUALIFY ",
    "distinct_on": r"DISTINCT ON \(",
    "grouping_sets": r"GROUP BY (ROLLUP|CUBE|GROUPING SETS)",
    "lists": r"array_agg\(",
    "scalar_subquery": r"[ (]\(SELECT (max|min|count)\(",
    "hop": r"\[HOP",
    "tumble": r"\[TUMBLE",
    "cumulate": r"\[CUMULATE",
    "session": r"SESSION \d",
    "slide": r" SLIDE \d",
    "bounds": "window_(start|end)",
    "offset": r"\[[^\]]*OFFSET",
    "zone": "ZONE",
    "rows": r"\[ROWS",
    "partitioned_rows": r"\[PARTITION BY",
    "where": "WHERE",
    "expressions": "CASE WHEN",
    "inner_join": r"\.k = q\d+\.k",
    "theta_join": r"\.k <>? q\d+\.k",
    "cross_join": "CROSS JOIN",
    "left_join": "LEFT JOIN",
    "right_join": "RIGHT JOIN",
    "full_join": "FULL JOIN",
    "semi_join": r"(?<!NOT )(EXISTS|IN) \(SELECT",
    "anti_join": r"NOT (EXISTS|IN) \(SELECT",
    "distinct": "SELECT DISTINCT",
    "group_by": "GROUP BY",
    "global_aggregate": r"SELECT (count|sum|max)\(",
    "over": r" OVER \(",
    "limit": r" LIMIT \d",
    "having": "HAVING",
    "filter": "FILTER",
    "distinct_aggregate": r"\(DISTINCT",
    "union_all": "UNION ALL",
    "union": "UNION SELECT",
    "except_all": "EXCEPT ALL",
    "except": "EXCEPT SELECT",
    "intersect_all": "INTERSECT ALL",
    "intersect": "INTERSECT SELECT",
    "subquery": r"FROM \(SELECT",
    "unnest": "unnest",
    "with": "WITH q",
    "window_over_subquery": r"\) \[(RANGE|NOW|HOP|TUMBLE|ROWS|UNBOUNDED)",
    "raw": r"FROM A AS q1( WHERE .*)?$",
    "istream": "ISTREAM",
    "dstream": "DSTREAM",
    "rstream": "RSTREAM",
    "followed_by": "FOLLOWED BY",
    "asof_join": "ASOF",
    "match_recognize": "MATCH_RECOGNIZE",
}


@pytest.fixture(scope="module")
def drawn() -> list[Case]:
    return [random_case(seed) for seed in SEEDS]


@pytest.mark.parametrize("construct", sorted(EVERYTHING - {"integer_time", "timestamp_time", "zoned_time"}))
def test_every_construct_appears(construct: str, drawn: list[Case]) -> None:
    assert sum(bool(re.search(TEXTS[construct], case.query)) for case in drawn) >= 5


def test_what_nothing_follows_appears(drawn: list[Case]) -> None:
    assert sum("NOT FOLLOWED BY" in case.query for case in drawn) >= 5


def test_streams_have_everything_that_streams_do(drawn: list[Case]) -> None:
    tables = [table for case in drawn for table in case.inputs.values()]
    assert any(table.num_rows == 0 for table in tables)
    assert any(table["ts"].null_count for table in tables)
    assert any(table["k"].null_count for table in tables)
    assert any(len(set(table["ts"].to_pylist())) < table.num_rows - 3 for table in tables)
    assert any(len({str(row) for row in table.to_pylist()}) < table.num_rows for table in tables)
    types = {t for table in tables for t in table.schema.types}
    wanted = [pa.int32(), pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.decimal128(10, 2), pa.timestamp("ns")]
    assert types >= set(wanted)


def plan_of(case: Case):
    catalog = catalog_of({name: table.schema for name, table in case.inputs.items()}, case.time)
    return parse(case.query, catalog)


@pytest.mark.parametrize("seed", range(60))
def test_sets_of_constructs_keep_their_promise(seed: int) -> None:
    assert is_monotone(plan_of(random_case(seed, MONOTONE)))
    assert keeps_intervals(plan_of(random_case(seed, INTERVAL_KEEPING)))
    joins = [*walk_plan(plan_of(random_case(seed, INNER_JOINS)))]
    assert all(isinstance(node, (Stream, Window, Select, Project, Join)) for node in joins)
    assert all(node.kind == "inner" for node in joins if isinstance(node, Join))
    assert random_case(seed, RELATIONAL).sql is not None


def test_a_seed_always_gives_the_same_case() -> None:
    assert random_case(11).replay() == random_case(11).replay()
    assert random_case(11).replay() != random_case(12).replay()


@pytest.mark.parametrize("seed", range(25))
def test_a_case_prints_itself_as_a_program_that_runs_it_again(seed: int) -> None:
    case = random_case(seed)
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(case.replay(), names)
    inputs = names["inputs"]
    assert isinstance(inputs, dict)
    assert {name: table.schema for name, table in inputs.items()} == {n: t.schema for n, t in case.inputs.items()}
    again = ms.reference(str(names["query"]), inputs)
    assert again.equals(ms.reference(case.query, case.inputs))
