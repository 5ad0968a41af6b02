"""A small plan for every kind of operator, and the input they all share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from random import Random

import pyarrow as pa

W = "[RANGE 10]"


@dataclass(frozen=True)
class Kind:
    """A query whose plan holds an operator; `plan` forces the plan's shape."""

    operator: str
    query: str
    plan: str | None = None


JOINED = f"FROM A {W}, B {W}, C {W} WHERE A.k = B.k AND B.k = C.k"

KINDS = {
    "select": Kind("FilterOperator", f"SELECT * FROM A {W} WHERE v > 2"),
    "project": Kind("ComputeOperator", f"SELECT v + 1 AS w, k FROM A {W}"),
    "unnest": Kind("UnnestOperator", f"SELECT k, x, unnest([v, x, 7]) AS y FROM A {W}, range(v) AS u(x)"),
    "union": Kind("ConcatenateOperator", f"SELECT k FROM A {W} UNION ALL SELECT k FROM B [TUMBLE 7]"),
    "window": Kind("AssignWindowOperator", f"SELECT * FROM (SELECT k FROM A [NOW]) {W}"),
    "join": Kind("SymmetricJoin", f"SELECT A.v, B.v AS u, A.k FROM A {W}, B [RANGE 4] WHERE A.k = B.k"),
    "theta join": Kind("SymmetricJoin", f"SELECT A.v, B.v AS u FROM A {W}, B [RANGE 4] WHERE A.v < B.v"),
    "left deep joins": Kind("SymmetricJoin", f"SELECT A.v, B.v AS u, C.v AS w {JOINED}", "((A B) C)"),
    "right deep joins": Kind("SymmetricJoin", f"SELECT A.v, B.v AS u, C.v AS w {JOINED}", "(A (B C))"),
    "multi-way join": Kind(
        "MultiwayJoinOperator", f"SELECT A.v, B.v AS u, C.v AS w {JOINED}", "A: B C, B: C A, C: B A"
    ),
    "routed join": Kind(
        "MultiwayJoinOperator", f"SELECT A.v, B.v AS u, C.v AS w {JOINED}", "A -> B <- C, B <- C -> A, C -> B -> A"
    ),
    "null-matching join": Kind("SymmetricJoin", f"SELECT A.v FROM A {W} JOIN B {W} ON A.k IS NOT DISTINCT FROM B.k"),
    "left join": Kind("OuterJoinOperator", f"SELECT A.v, B.v AS u FROM A {W} LEFT JOIN B [RANGE 4] ON A.k = B.k"),
    "full join": Kind("OuterJoinOperator", f"SELECT A.v, B.v AS u FROM A {W} FULL JOIN B [TUMBLE 6] ON A.k = B.k"),
    "anti join": Kind(
        "OuterJoinOperator", f"SELECT v FROM A {W} WHERE NOT EXISTS (SELECT 1 FROM B [RANGE 3] WHERE B.k = A.k)"
    ),
    "semi join with a condition": Kind(
        "OuterJoinOperator", f"SELECT v FROM A {W} WHERE EXISTS (SELECT 1 FROM B {W} WHERE B.k = A.k AND B.v < A.v)"
    ),
    "distinct": Kind("DeduplicateOperator", f"SELECT DISTINCT k FROM A {W}"),
    "distinct over a join": Kind("DeduplicateOperator", f"SELECT DISTINCT A.k FROM A {W}, B {W} WHERE A.k = B.k"),
    "aggregate": Kind(
        "GroupAggregateOperator", f"SELECT k, count(*) AS n, sum(v) AS s, min(v) AS m FROM A {W} GROUP BY k"
    ),
    "global aggregate": Kind("GroupAggregateOperator", "SELECT count(*) AS n, max(v) AS m FROM A [HOP 8, 4]"),
    "over": Kind(
        "OverPartitionOperator",
        f"SELECT k, v, rank() OVER w AS r, sum(v) OVER (w ROWS 2 PRECEDING) AS s FROM A {W} "
        "WINDOW w AS (PARTITION BY k ORDER BY v DESC)",
    ),
    "dependent sub-query": Kind(
        "OuterJoinOperator",
        f"SELECT v, (SELECT sum(B.v) FROM B {W} WHERE B.k < A.k GROUP BY B.k ORDER BY B.k LIMIT 1) AS s FROM A {W}",
    ),
    "filled gaps": Kind(
        "UnnestOperator", f"SELECT ts, v FROM GAP_FILL(A {W} AS a, ts, 1, INTERPOLATE(v) PARTITION BY k)"
    ),
    "first rows": Kind("OverPartitionOperator", f"SELECT k, v FROM A {W} ORDER BY v DESC, k LIMIT 2"),
    "over a stream": Kind(
        "OverStreamOperator",
        "SELECT k, lag(v) OVER w AS p, sum(v) OVER (w RANGE 5 PRECEDING) AS s FROM A "
        "WINDOW w AS (PARTITION BY k ORDER BY ts)",
    ),
    "running sums": Kind(
        "RunningOver",
        "SELECT k, rank() OVER w AS r, sum(v) OVER w AS s FROM A WINDOW w AS (PARTITION BY k ORDER BY ts)",
    ),
    "pattern": Kind(
        "MatchRowsOperator",
        "SELECT k, n FROM A MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES COUNT(U.*) AS n "
        "PATTERN (S U+ D) DEFINE U AS v >= PREV(v), D AS D.v < S.v) AS m",
    ),
    "all rows of a pattern": Kind(
        "MatchRowsOperator",
        "SELECT * FROM A MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES CLASSIFIER() AS c, MATCH_NUMBER() AS n, "
        "SUM(U.v) AS s, FINAL LAST(U.v) AS l ALL ROWS PER MATCH PATTERN (S U+) WITHIN 9 DEFINE U AS v <= NEXT(v)) AS m",
    ),
    "difference": Kind("SetOperationOperator", f"SELECT k FROM A {W} EXCEPT ALL SELECT k FROM B {W}"),
    "intersection": Kind("SetOperationOperator", f"SELECT k FROM A {W} INTERSECT ALL SELECT k FROM B {W}"),
    "row window": Kind("RowWindowOperator", "SELECT k, v FROM A [ROWS 3]"),
    "partitioned row window": Kind("RowWindowOperator", "SELECT k, v FROM A [PARTITION BY k ROWS 2]"),
    "batches of rows": Kind("RowWindowOperator", "SELECT k, v FROM A [PARTITION BY k ROWS 3 SLIDE 2 ORDER BY v DESC]"),
    "session window": Kind(
        "SessionWindowOperator",
        "SELECT k, window_start, count(*) AS n FROM A [PARTITION BY k SESSION 3] GROUP BY k, window_start",
    ),
    "bounds of windows": Kind("WindowBoundsOperator", "SELECT k, v, window_start, window_end FROM A [CUMULATE 12, 4]"),
    "istream": Kind("ChangesOperator", f"SELECT ISTREAM DISTINCT k FROM A {W}"),
    "dstream": Kind("ChangesOperator", f"SELECT DSTREAM k FROM A {W}"),
    "rstream": Kind("InstantsOperator", "SELECT RSTREAM k FROM A [RANGE 3]"),
    "sequence": Kind("FollowedByOperator", "SELECT A.v, B.v AS u FROM A FOLLOWED BY B CHRONICLE ON A.k = B.k WITHIN 9"),
    "choosy sequence": Kind(
        "FollowedByOperator", "SELECT A.v, B.v AS u FROM A FOLLOWED BY B CHRONICLE ON A.k = B.k AND A.v < B.v"
    ),
    "row before": Kind("FollowedByOperator", "SELECT a.v, b.v AS u FROM A AS a FOLLOWED BY A AS b ON a.k = b.k"),
    "as-of join": Kind("FollowedByOperator", "SELECT A.v, B.v AS u FROM A ASOF LEFT JOIN B ON A.k = B.k"),
    "absence": Kind("FollowedByOperator", "SELECT A.v FROM A NOT FOLLOWED BY B ON A.k = B.k AND A.v < B.v WITHIN 9"),
    "later as-of join": Kind(
        "FollowedByOperator", "SELECT A.v, B.v AS u FROM A ASOF LEFT JOIN B ON A.k = B.k AND A.ts < B.ts WITHIN 9"
    ),
}


@cache
def inputs(rows: int = 40, last: int = 60, seed: int = 5) -> Mapping[str, pa.Table]:
    """Three streams in order of time, with bursts, gaps, duplicates and null keys."""
    random = Random(seed)
    return {name: _stream(random, rows, last) for name in "ABC"}


def _stream(random: Random, rows: int, last: int) -> pa.Table:
    times = sorted(random.choice([random.randint(0, last), 17, 18]) for _ in range(rows))
    keys = [random.choice(["a", "b", "c", None]) for _ in times]
    values = [random.choice([1, 2, 3, 4, None]) for _ in times]
    return pa.table({"ts": times, "k": pa.array(keys, pa.string()), "v": pa.array(values, pa.int64())})
