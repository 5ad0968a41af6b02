"""Groups that several slots share, on Spark: in executors and in the driver, over a restart, and home again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.job.spreading import GroupBroughtHome, GroupSpread
from tests.job.test_spread_groups import HOT, JOIN, MERGED, answer, skewed
from tests.spark.feeding import Feed
from tests.spark.test_moving_on_spark import feed_all

import midstream as ms
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.distribution.fragments import SpreadGroup
from midstream.job.slots.spreading import merging_for

pytestmark = pytest.mark.spark


def session_on(spark: Any, folder: Path, feeds: dict[str, Feed], small: int | str) -> CheckpointSession:
    session = CheckpointSession(spark, checkpoint=str(folder / "checkpoint"), slots=3, small_batches=small)
    for name, feed in feeds.items():
        session.stream(name, feed.frame(spark), time="ts")
    for name, query in QUERIES.items():
        session.query(name, query)
    return session


QUERIES = {
    "q": JOIN,
    "grouped": MERGED["grouped"],
    "later": "SELECT B.v, count(*) AS n FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k GROUP BY B.v",
    "later_distinct": "SELECT DISTINCT B.v FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k",
}


@pytest.mark.slow
def test_a_hot_group_is_spread_on_spark(spark, tmp_path):
    inputs = {name: rows for name, rows in skewed().items() if name in "AB"}
    feeds = {name: Feed(tmp_path / name) for name in "AB"}
    lately: list[Any] = []
    sizes: list[int | str] = [0, "10 MB", 0]
    for turn, small in enumerate(sizes):
        session = session_on(spark, tmp_path, feeds, small)
        assert bool(session._job.state.spread.groups) == (turn > 0)
        for i in range(2):
            feed_all(feeds, inputs, (2 * turn + i) * 20, (2 * turn + i + 1) * 20)
            session.process_available()
            if (turn, i) == (0, 0):
                loads = session._job.state.loads
                group = max(range(len(loads)), key=loads.__getitem__)
                merging = merging_for(session._job.queries, "A")
                assert merging == ("grouped",)
                session._job.apply(GroupSpread(SpreadGroup(group, "A", 3, f"key {HOT} is hot", merging=merging)))
                merging = merging_for(session._job.queries, "B.v", "B.v")
                assert merging == ("later", "later_distinct")
                session._job.apply(GroupSpread(SpreadGroup(99, "B.v", 3, "a test", merging=merging, key_class="B.v")))
            elif (turn, i) == (2, 0):
                session._job.apply(GroupBroughtHome(group))
                session._job.apply(GroupBroughtHome(("B.v", 99)))
            assert session._job.manifest is not None
            lately.append(session._job.manifest.slots.shared)
        if turn == 2:
            session.finish()
            results = {query: session.queries[name].table() for name, query in QUERIES.items()}
        session.stop()
    assert [len(shared) for shared in lately] == [0, 2, 2, 2, 2, 0]
    assert all(ms.snapshot_equal(found, answer(query, inputs)) for query, found in results.items())
