"""What an operator does with a session on Spark: looks at metrics, rewords, replaces, adds and drops queries."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.feeding import Feed

from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.listener import Listener
from midstream.errors import JobError

pytestmark = pytest.mark.spark

JOIN = "SELECT A.v AS a, B.v AS b FROM A [RANGE 10], B [RANGE 10] WHERE A.k = B.k"
REWORDED = "SELECT A.v AS a, B.v AS b FROM A [RANGE 10] JOIN B [RANGE 10] ON B.k = A.k"
REORDERED = "SELECT A.v AS a, B.v AS b FROM B [RANGE 10], A [RANGE 10] WHERE A.k = B.k"
SUM = "SELECT A.v + B.v AS total FROM A [RANGE 10], B [RANGE 10] WHERE A.k = B.k"


@pytest.fixture
def feeds(tmp_path: Path) -> dict[str, Feed]:
    return {name: Feed(tmp_path / name) for name in "AB"}


def opened(spark, tmp_path: Path, feeds: dict[str, Feed]) -> CheckpointSession:
    session = CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint"), slots=2, memory_per_slot="16 MB")
    for name, feed in feeds.items():
        session.stream(name, feed.frame(spark), time="ts")
    return session


def ask(session: CheckpointSession, **request: object) -> object:
    listener = Listener.__new__(Listener)
    listener.session = session
    return listener.answer(dict(request))


def test_a_query_is_reworded_then_replaced_and_every_batch_is_in_the_metrics(spark, tmp_path, feeds):
    feeds["A"].rows((1, 10, 0), (2, 20, 1))
    feeds["B"].rows((1, 11, 3))
    with opened(spark, tmp_path, feeds) as session:
        session.query("q", JOIN)
        session.process_available()
    feeds["A"].rows((3, 30, 9))
    feeds["B"].rows((2, 21, 8))
    with opened(spark, tmp_path, feeds) as session:
        session.query("q", REWORDED)
        session.process_available()
        assert [tuple(row) for row in session.results("q").select("a", "b").collect()] == [(10, 11)]
    with opened(spark, tmp_path, feeds) as session, pytest.raises(JobError, match="not the same query"):
        session.query("q", SUM)
    feeds["A"].rows((2, 22, 10))
    feeds["B"].rows((3, 31, 11), (9, 0, 40))
    with opened(spark, tmp_path, feeds) as session:
        query = session.query("q", SUM, replace=True)
        session.process_available()
        session.finish()
        assert {row.total for row in session.results("q").collect()} == {21, 41, 43, 61}
        old = {(row.a, row.b) for row in session.results("q@2").collect()}
        assert old >= {(10, 11)}
        assert [record.strategy for record in query.history if record.strategy == "replace"] == ["replace"]
        rows = session.metrics().to_pylist()
        assert [row["batch_id"] for row in rows] == [0, 1, 2, 3]
        assert [sum(dict(row["rows"]).values()) for row in rows] == [3, 2, 3, 0]
        assert {"spark", "transfer", "kernel", "state", "write", "commit"} <= set(dict(rows[2]["seconds"]))


def test_a_text_in_another_order_is_gone_over_to(spark, tmp_path, feeds):
    feeds["A"].rows((1, 10, 0), (2, 20, 1))
    feeds["B"].rows((1, 11, 3))
    with opened(spark, tmp_path, feeds) as session:
        session.query("q", JOIN, plan="(A B)")
        session.process_available()
    feeds["A"].rows((1, 12, 9), (5, 0, 50))
    feeds["B"].rows((2, 21, 8), (5, 1, 51))
    with opened(spark, tmp_path, feeds) as session:
        query = session.query("q", REORDERED, plan="(B A)")
        assert query.migrating == "(B A)"
        session.process_available()
        session.finish()
        assert {(row.a, row.b) for row in session.results("q").collect()} == {(10, 11), (20, 21), (12, 11), (0, 1)}
        assert query.plan.text == "(B A)"


def test_queries_added_and_dropped_by_request_stay_so_after_a_restart(spark, tmp_path, feeds):
    feeds["A"].rows((1, 10, 0))
    feeds["B"].rows((1, 11, 3))
    with opened(spark, tmp_path, feeds) as session:
        session.query("q", JOIN)
        session.query("other", SUM)
        ask(session, command="add", query="more", cql="SELECT A.v FROM A [NOW]")
        ask(session, command="drop", query="other")
        session.process_available()
        told = ask(session, command="status")
        assert isinstance(told, dict) and told["queries"]["more"]["added"] and told["dropped"] == {"other": SUM}
    feeds["A"].rows((1, 12, 5))
    feeds["B"].rows((1, 13, 6))
    with opened(spark, tmp_path, feeds) as session:
        session.query("q", JOIN)
        assert session.was_dropped("other", SUM) and not session.was_dropped("other", JOIN)
        assert session.restore_added() == ["more"]
        session.process_available()
        session.finish()
        assert {row.v for row in session.results("more").collect()} == {10, 12}
