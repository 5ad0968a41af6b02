"""RisingWave's time windows, outer joins over intervals and ASOF joins."""

from __future__ import annotations

from tests.conformance.asked import Asked
from tests.conformance.comparisons import Bag, Windows

HOP = "t1 [HOP 30 MINUTES, 15 MINUTES]"
TUMBLE = "t1 [TUMBLE 30 MINUTES]"


def hopping(*layout: str) -> Windows:
    """Windows of half an hour, every quarter of an hour."""
    return Windows(1_800_000, 900_000, layout)


def tumbling(*layout: str) -> Windows:
    """Windows of half an hour."""
    return Windows(1_800_000, 1_800_000, layout)


CASES = {
    "asof_recent_ge": Asked(
        """SELECT e.id, e.asset, e.ts, r.ts AS rate_ts, r.rate
        FROM events AS e ASOF LEFT JOIN rates AS r ON e.asset = r.asset""",
        Bag(),
        integer_time=True,
    ),
    "between_left_join": Asked(
        """SELECT a.id, b.id AS bid, a.ts, b.ts AS bts, a.val, b.val AS bval
        FROM stream_a [NOW] AS a LEFT JOIN stream_b [RANGE 10 SECONDS] AS b ON a.id = b.id""",
        Bag(),
        "with [NOW] on the outer side there is one instant, so both kinds of padding agree",
        lateness={"stream_a": "5 seconds"},
    ),
    "hop_15m_30m_assign": Asked(f"SELECT row_id, uid, ts FROM {HOP}", hopping("row_id", "uid", "ts", "start", "end")),
    "hop_sum": Asked(f"SELECT sum(v) AS total FROM {HOP}", hopping("total", "start")),
    "hop_sum_by_uid": Asked(f"SELECT uid, sum(v) AS total FROM {HOP} GROUP BY uid", hopping("uid", "total", "start")),
    "tumble_30m_assign": Asked(
        f"SELECT row_id, uid, ts FROM {TUMBLE}", tumbling("row_id", "uid", "ts", "start", "end")
    ),
    "tumble_sum": Asked(f"SELECT sum(v) AS total FROM {TUMBLE}", tumbling("total", "start")),
    "tumble_sum_by_uid": Asked(
        f"SELECT uid, sum(v) AS total FROM {TUMBLE} GROUP BY uid", tumbling("uid", "total", "start")
    ),
}
