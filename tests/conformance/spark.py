"""Apache Spark's stream-stream joins and duplicate elimination. Time counts milliseconds."""

from __future__ import annotations

from tests.conformance.asked import Asked
from tests.conformance.comparisons import Bag, Comparison, Final, NeverMet, Windows


def asked(cql: str, compare: Comparison | None = None, note: str = "") -> Asked:
    """A query over milliseconds."""
    return Asked(cql, compare or Bag(), note, integer_time=True)


def interval_outer(kind: str) -> Asked:
    """An outer join over intervals, up to the time at which the source stops."""
    return asked(
        f"""SELECT l.key, r.key AS rkey, (l.ts - l.ts % 1000) / 1000 AS t, (r.ts - r.ts % 1000) / 1000 AS rt
        FROM L [RANGE 5000] AS l {kind} JOIN R [RANGE 5000] AS r ON l.key = r.key
        WHERE coalesce(l.ts, r.ts) < 30000""",
        NeverMet(("key", 5000), ("rkey", 5000)),
        "ours is padded at the instants without a partner; compared are the rows that never had one",
    )


def windowed_outer(kind: str) -> Asked:
    """An outer join of tumbling windows; the padded rows of the source's last window are not due there."""
    return asked(
        f"""SELECT coalesce(l.key, r.key) AS key, l.val, r.val AS rval
        FROM L [TUMBLE 10000] AS l {kind} JOIN R [TUMBLE 10000] AS r ON l.key = r.key
        WHERE coalesce(l.ts, r.ts) < 20000 OR (l.ts IS NOT NULL AND r.ts IS NOT NULL)""",
        Windows(10000, 10000, ("key", "end/1000", "val", "rval")),
    )


CASES = {
    "dedup_all_columns": asked("SELECT DISTINCT v FROM S [UNBOUNDED]", Final()),
    "dedup_some_columns": asked(
        """SELECT k, v FROM S [UNBOUNDED] AS s
        WHERE NOT EXISTS (SELECT 1 FROM S [UNBOUNDED] AS e WHERE e.k = s.k AND e.ts < s.ts)""",
        Final(),
    ),
    "dedup_then_window_count": asked(
        "SELECT count(*) AS n FROM (SELECT DISTINCT ts, v FROM S [TUMBLE 5000]) AS d WHERE ts < 40000",
        Windows(5000, 5000, ("start/1000", "n")),
        "the source stops before its last window is complete",
    ),
    "dedup_with_watermark": asked("SELECT DISTINCT (ts - ts % 1000) / 1000 AS t FROM S [UNBOUNDED]", Final()),
    "inner_join_non_time": asked(
        "SELECT l.key, l.val, r.val AS rval FROM L [UNBOUNDED] AS l, R [UNBOUNDED] AS r WHERE l.key = r.key"
    ),
    "inner_join_range_one_side": asked(
        """SELECT l.key, l.ts / 1000 AS t, r.ts / 1000 AS rt FROM L [UNBOUNDED] AS l, R [UNBOUNDED] AS r
        WHERE l.key = r.key AND l.ts < r.ts - 5000""",
        note="the interval is open to one side, so nothing expires",
    ),
    "inner_join_range_two_side": asked(
        """SELECT l.key, l.ts / 1000 AS t, r.ts / 1000 AS rt FROM L [RANGE 10000] AS l, R [RANGE 5000] AS r
        WHERE l.key = r.key"""
    ),
    "inner_join_tumbling_no_watermark": asked(
        """SELECT l.key, l.val, r.val AS rval FROM L [TUMBLE 10000] AS l, R [TUMBLE 10000] AS r
        WHERE l.key = r.key""",
        Windows(10000, 10000, ("key", "end/1000", "val", "rval")),
    ),
    "range_left_outer": interval_outer("LEFT"),
    "range_right_outer": interval_outer("RIGHT"),
    "self_join_mod5": asked(
        "SELECT a.v % 5 AS k, a.v, b.v AS w FROM S [UNBOUNDED] AS a, S [UNBOUNDED] AS b WHERE a.v % 5 = b.v % 5"
    ),
    "three_way_join": asked(
        """SELECT a.key, a.val, b.key AS bkey, b.val AS bval, c.key AS ckey, c.val AS cval
        FROM A [UNBOUNDED] AS a, B [UNBOUNDED] AS b, C [UNBOUNDED] AS c WHERE a.key = b.key AND c.key = b.key"""
    ),
    "windowed_left_outer": windowed_outer("LEFT"),
    "windowed_right_outer": windowed_outer("RIGHT"),
}

INEXPRESSIBLE = {
    "dedup_within_watermark_subset": "Which of several copies survives depends on the order of arrival: the source "
    "keeps the copy at 17 s because the one at 16 s arrives after it. A query here depends on event time alone, so "
    "that plans, batches and replays cannot change its answer; `SELECT ISTREAM DISTINCT k FROM S [RANGE 2000]` gives "
    "the same keys, each with its first copy's time.",
}
