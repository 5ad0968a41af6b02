"""For tests of users' own queries, sources and sinks: streams from literals, comparison by snapshots, clocks, crashes.

With pytest installed, the fixtures `midstream_clock`, `midstream_session` and `midstream_job` are there by themselves.
"""

from midstream.testing.clocks import FakeClock
from midstream.testing.comparing import assert_every_plan_agrees, assert_snapshot_equal
from midstream.testing.crashes import POINTS, assert_survives_crashes
from midstream.testing.literals import stream
from midstream.testing.sinks import check_sink
from midstream.testing.sources import check_source

__all__ = [
    "POINTS",
    "FakeClock",
    "assert_every_plan_agrees",
    "assert_snapshot_equal",
    "assert_survives_crashes",
    "check_sink",
    "check_source",
    "stream",
]
