"""Odysseus' interval algebra, which is ours: results are compared snapshot by snapshot. Time counts milliseconds.

A time window of 5 s that advances by 1 s lets a row count from its time until 5 s after the last full second. Our
[RANGE] ends with each row by itself, so a clock that shows the current second says when a row is over.
"""

from __future__ import annotations

from tests.conformance.asked import Asked
from tests.conformance.comparisons import Comparison, Relations

LEFT_LENGTHS = (1, 500)
# fmt: off
RIGHT_LENGTHS = (
    1, 11, 15, 21, 22, 33, 36, 40, 50, 51, 74, 100, 150, 200, 300, 315, 347, 399, 400, 465, 499, 500, 501, 574, 600,
    700, 751, 898, 1000, 1500, 2000, 2100, 3100,
)
# fmt: on


def counts(stream: str) -> str:
    """That a row of a stream still counts at the clock's second."""
    return f"clock.ts - {stream}.ts + {stream}.ts % 1000 < 5000"


def asked(cql: str, compare: Comparison | None = None, note: str = "", clock: bool = False) -> Asked:
    """A query over milliseconds."""
    return Asked(cql, compare or Relations(), note, integer_time=True, clock=clock)


JOIN = """SELECT w.ts AS w_ts, w.speed, w.direction, w.name AS w_name, w.location AS w_location,
          t.ts AS t_ts, t.temperature, t.name AS t_name, t.location AS t_location"""
ADVANCING = f"""{JOIN} FROM wind [RANGE 4999] AS w, temperature [RANGE 4999] AS t, clock [RANGE 999]
          WHERE w.speed > 25 AND t.temperature > 12 AND {counts("w")} AND {counts("t")}"""
STEPS = "a window that advances in steps is a window that ends with each row, and a clock"


def lasting(stream: str, lengths: tuple[int, ...]) -> str:
    """A stream whose rows carry their own ends, as the union of its rows of each length."""
    columns = "speed, direction, name, location"
    parts = [
        f"SELECT {columns} FROM {stream} [RANGE {n - 1}] WHERE te - ts = {n} AND name <> 'CLEANUP'" for n in lengths
    ]
    return "(" + " UNION ALL ".join(parts) + ")"


CASES = {
    "ody_aggregate_time": asked(
        f"SELECT avg(p.percentage) AS mean FROM percentage [RANGE 4999] AS p, clock [RANGE 999] WHERE {counts('p')}",
        note=STEPS,
        clock=True,
    ),
    "ody_difference": asked(
        f"""SELECT l.speed, l.direction, l.name, l.location FROM {lasting("L", LEFT_LENGTHS)} AS l WHERE NOT EXISTS (
          SELECT 1 FROM {lasting("R", RIGHT_LENGTHS)} AS r WHERE r.speed = l.speed AND r.direction = l.direction
          AND r.name = l.name AND r.location = l.location)""",
        note="windows give all rows one length; rows that carry their own end are a union of windows of each length",
    ),
    "ody_distinct": asked(
        "SELECT DISTINCT ts, speed, direction, name, location FROM wind [TUMBLE 5000] WHERE ts < 10000",
        Relations(shift=5000),
        "here a tumbling window holds its rows once it is complete, there from its start, and the last row is omitted",
    ),
    "ody_join_select": asked(f"{ADVANCING} AND w.speed > 40", note=STEPS, clock=True),
    "ody_join_time": asked(ADVANCING, note=STEPS, clock=True),
    "ody_join_tuple": asked(
        f"{JOIN} FROM wind [ROWS 5] AS w, temperature [ROWS 5] AS t WHERE w.speed > 25 AND t.temperature > 12",
        Relations(until=10_000),
        "the source closes its last rows when its input ends, here they stay: compared up to then",
    ),
    "ody_union": asked("SELECT ts, x FROM A [UNBOUNDED] UNION ALL SELECT ts, x FROM B [UNBOUNDED]"),
    "ody_window_1ms": asked("SELECT ts, percentage FROM percentage [NOW]"),
}
