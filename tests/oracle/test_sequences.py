"""Which earlier tuples each later one is paired with."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import midstream as ms

A = pa.table({"ts": [1, 3, 3, 6], "k": pa.array([1, 1, 2, None], pa.int64()), "a": ["a1", "a2", "a3", "a4"]})
B = pa.table({"ts": [3, 4, 9, 9], "k": pa.array([1, 1, 1, None], pa.int64()), "b": ["b1", "b2", "b3", "b4"]})


def pairs(step: str) -> list[tuple[Any, ...]]:
    found = ms.reference(f"SELECT A.a, B.b FROM A FOLLOWED BY B {step}", {"A": A, "B": B})
    assert found["valid_to"].to_pylist() == [t + 1 for t in found["valid_from"].to_pylist()]
    return [tuple(row.values())[:-1] for row in found.to_pylist()]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("RECENT", [("a3", "b1", 3), ("a3", "b2", 4), ("a4", "b3", 9), ("a4", "b4", 9)]),
        ("RECENT ON A.k = B.k", [("a2", "b1", 3), ("a2", "b2", 4), ("a2", "b3", 9)]),
        ("RECENT ON A.k = B.k WITHIN 1", [("a2", "b1", 3), ("a2", "b2", 4)]),
        ("CHRONICLE ON A.k = B.k", [("a1", "b1", 3), ("a2", "b2", 4)]),
        ("CHRONICLE", [("a1", "b1", 3), ("a2", "b2", 4), ("a3", "b3", 9), ("a4", "b4", 9)]),
        ("CHRONICLE WITHIN 1", [("a2", "b1", 3), ("a3", "b2", 4)]),
        ("ALL ON A.k = B.k WITHIN 2", [("a1", "b1", 3), ("a2", "b1", 3), ("a2", "b2", 4)]),
    ],
)
def test_pairs_of_a_sequence(step: str, expected: list[tuple[Any, ...]]) -> None:
    assert pairs(step) == expected


def test_a_chain_goes_on_from_the_time_of_its_last_part() -> None:
    c = pa.table({"ts": [5, 11], "c": ["c1", "c2"]})
    query = "SELECT A.a, B.b, C.c FROM A FOLLOWED BY B CHRONICLE ON A.k = B.k FOLLOWED BY C ALL WITHIN 1"
    found = ms.reference(query, {"A": A, "B": B, "C": c})
    assert [tuple(row.values())[:-1] for row in found.to_pylist()] == [("a2", "b2", "c1", 5)]


def test_what_is_not_followed_is_told_when_the_time_is_over() -> None:
    absent = "SELECT A.a FROM A NOT FOLLOWED BY B ON A.k = B.k WITHIN {}"
    for within, expected in ((1, [("a1", 2), ("a3", 4), ("a4", 7)]), (2, [("a3", 5), ("a4", 8)])):
        found = ms.reference(absent.format(within), {"A": A, "B": B})
        assert [tuple(row.values())[:-1] for row in found.to_pylist()] == expected
    strictly = "SELECT A.a FROM A NOT FOLLOWED BY B ON A.ts < B.ts AND A.a < B.b AND B.b <> 'b2' WITHIN 2"
    found = ms.reference(strictly, {"A": A, "B": B})
    assert found["a"].to_pylist() == ["a2", "a3", "a4"]


def test_asof_left_join_pads_a_tuple_that_follows_nothing() -> None:
    query = "SELECT B.b, A.a FROM B ASOF LEFT JOIN A ON A.k = B.k"
    found = ms.reference(query, {"A": A, "B": B})
    assert [tuple(row.values())[:-1] for row in found.to_pylist()] == [
        ("b1", "a2", 3),
        ("b2", "a2", 4),
        ("b3", "a2", 9),
        ("b4", None, 9),
    ]
