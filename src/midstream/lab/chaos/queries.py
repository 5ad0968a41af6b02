"""The queries of the chaos job, each with what DuckDB says the tuples of its snapshots are.

Streams have the columns k, v and ts; v and ts are different in each row of a stream. The SQL gives the tuples of the
relation at each instant `i.t`; where a query gives a stream instead, its rows with their times.
"""

from __future__ import annotations

from dataclasses import dataclass

LONGEST = 40
"""No window is longer."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A query and its meaning in SQL; `columns` are its own."""

    cql: str
    sql: str
    columns: tuple[str, ...]
    is_stream: bool = False


def _valid(alias: str, window: int) -> str:
    return f"{alias}.ts <= i.t AND i.t < {alias}.ts + {window + 1}"


QUERIES = {
    "joined": Judged(
        "SELECT A.v AS a, B.v AS b, C.v AS c FROM A [RANGE 20], B [RANGE 20], C [RANGE 20]"
        " WHERE A.k = B.k AND B.k = C.k",
        f"SELECT i.t, A.v AS a, B.v AS b, C.v AS c FROM i JOIN A ON {_valid('A', 20)} JOIN B ON {_valid('B', 20)}"
        f" AND A.k = B.k JOIN C ON {_valid('C', 20)} AND B.k = C.k",
        ("a", "b", "c"),
    ),
    "grouped": Judged(
        "SELECT A.k, count(*) AS n, sum(B.v) AS s FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k GROUP BY A.k",
        f"SELECT i.t, A.k, count(*) AS n, sum(B.v) AS s FROM i JOIN A ON {_valid('A', 20)} JOIN B"
        f" ON {_valid('B', 20)} AND A.k = B.k GROUP BY i.t, A.k",
        ("k", "n", "s"),
    ),
    "outer": Judged(
        "SELECT A.v AS a, B.v AS b FROM A [RANGE 10] LEFT JOIN B [RANGE 5] ON A.k = B.k",
        f"SELECT i.t, A.v AS a, B.v AS b FROM i JOIN A ON {_valid('A', 10)} LEFT JOIN B ON A.k = B.k"
        f" AND {_valid('B', 5)}",
        ("a", "b"),
    ),
    "once": Judged(
        "SELECT DISTINCT k FROM A [RANGE 8]", f"SELECT DISTINCT i.t, A.k FROM i JOIN A ON {_valid('A', 8)}", ("k",)
    ),
    "newest": Judged(
        "SELECT k, v FROM C [PARTITION BY k ROWS 2]",
        "SELECT i.t, C.k, C.v FROM i JOIN C ON C.ts <= i.t"
        " QUALIFY row_number() OVER (PARTITION BY i.t, C.k ORDER BY C.ts DESC) <= 2",
        ("k", "v"),
    ),
    "hops": Judged(
        "SELECT k, count(*) AS n FROM C [HOP 20, 5] GROUP BY k",
        "SELECT i.t, C.k, count(*) AS n FROM i JOIN C ON i.t // 5 * 5 - 20 <= C.ts AND C.ts < i.t // 5 * 5"
        " GROUP BY i.t, C.k",
        ("k", "n"),
    ),
    "without": Judged(
        "SELECT k FROM A [RANGE 6] EXCEPT SELECT k FROM B [RANGE 9]",
        f"SELECT DISTINCT i.t, A.k FROM i JOIN A ON {_valid('A', 6)} EXCEPT"
        f" SELECT i.t, B.k FROM i JOIN B ON {_valid('B', 9)}",
        ("k",),
    ),
    "changes": Judged(
        "SELECT ISTREAM k, v FROM C [RANGE 10] WHERE k < 4",
        "SELECT C.ts AS t, k, v FROM C WHERE k < 4",
        ("k", "v"),
        True,
    ),
}
COMING = {
    "late_join": Judged(
        "SELECT A.v AS a, B.v AS b FROM A [RANGE 15], B [RANGE 15] WHERE A.k = B.k",
        f"SELECT i.t, A.v AS a, B.v AS b FROM i JOIN A ON {_valid('A', 15)} JOIN B ON {_valid('B', 15)} AND A.k = B.k",
        ("a", "b"),
    ),
    "late_groups": Judged(
        "SELECT k, max(v) AS m FROM B [RANGE 20] GROUP BY k",
        f"SELECT i.t, B.k, max(B.v) AS m FROM i JOIN B ON {_valid('B', 20)} GROUP BY i.t, B.k",
        ("k", "m"),
    ),
}
"""Queries that are added while the job runs, and dropped again."""

OTHERWISE = Judged(
    "SELECT ISTREAM v AS w FROM B [RANGE 10] WHERE k > 0", "SELECT B.ts AS t, v AS w FROM B WHERE k > 0", ("w",), True
)
"""What takes the place of `changes`, with other columns."""

DELIVERED = ("joined", "changes")
"""The queries that have a folder as a sink: their results are the same rows whatever batches their input comes in."""

PLANS = ("((A B) C)", "(A (B C))", "((A C) B)", "A: B C, B: A C, C: B A")
STRATEGIES = (
    "moving_state",
    "moving_state_paced",
    "parallel_track",
    "genmig",
    "genmig_reference_point",
    "genmig_shortened",
    "auto",
)
