"""FROM with commas and USING, windows over joins that hold one instant, and streams whose times cannot meet."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import midstream as ms
from midstream.cluster.local.embedded_session import EmbeddedSession

START = dt.datetime(2024, 3, 1, 12)
SECOND = dt.timedelta(seconds=1)


def rows(values: list[tuple[int, int]], zone: str | None = None) -> pa.Table:
    times = pa.array([START + t * SECOND for t, _ in values], pa.timestamp("us")).cast(pa.timestamp("us", zone))
    return pa.table({"at": times, "k": pa.array([k for _, k in values], pa.int64()), "n": range(len(values))})


def test_using_looks_only_at_its_part_of_from() -> None:
    t1 = pa.table({"ts": [1, 1], "f2": [1, 2]})
    t2 = pa.table({"ts": [1, 1], "f2": [2, 3]})
    query = "SELECT t2.f2, x.f2 AS g FROM t2 [NOW], t2 [NOW] AS x JOIN t1 [NOW] USING (f2)"
    found = ms.run(query, {"t1": t1, "t2": t2}, time="ts")
    assert sorted(zip(*(found[name].to_pylist() for name in ("f2", "g")), strict=True)) == [(2, 2), (3, 2)]
    assert ms.snapshot_equal(found, ms.reference(query, {"t1": t1, "t2": t2}, time="ts"))


streams = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2)), max_size=8)

ENRICHED = [
    "SELECT k, count(*) AS n FROM (SELECT a.k FROM A [NOW] AS a JOIN B [RANGE 3 SECONDS] AS b ON a.k = b.k)"
    " [RANGE 2 SECONDS] AS s GROUP BY k",
    "SELECT count(*) AS n, count(m) AS m FROM (SELECT b.n AS m FROM A [NOW] AS a LEFT JOIN B [ROWS 2] AS b"
    " ON a.k = b.k) [TUMBLE 2 SECONDS] AS s",
    "SELECT k, m FROM (SELECT a.k, b.n AS m FROM B [UNBOUNDED] AS b RIGHT JOIN A [NOW] AS a ON a.k = b.k)"
    " [ROWS 2] AS s",
    "SELECT RSTREAM a.k, c.n AS m FROM B [UNBOUNDED] AS b, A [NOW] AS a, B [RANGE 2 SECONDS] AS c"
    " WHERE a.k = b.k AND b.k = c.k",
    "SELECT sum(n) AS n FROM (SELECT a.n FROM A [NOW] AS a WHERE EXISTS (SELECT 1 FROM B [RANGE 2 SECONDS] AS b"
    " WHERE b.k = a.k)) [RANGE 1 SECOND] AS s",
]


@settings(max_examples=60, deadline=None)
@given(streams, streams, st.sampled_from(ENRICHED), st.integers(1, 9))
def test_a_window_over_a_join_of_one_instant_holds_each_row_once(
    a: list[tuple[int, int]], b: list[tuple[int, int]], query: str, batch_rows: int
) -> None:
    inputs = {"A": rows(a), "B": rows(b)}
    found = ms.run(query, inputs, time="at", batch_rows=batch_rows)
    difference = ms.snapshot_equal(found, ms.reference(query, inputs, time="at"))
    assert difference, str(difference)


JOINED = "SELECT A.k FROM A [RANGE 1 HOUR], B [RANGE 1 HOUR] WHERE A.k = B.k"


@pytest.mark.parametrize("answer", [ms.run, ms.reference], ids=["run", "reference"])
def test_times_with_and_without_a_zone_do_not_meet(answer: Any) -> None:
    inputs = {"A": rows([(1, 1)]), "B": rows([(1, 1)], "Europe/Berlin")}
    with pytest.raises(ms.QueryError, match="B and A do not share a time") as caught:
        answer(JOINED, inputs, time="at")
    assert "give A.at its zone" in str(caught.value)


def test_times_of_two_zones_meet() -> None:
    inputs = {"A": rows([(1, 1)], "Asia/Tokyo"), "B": rows([(1, 1)], "Europe/Berlin")}
    assert ms.run(JOINED, inputs, time="at").num_rows == 1


def test_a_session_refuses_to_join_times_with_and_without_a_zone() -> None:
    session = EmbeddedSession()
    session.stream("A", rows([]).schema, time="at")
    session.stream("B", rows([], "UTC").schema, time="at")
    with pytest.raises(ms.QueryError, match="do not share a time"):
        session.query("q", JOINED)
