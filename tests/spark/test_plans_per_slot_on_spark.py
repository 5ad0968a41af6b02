"""Slots of one query that run by different plans on Spark itself, with groups that move between them."""

from __future__ import annotations

import pytest
from tests.job.test_chain import GROUPS, tables
from tests.spark.feeding import Feed
from tests.spark.test_moving_on_spark import feed_all, session_on

import midstream as ms

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_slots_of_different_plans_give_each_other_groups(spark, tmp_path):
    inputs = tables(rows=60, last=100)
    feeds = {name: Feed(tmp_path / name) for name in "ABC"}
    for since in range(0, 60, 15):
        feed_all(feeds, inputs, since, since + 15)
    with session_on(spark, tmp_path, feeds, GROUPS, 2) as session:
        q = session.queries["q"]

        def ask(batch: int) -> None:
            if batch == 1:
                q.migrate("(A (B C))", "moving_state", slots=[1])
            if batch == 3:
                session.rebalance([group % 2 for group in range(256)], protocol="mslb")

        session.before_batch(ask)
        session.process_available()
        assert q.plan.text == "((A B) C) in slot 0; (A (B C)) in slot 1"
        assert [told["groups"] for told in session.moves] == [128]
    feed_all(feeds, inputs, 60, 101)
    with session_on(spark, tmp_path, feeds, GROUPS, 3) as session:
        session.process_available()
        session.finish()
        q = session.queries["q"]
        assert q.plan.text == "((A B) C) in slots 0, 2; (A (B C)) in slot 1"
        assert ms.snapshot_equal(q.table(), ms.reference(GROUPS, inputs))
