"""The examples that the papers work out by hand."""

from __future__ import annotations

import pyarrow as pa

import midstream as ms
from midstream.algebra.snapshots import multiset_equal

A = pa.table({"ts": [10, 50], "k": ["a", "a"]})
B = pa.table({"ts": [20, 70], "k": ["a", "a"]})


def relation(rows: list[tuple[str, int, int]]) -> pa.Table:
    return pa.table({"k": [r[0] for r in rows], "valid_from": [r[1] for r in rows], "valid_to": [r[2] for r in rows]})


def test_genmig_example_1_join() -> None:
    found = ms.reference("SELECT A.k FROM A [RANGE 100], B [RANGE 100] WHERE A.k = B.k", {"A": A, "B": B})
    expected = relation([("a", 20, 111), ("a", 50, 121), ("a", 70, 111), ("a", 70, 151)])
    assert multiset_equal(found, expected), str(multiset_equal(found, expected))


def test_genmig_example_1_distinct() -> None:
    query = "SELECT DISTINCT A.k FROM A [RANGE 100], B [RANGE 100] WHERE A.k = B.k"
    found = ms.reference(query, {"A": A, "B": B})
    assert found.to_pylist() == [{"k": "a", "valid_from": 20, "valid_to": 151}]
    assert ms.snapshot_equal(found, relation([("a", 20, 151)]))


def test_genmig_example_1_as_streams() -> None:
    body = "DISTINCT A.k FROM A [RANGE 100], B [RANGE 100] WHERE A.k = B.k"
    entered = ms.reference(f"SELECT ISTREAM {body}", {"A": A, "B": B})
    left = ms.reference(f"SELECT DSTREAM {body}", {"A": A, "B": B})
    assert entered.to_pylist() == [{"k": "a", "ts": 20}]
    assert left.to_pylist() == [{"k": "a", "ts": 151}]


def test_cql_istream_of_a_filter_over_an_unbounded_window_is_the_filter() -> None:
    speeds = pa.table({"ts": [1, 2, 2, 5], "car": [1, 2, 3, 1], "speed": [70, 60, 66, 71]})
    found = ms.reference("SELECT ISTREAM * FROM S [UNBOUNDED] WHERE speed > 65", {"S": speeds})
    assert [(r["car"], r["speed"], r["ts"]) for r in found.select([1, 2, 3]).to_pylist()] == [
        (1, 70, 1),
        (3, 66, 2),
        (1, 71, 5),
    ]


def test_cql_rstream_over_now_is_the_stream_itself() -> None:
    speeds = pa.table({"ts": [1, 2, 2, 5], "car": [1, 2, 3, 1]})
    found = ms.reference("SELECT RSTREAM car FROM S [NOW]", {"S": speeds})
    assert found.to_pylist() == [{"car": c, "ts": t} for t, c in [(1, 1), (2, 2), (2, 3), (5, 1)]]


def test_nested_windows_look_at_the_inner_query_at_every_instant() -> None:
    bids = pa.table({"ts": [1, 3], "price": [10, 30]})
    query = "SELECT max(m) AS most FROM (SELECT max(price) AS m FROM bids [RANGE 1]) [RANGE 2]"
    # The inner maximum is 10 at 1 and 2, and 30 at 3 and 4; the window carries each instant's value two ticks further.
    found = ms.reference(query, {"bids": bids})
    assert found.to_pylist() == [
        {"most": 10, "valid_from": 1, "valid_to": 3},
        {"most": 30, "valid_from": 3, "valid_to": 7},
    ]


def test_nested_windows_count_one_element_per_instant() -> None:
    clicks = pa.table({"ts": [5], "page": ["x"]})
    query = "SELECT count(*) AS n FROM (SELECT page FROM clicks [RANGE 2]) [RANGE 2]"
    found = ms.reference(query, {"clicks": clicks})
    counts = [(r["n"], r["valid_from"], r["valid_to"]) for r in found.to_pylist()]
    assert counts == [(1, 5, 6), (2, 6, 7), (3, 7, 8), (2, 8, 9), (1, 9, 10)]


def test_a_window_over_a_hopping_query_sees_its_boundaries_only() -> None:
    clicks = pa.table({"ts": [1, 12, 14], "v": [5, 7, 9]})
    query = "SELECT total FROM (SELECT sum(v) AS total FROM clicks [TUMBLE 10]) [ROWS 2]"
    found = ms.reference(query, {"clicks": clicks})
    assert found.to_pylist() == [
        {"total": 5, "valid_from": 10, "valid_to": None},
        {"total": 16, "valid_from": 20, "valid_to": None},
    ]
