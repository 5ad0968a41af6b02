"""Groups whose rows go to two slots on Spark itself, in executors and over a restart."""

from __future__ import annotations

import pytest
from tests.job.test_chain import GROUPS, KEYS, THREE, as_multiset, tables
from tests.spark.feeding import Feed
from tests.spark.test_moving_on_spark import feed_all

import midstream as ms
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.job.task.exchange import default_routing

pytestmark = pytest.mark.spark

WANTED = [1] * 90 + [0] * 166


@pytest.mark.parametrize(
    ("protocol", "query"), [("split_time", GROUPS), pytest.param("ptlb", THREE, marks=pytest.mark.slow)]
)
def test_rows_go_to_both_slots_until_the_receiver_answers_alone(protocol, query, spark, tmp_path):
    inputs = tables(rows=60, last=100)
    feeds = {name: Feed(tmp_path / name) for name in "ABC"}

    def opened() -> CheckpointSession:
        session = CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint"), slots=2, small_batches=0)
        for name, feed in feeds.items():
            session.stream(name, feed.frame(spark), time="ts")
        session.query("q", query, plan="((A B) C)")
        return session

    for since in (0, 20, 40):
        feed_all(feeds, inputs, since, since + 20)
    with opened() as session:

        def ask(batch: int) -> None:
            if batch == 1:
                session.rebalance(WANTED, protocol=protocol)
            if batch == 2:
                session.queries["q"].migrate("(A (B C))", "genmig")

        session.before_batch(ask)
        session.process_available()
        manifest = session._job.manifest
        assert (
            manifest is not None
            and manifest.slots.doubled is not None
            and manifest.account("q").plans.migration is not None
        )
        assert manifest.streams.rows == {n: sum(t < 60 for t in rows["ts"].to_pylist()) for n, rows in inputs.items()}
    for since in (60, 80):
        feed_all(feeds, inputs, since, since + 20)
    feed_all(feeds, inputs, 100, 101)
    with opened() as session:
        session.process_available()
        manifest = session._job.manifest
        assert manifest is not None and manifest.slots.doubled is None
        assert list(manifest.slots.routing) == WANTED
        changed = sum(a != b for a, b in zip(WANTED, default_routing(2), strict=True))
        assert [(told["groups"], told["rows_sent"]) for told in session.moves] == [(changed, 0)]
        session.finish()
        assert session.queries["q"].plan.text == "(A (B C))"
        got = session.queries["q"].table()
        assert ms.snapshot_equal(got, ms.reference(query, inputs))
        if query is THREE:
            assert as_multiset(got) == as_multiset(ms.run(query, inputs))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "query", "cancelled"),
    [("split_time", THREE, True), ("ptlb", THREE, True), ("ptlb", KEYS, True), ("ptlb", KEYS, False)],
)
def test_a_move_ends_or_is_cancelled_on_spark(protocol, query, cancelled, spark, tmp_path):
    inputs = tables(rows=60, last=100)
    feeds = {name: Feed(tmp_path / name) for name in "ABC"}
    for since in range(0, 101, 20):
        feed_all(feeds, inputs, since, since + 20)
    with CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint"), slots=2, small_batches=0) as session:
        for name, feed in feeds.items():
            session.stream(name, feed.frame(spark), time="ts")
        session.query("q", query, plan="((A B) C)")

        def ask(batch: int) -> None:
            if batch == 1:
                session.rebalance(WANTED, protocol=protocol)
            if batch == 3 and cancelled:
                session.cancel_rebalance()

        session.before_batch(ask)
        session.process_available(finish=True)
        (told,) = session.moves
        ended = told["batch"] == 3 if cancelled else told["batch"] > 3
        assert (told.get("status"), told["start_batch"], ended) == ("cancelled" if cancelled else None, 1, True)
        assert as_multiset(session.queries["q"].table()) == as_multiset(ms.run(query, inputs))
