"""What snapshots hold: joins of every kind, null logic, grouping, set operations."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import midstream as ms

A = pa.table({"ts": [1, 1, 1], "k": pa.array([1, 2, None], pa.int64()), "a": ["x", "y", "z"]})
B = pa.table({"ts": [1, 1, 1], "k": pa.array([2, 2, None], pa.int64()), "b": ["p", "q", "r"]})
NO_NULLS = B.slice(0, 2)


def rows(query: str, **inputs: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of the only snapshot of a query over [NOW] windows."""
    found = ms.reference(query, inputs or {"A": A, "B": B})
    assert set(found["valid_from"].to_pylist()) <= {1}
    return [tuple(row.values())[:-2] for row in found.to_pylist()]


JOINED = "SELECT A.a, B.b FROM A [NOW] {} JOIN B [NOW] ON A.k = B.k"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("INNER", [("y", "p"), ("y", "q")]),
        ("LEFT", [("x", None), ("y", "p"), ("y", "q"), ("z", None)]),
        ("RIGHT", [(None, "r"), ("y", "p"), ("y", "q")]),
        ("FULL", [(None, "r"), ("x", None), ("y", "p"), ("y", "q"), ("z", None)]),
    ],
)
def test_joins_match_where_the_condition_is_true_and_pad_the_rest(kind: str, expected: list[Any]) -> None:
    assert rows(JOINED.format(kind)) == expected


def test_outer_joins_pad_only_while_there_is_no_partner() -> None:
    a = pa.table({"ts": [0], "k": [1]})
    b = pa.table({"ts": [5], "k": [1], "b": ["p"]})
    found = ms.reference("SELECT A.k, B.b FROM A [RANGE 9] LEFT JOIN B [RANGE 1] ON A.k = B.k", {"A": a, "B": b})
    assert [tuple(r.values()) for r in found.to_pylist()] == [(1, None, 0, 5), (1, "p", 5, 7), (1, None, 7, 10)]


def test_is_not_distinct_from_joins_nulls() -> None:
    query = "SELECT A.a, B.b FROM A [NOW] JOIN B [NOW] ON A.k IS NOT DISTINCT FROM B.k"
    assert rows(query) == [("y", "p"), ("y", "q"), ("z", "r")]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("A.k IN (SELECT k FROM B [NOW])", ["y"]),
        ("A.k NOT IN (SELECT k FROM B [NOW])", []),
        ("A.k NOT IN (SELECT k FROM B [NOW] WHERE k IS NOT NULL)", ["x"]),
        ("A.k NOT IN (SELECT k FROM B [NOW] WHERE k > 5)", ["x", "y", "z"]),
        ("EXISTS (SELECT 1 FROM B [NOW] WHERE B.k = A.k)", ["y"]),
        ("NOT EXISTS (SELECT 1 FROM B [NOW] WHERE B.k = A.k)", ["x", "z"]),
        ("EXISTS (SELECT 1 FROM B [NOW] WHERE B.k > A.k)", ["x"]),
    ],
)
def test_semi_and_anti_joins_follow_sql_nulls(condition: str, expected: list[str]) -> None:
    assert rows(f"SELECT A.a FROM A [NOW] WHERE {condition}") == [(a,) for a in expected]


def test_a_semi_join_keeps_duplicates_but_adds_none() -> None:
    twice = pa.concat_tables([A, A])
    query = "SELECT A.a FROM A [NOW] WHERE A.k IN (SELECT k FROM B [NOW])"
    assert rows(query, A=twice, B=B) == [("y",), ("y",)]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("UNION ALL", [None, None, 1, 2, 2, 2]),
        ("UNION", [None, 1, 2]),
        ("EXCEPT ALL", [1]),
        ("EXCEPT", [1]),
        ("INTERSECT ALL", [None, 2]),
        ("INTERSECT", [None, 2]),
    ],
)
def test_set_operations_hold_nulls_equal(operation: str, expected: list[Any]) -> None:
    assert rows(f"SELECT k FROM A [NOW] {operation} SELECT k FROM B [NOW]") == [(k,) for k in expected]


def test_except_all_takes_away_one_for_one() -> None:
    assert rows("SELECT k FROM B [NOW] EXCEPT ALL SELECT k FROM A [NOW]") == [(2,)]
    assert rows("SELECT k FROM B [NOW] EXCEPT SELECT k FROM A [NOW]") == []


def test_distinct_and_grouping_hold_nan_equal_to_itself_and_zero_to_minus_zero() -> None:
    nan = float("nan")
    s = pa.table({"ts": [1] * 6, "f": [0.0, -0.0, nan, nan, None, None]})
    assert len(rows("SELECT DISTINCT f FROM S [NOW]", S=s)) == 3
    assert sorted(n for _, n in rows("SELECT f, count(*) AS n FROM S [NOW] GROUP BY f", S=s)) == [2, 2, 2]


