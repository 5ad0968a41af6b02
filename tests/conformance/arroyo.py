"""Arroyo's hourly counts, unions and joins of windows."""

from __future__ import annotations

from tests.conformance.asked import Asked
from tests.conformance.comparisons import Bag, Windows

HOUR = 3_600_000
DRIVERS = "SELECT count(DISTINCT driver_id) AS n FROM cars [TUMBLE 1 HOUR] WHERE event_type = '{}'"

CASES = {
    "hourly_by_event_type": Asked(
        "SELECT event_type, count(*) AS n FROM cars [TUMBLE 1 HOUR] GROUP BY event_type",
        Windows(HOUR, HOUR, ("event_type", "start", "n")),
    ),
    "union": Asked(
        "SELECT counter, 'first' AS source FROM a [NOW] UNION ALL SELECT counter, 'second' AS source FROM b [NOW]",
        Bag(),
    ),
    "windowed_inner_join": Asked(
        f"""SELECT d.n, p.n AS m
        FROM ({DRIVERS.format("dropoff")}) AS d CROSS JOIN ({DRIVERS.format("pickup")}) AS p""",
        Windows(HOUR, HOUR, ("start", "n", "m")),
    ),
}
