"""Plans of several stages on Spark: state that goes through a new plan bit by bit, plans per slot, groups in steps."""

from __future__ import annotations

import pytest
from tests.job.test_chain import KEYS_GROUPED, tables
from tests.spark.feeding import Feed
from tests.spark.test_moving_on_spark import feed_all, session_on

import midstream as ms
from midstream.job.queries import filling

pytestmark = pytest.mark.spark

ONE_KEY = (
    "SELECT A.v, count(*) AS n FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.k = C.k GROUP BY A.v"
)


@pytest.fixture(autouse=True)
def small_portions(monkeypatch):
    """A batch carries few rows of state besides its own."""
    monkeypatch.setattr(filling, "LEAST_WORK", 4)
    monkeypatch.setattr(filling, "SHARE", 0.05)


@pytest.mark.slow
def test_state_goes_through_a_plan_of_other_stages_over_a_restart(spark, tmp_path):
    inputs = tables(rows=45, last=72)
    feeds = {name: Feed(tmp_path / name) for name in "ABC"}
    for since in (0, 12, 24):
        feed_all(feeds, inputs, since, since + 12)
    with session_on(spark, tmp_path, feeds, KEYS_GROUPED, 2) as session:
        q = session.queries["q"]

        def ask(batch: int) -> None:
            if batch == 1:
                q.migrate("(A (B C))", "moving_state_paced")

        session.before_batch(ask)
        session.process_available()
        assert [told.status for told in q.history] == ["under way"]
    for since in (36, 48, 60):
        feed_all(feeds, inputs, since, since + 12)
    with session_on(spark, tmp_path, feeds, KEYS_GROUPED, 2) as session:
        session.process_available()
        session.finish()
        q = session.queries["q"]
        (told,) = q.history
        assert (told.status, told.strategy, q.plan.text) == ("done", "moving_state_paced", "(A (B C))")
        assert told.actual is not None and told.actual.batches > 2
        assert ms.snapshot_equal(q.table(), ms.reference(KEYS_GROUPED, inputs))


@pytest.mark.slow
def test_a_slot_of_a_query_of_several_stages_has_its_plan_and_its_groups_move_in_steps(spark, tmp_path):
    inputs = tables(rows=45, last=72)
    feeds = {name: Feed(tmp_path / name) for name in "ABC"}
    for since in range(0, 72, 12):
        feed_all(feeds, inputs, since, since + 12)
    with session_on(spark, tmp_path, feeds, ONE_KEY, 2) as session:
        q = session.queries["q"]

        def ask(batch: int) -> None:
            if batch == 1:
                q.migrate("(A (B C))", "moving_state_paced", slots=[1])
            if batch == 3:
                session.rebalance([group % 2 for group in range(256)], protocol="mslb")

        session.before_batch(ask)
        session.process_available()
        session.finish()
        assert q.plan.text == "((A B) C) in slot 0; (A (B C)) in slot 1"
        assert len(session.moves) > 1
        assert ms.snapshot_equal(q.table(), ms.reference(ONE_KEY, inputs))


@pytest.mark.slow
def test_groups_of_a_later_stage_move_apart_in_executors(spark, tmp_path):
    inputs = tables(rows=45, last=72)
    feeds = {name: Feed(tmp_path / name) for name in "ABC"}
    for since in range(0, 72, 12):
        feed_all(feeds, inputs, since, since + 12)
    with session_on(spark, tmp_path, feeds, KEYS_GROUPED, 2, small_batches=0) as session:

        def ask(batch: int) -> None:
            if batch == 2:
                assert session.rebalance([group % 2 for group in range(256)], by="C.k")
            if batch == 4:
                session.rebalance()

        session.before_batch(ask)
        session.process_available()
        session.finish()
        assert [sorted(move.get("classes", ())) for move in session.moves][0] == ["C.k"]
        assert ms.snapshot_equal(session.queries["q"].table(), ms.reference(KEYS_GROUPED, inputs))