NUMBERS = pa.table(
    {
        "ts": [1] * 6,
        "g": ["a", "a", "a", "a", None, None],
        "i": [1, 2, 2, None, None, None],
        "f": [0.5, 1.5, 4.0, None, 8.0, None],
        "m": pa.array([Decimal("0.10"), Decimal("0.20"), None, None, None, None], pa.decimal128(6, 2)),
        "s": ["b", "B", None, "a", None, None],
        "b": [True, False, None, True, None, None],
    }
)


@pytest.mark.parametrize(
    ("aggregate", "of_a", "of_null"),
    [
        ("count(*)", 4, 2),
        ("count(i)", 3, 0),
        ("count(DISTINCT i)", 2, 0),
        ("sum(i)", 5, None),
        ("sum(DISTINCT i)", 3, None),
        ("sum(f)", 6.0, 8.0),
        ("sum(m)", Decimal("0.30"), None),
        ("avg(i)", 5 / 3, None),
        ("avg(m)", 0.15, None),
        ("min(i)", 1, None),
        ("max(f)", 4.0, 8.0),
        ("min(s)", "B", None),
        ("max(s)", "b", None),
        ("min(b)", False, None),
        ("stddev(f)", 1.8027756377319946, None),
        ("stddev_pop(f)", 1.4719601443879744, 0.0),
        ("variance(f)", 3.25, None),
        ("var_pop(f)", 3.25 * 2 / 3, 0.0),
        ("count(*) FILTER (WHERE i > 1)", 2, 0),
        ("sum(i) FILTER (WHERE i > 5)", None, None),
        ("sum(i) + count(*)", 9, None),
    ],
)
def test_aggregates_per_group(aggregate: str, of_a: Any, of_null: Any) -> None:
    found = dict(rows(f"SELECT g, {aggregate} AS it FROM S [NOW] GROUP BY g", S=NUMBERS))
    assert found == {"a": pytest.approx(of_a), None: pytest.approx(of_null)}


def test_an_aggregate_without_groups_has_a_row_only_while_its_input_has_one() -> None:
    s = pa.table({"ts": [3], "v": [7]})
    found = ms.reference("SELECT count(*) AS n, sum(v) AS t FROM S [RANGE 2]", {"S": s})
    assert found.to_pylist() == [{"n": 1, "t": 7, "valid_from": 3, "valid_to": 6}]


def test_having_asks_groups() -> None:
    assert rows("SELECT g FROM S [NOW] GROUP BY g HAVING count(i) > 0", S=NUMBERS) == [("a",)]


def test_a_sum_that_does_not_fit_is_an_error() -> None:
    s = pa.table({"ts": [1, 1], "v": [2**62, 2**62]})
    with pytest.raises(ms.InputError, match="integer overflow in sum"):
        rows("SELECT sum(v) AS t FROM S [NOW]", S=s)


def test_snapshots_of_an_aggregate_are_joined_where_they_are_equal() -> None:
    s = pa.table({"ts": [1, 3, 5], "v": [4, 4, 2]})
    found = ms.reference("SELECT max(v) AS m FROM S [RANGE 2]", {"S": s})
    assert [tuple(r.values()) for r in found.to_pylist()] == [(4, 1, 6), (2, 6, 8)]


class Longest:
    """A user-defined aggregate: the longest text."""

    def initialize(self) -> str:
        return ""

    def iterate(self, state: str, column: pa.Array) -> str:
        texts: list[str] = column.drop_null().to_pylist()
        return max([state, *texts], key=len)

    def terminate(self, state: str) -> str:
        return state


def test_a_users_aggregate_lives_its_life_per_group_and_snapshot() -> None:
    s = pa.table({"ts": [1, 2], "s": ["long", "x"]})
    longest = ms.AggregateFunction("longest", Longest, pa.string())
    found = ms.reference("SELECT longest(s) AS it FROM S [RANGE 1]", {"S": s}, functions=[longest])
    assert [tuple(r.values()) for r in found.to_pylist()] == [("long", 1, 3), ("x", 3, 4)]


def test_nested_values_are_carried() -> None:
    s = pa.table({"ts": [1, 1], "l": [[1, 2], None], "r": [{"a": 1}, {"a": 2}]})
    assert rows("SELECT l, r FROM S [NOW] UNION ALL SELECT l, r FROM S [NOW]", S=s) == [
        (None, {"a": 2}),
        (None, {"a": 2}),
        ([1, 2], {"a": 1}),
        ([1, 2], {"a": 1}),
    ]
