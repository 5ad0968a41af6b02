"""Apache Flink's interval joins, window joins, set operations and restore tests."""

from __future__ import annotations

from tests.conformance.asked import Asked
from tests.conformance.comparisons import Bag, Final, NeverMet, Windows

PER_NAME = """(
  SELECT name, count(DISTINCT string) AS uv FROM {} [TUMBLE 5 SECONDS] GROUP BY name
) AS {}"""
LEFT, RIGHT = PER_NAME.format("T1", "l"), PER_NAME.format("T2", "r")
UV_WINDOWS = Windows(5000, 5000, ("name", "start", "end", "uv", "ruv"))
ONE_SECOND = "1 second"


def uv_join(kind: str, on: str = "l.name = r.name") -> Asked:
    """A join of two grouped tumbling windows; row 7 of each stream is late by more than the source's second."""
    return Asked(
        f"SELECT l.name, l.uv, r.uv AS ruv FROM {LEFT} {kind} JOIN {RIGHT} ON {on}", UV_WINDOWS, lateness=ONE_SECOND
    )


def uv_half_join(condition: str) -> Asked:
    """A semi or anti join of two grouped tumbling windows."""
    layout = Windows(5000, 5000, ("name", "start", "end", "uv"))
    return Asked(f"SELECT l.name, l.uv FROM {LEFT} WHERE {condition}", layout, lateness=ONE_SECOND)


def offset_join(offset: str, ticks: int) -> Asked:
    """A join of two tumbling windows whose origin is moved."""
    layout = ("ts", "int", "string", "name", "start", "end", "rint", "rstring", "rname")
    return Asked(
        f"""SELECT l.ts, l.int, l.string, l.name, r.int AS rint, r.string AS rstring, r.name AS rname
        FROM T1 [TUMBLE 5 SECONDS OFFSET {offset}] AS l JOIN T2 [TUMBLE 5 SECONDS OFFSET {offset}] AS r
        ON l.name = r.name""",
        Windows(5000, 5000, layout, ticks),
        lateness=ONE_SECOND,
    )


def empty_interval(kind: str, low: int, high: int) -> Asked:
    """An outer join whose interval has no instant: no pair, so every row of an outer side is padded while valid."""
    return Asked(
        f"""SELECT T2.key, T2.id, T1.id AS left_id FROM T1 [RANGE 5 SECONDS] {kind} JOIN T2 [RANGE 5 SECONDS]
        ON T1.key = T2.key
        AND T1.ts >= T2.ts + INTERVAL '{low}' SECOND AND T1.ts <= T2.ts + INTERVAL '{high}' SECOND""",
        NeverMet(("left_id", 5000), ("id", 5000)),
        "windows cannot have a negative size, so the interval stands in the condition",
    )


def counted_pairs(side: str, other: str) -> Asked:
    """Pairs of an interval join, counted per tumbling window of one side's time."""
    return Asked(
        f"""SELECT {side}.key, {side}.ts - {side}.ts % 4000 + 4000 AS window_end, count({other}.key) AS n
        FROM T1 [UNBOUNDED], T2 [UNBOUNDED]
        WHERE T1.key = T2.key AND T1.ts BETWEEN T2.ts - 5000 AND T2.ts + 5000
        GROUP BY {side}.key, {side}.ts - {side}.ts % 4000 + 4000""",
        Final(milliseconds=(1,)),
        "a window over one side's time alone is a group, so the join keeps everything",
        integer_time=True,
    )


def first_or_last(window: str, size: int, slide: int, comparison: str, by_item: bool = False) -> Asked:
    """The first or last row of each window, or of each window and item: the one no other comes before."""
    same = " AND other.item = bid.item" if by_item else ""
    return Asked(
        f"""SELECT bid.ts, bid.price, bid.item, bid.supplier_id, 1 AS one FROM bid_t [{window}] AS bid
        WHERE NOT EXISTS (SELECT 1 FROM bid_t [{window}] AS other WHERE other.ts {comparison} bid.ts{same})""",
        Windows(size, slide, ("ts", "price", "item", "supplier_id", "start", "end", "one")),
    )


def row_join(kind: str, window: str, layout: Windows, lateness: str | None = ONE_SECOND, note: str = "") -> Asked:
    """Rows of both streams with equal name in the same window."""
    return Asked(
        f"""SELECT l.name, l.id, l.num, r.id AS rid, r.num AS rnum
        FROM source_one_t [{window}] AS l {kind} JOIN source_two_t [{window}] AS r ON l.name = r.name""",
        layout,
        note,
        lateness=lateness,
    )


PAIRS = Windows(5000, 5000, ("start:id", "end:id", "name", "id", "num", "rid", "rnum"))

CASES = {
    "intervaljoin_testRowTimeInnerJoin": Asked(
        """SELECT T2.key, T2.id, T1.id AS left_id FROM T1 [RANGE 5 SECONDS], T2 [RANGE 6 SECONDS]
        WHERE T1.key = T2.key"""
    ),
    "intervaljoin_testRowTimeInnerJoinWithIsNotDistinctFrom": Asked(
        """SELECT T2.key, T2.id, T1.id AS left_id FROM T1 [RANGE 5 SECONDS], T2 [RANGE 6 SECONDS]
        WHERE T1.key IS NOT DISTINCT FROM T2.key"""
    ),
    "intervaljoin_testRowTimeInnerJoinWithWindowAggregateOnFirstTime": counted_pairs("T1", "T2"),
    "intervaljoin_testRowTimeInnerJoinWithWindowAggregateOnSecondTime": counted_pairs("T2", "T1"),
    "intervaljoin_testRowTimeLeftOuterJoinNegativeIntervalSize": empty_interval("LEFT", 3, 1),
    "intervaljoin_testRowTimeRightOuterJoinNegativeIntervalSize": empty_interval("RIGHT", 5, 1),
    "intervaljoin_testRowTimeFullOuterJoinNegativeIntervalSize": empty_interval("FULL", 5, 4),
    "intervaljoin_testRowTimeRightOuterJoin": Asked(
        """SELECT T2.key, T2.id, T1.id AS left_id FROM T1 [RANGE 5 SECONDS] RIGHT JOIN T2 [RANGE 6 SECONDS]
        ON T1.key = T2.key AND T2.id <> 'R-5'""",
        NeverMet(("left_id", 5000), ("id", 6000)),
        "ours is padded at the instants without a partner; compared are the rows that never had one",
    ),
    "restore_dedup_first": Asked(
        """SELECT order_id, "user", product, order_time FROM MyTable [UNBOUNDED] AS m WHERE NOT EXISTS (
          SELECT 1 FROM MyTable [UNBOUNDED] AS e WHERE e.product = m.product AND e.order_time < m.order_time)""",
        Final(),
    ),
    "restore_interval_join_negative": Asked(
        """SELECT o.id, o.ts, s.id AS shipment FROM orders_t [RANGE 10 SECONDS] AS o
        LEFT JOIN shipments_t [RANGE 10 SECONDS] AS s
        ON o.id = s.order_id AND o.ts >= s.ts + INTERVAL '10' SECOND AND o.ts <= s.ts + INTERVAL '5' SECOND""",
        NeverMet(("id", 10000), ("shipment", 10000)),
        "windows cannot have a negative size, so the interval stands in the condition",
    ),
    "restore_match_simple": Asked(
        """SELECT a.id AS a, b.id AS b, c.id AS c
        FROM MyTable [ROWS 3] AS a, MyTable [ROWS 3] AS b, MyTable [ROWS 3] AS c
        WHERE a.name = 'a' AND b.name = 'b' AND c.name = 'c' AND a.ts < b.ts AND b.ts < c.ts""",
        Bag(),
        "three rows of the last three, in order, have nothing between them",
    ),
    "restore_multi_join_three_way_inner_join_with_restore": Asked(
        """SELECT u.user_id, u.name, o.order_id, p.payment_id
        FROM Users [UNBOUNDED] AS u, Orders [UNBOUNDED] AS o, Payments [UNBOUNDED] AS p
        WHERE u.user_id = o.user_id AND u.user_id = p.user_id""",
        Final(),
    ),
    "restore_union_all_two_sources": Asked(
        "SELECT a, b FROM source_t1 [UNBOUNDED] UNION ALL SELECT d, e FROM source_t2 [UNBOUNDED]", Final()
    ),
    "restore_union_all_with_filter": Asked(
        """SELECT a, b, c FROM source_t1 [UNBOUNDED] WHERE a >= 3
        UNION ALL SELECT a, b, c FROM source_t2 [UNBOUNDED] WHERE a <= 3""",
        Final(),
    ),
    "restore_union_two_sources": Asked(
        "SELECT a, b FROM source_t1 [UNBOUNDED] UNION SELECT d, e FROM source_t2 [UNBOUNDED]", Final()
    ),
    "restore_window_deduplicate_asc_hop_first_row": first_or_last("HOP 10 SECONDS, 5 SECONDS", 10000, 5000, "<"),
    "restore_window_deduplicate_asc_partition_by_item_tumble_first_row": first_or_last(
        "TUMBLE 10 SECONDS", 10000, 10000, "<", by_item=True
    ),
    "restore_window_deduplicate_asc_tumble_first_row": first_or_last("TUMBLE 10 SECONDS", 10000, 10000, "<"),
    "restore_window_deduplicate_desc_partition_by_item_tumble_first_row": first_or_last(
        "TUMBLE 10 SECONDS", 10000, 10000, ">", by_item=True
    ),
    "restore_window_deduplicate_desc_tumble_last_row": first_or_last("TUMBLE 10 SECONDS", 10000, 10000, ">"),
    "restore_window_join_full_outer_tumble_event_time": row_join("FULL", "TUMBLE 5 SECONDS", PAIRS),
    "restore_window_join_inner_tumble_event_time": row_join("INNER", "TUMBLE 5 SECONDS", PAIRS),
    "restore_window_join_right_tumble_event_time": row_join("RIGHT", "TUMBLE 5 SECONDS", PAIRS),
    "restore_window_join_hop_event_time": row_join(
        "INNER",
        "HOP 10 SECONDS, 5 SECONDS",
        Windows(10000, 5000, PAIRS.layout, but=(1602288005000,)),
        None,
        "here a row is late or not, elsewhere it may be late for its first window only: that one is not compared",
    ),
    "restore_window_join_semi_tumble_event_time": Asked(
        """SELECT l.name, l.id, l.num, 'NOT_PRESENT' AS rid, 0 AS rnum FROM source_one_t [TUMBLE 5 SECONDS] AS l
        WHERE EXISTS (SELECT 1 FROM source_two_t [TUMBLE 5 SECONDS] AS r WHERE r.name = l.name)""",
        PAIRS,
        lateness=ONE_SECOND,
    ),
    "setop_testExcept": Asked("SELECT a3 FROM T1 [UNBOUNDED] EXCEPT SELECT b3 FROM T2 [UNBOUNDED]", Final()),
    "setop_testIntersect": Asked(
        "SELECT a1, a2, a3 FROM A [UNBOUNDED] INTERSECT SELECT b1, b2, b3 FROM B [UNBOUNDED]", Final()
    ),
    "setop_testMinusAll": Asked(
        """SELECT c FROM (
          SELECT a, b, c FROM (
            SELECT a, b, c FROM A [UNBOUNDED]
            UNION ALL SELECT a, b, c FROM A [UNBOUNDED]
            UNION ALL SELECT a, b, c FROM A [UNBOUNDED]
          ) AS three_times
          EXCEPT ALL SELECT a, b, c FROM B [UNBOUNDED]
        ) AS rest""",
        Final(),
    ),
    "windowjoin_testInnerJoin": uv_join("INNER"),
    "windowjoin_testInnerJoinWithIsNotDistinctFrom": uv_join("INNER", "l.name IS NOT DISTINCT FROM r.name"),
    "windowjoin_testLeftJoin": uv_join("LEFT"),
    "windowjoin_testLeftJoinWithIsNotDistinctFrom": uv_join("LEFT", "l.name IS NOT DISTINCT FROM r.name"),
    "windowjoin_testRightJoinWithIsNotDistinctFrom": uv_join("RIGHT", "l.name IS NOT DISTINCT FROM r.name"),
    "windowjoin_testOuterJoinWithIsNotDistinctFrom": Asked(
        f"""SELECT l.name, r.name AS rname, l.uv, r.uv AS ruv FROM {LEFT} FULL JOIN {RIGHT}
        ON l.name IS NOT DISTINCT FROM r.name""",
        Windows(5000, 5000, ("name", "start:uv", "end:uv", "rname", "start:ruv", "end:ruv", "uv", "ruv")),
        lateness=ONE_SECOND,
    ),
    "windowjoin_testAntiJoinNotExists": uv_half_join(f"NOT EXISTS (SELECT 1 FROM {RIGHT} WHERE r.name = l.name)"),
    "windowjoin_testSemiJoinExists": uv_half_join(f"EXISTS (SELECT 1 FROM {RIGHT} WHERE r.name = l.name)"),
    "windowjoin_testSemiJoinIN": uv_half_join(f"l.name IN (SELECT r.name FROM {RIGHT})"),
    "windowjoin_testInnerJoinOnWTFWithOffset": offset_join("1 SECOND", 1000),
    "windowjoin_testInnerJoinOnWTFWithNegativeOffset": offset_join("4 SECONDS", 4000),
}
