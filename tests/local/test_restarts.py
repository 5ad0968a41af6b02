"""What a restart keeps, and what it refuses: queries, the job's name, its streams, its lease."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import midstream as ms
from midstream.checkpoint.lease import Lease
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.listener import Listener
from midstream.errors import JobError, MidstreamError

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])
PLAIN = "SELECT k, v FROM A [NOW]"
COUNT = "SELECT k, COUNT(*) AS n FROM A [RANGE 100] GROUP BY k"


def row(number: int, at: int | None = None) -> pa.Table:
    return pa.table({"k": [number], "v": [number], "ts": [number if at is None else at]}, schema=SCHEMA)


def opened(folder: Path, queries: dict[str, str] | None = None, **options: Any) -> CheckpointSession:
    session = CheckpointSession(checkpoint=str(folder), on="local", **options).stream("A", SCHEMA)
    for name, cql in ({"q": PLAIN} if queries is None else queries).items():
        session.query(name, cql)
    return session


def once(folder: Path, *rows: pa.Table, queries: dict[str, str] | None = None, **options: Any) -> None:
    """A session that takes some rows, a batch each, and ends."""
    with opened(folder, queries, **options) as session:
        session.start()
        for table in rows:
            session.push("A", table)


def is_free(folder: Path) -> bool:
    files = CheckpointStore(str(folder)).files
    with Lease.take(files):
        return True


def values(session: CheckpointSession, name: str = "q") -> list[int]:
    return sorted(session.queries[name].table().column("v").to_pylist())


def test_rows_after_the_end_are_refused_not_skipped(tmp_path):
    with opened(tmp_path) as session:
        session.start()
        session.push("A", row(1))
        session.finish()
        with pytest.raises(JobError, match="has been finished"):
            session.push("A", row(2))
        with pytest.raises(JobError, match="has been finished"):
            session.start()
    with pytest.raises(JobError, match="has been finished"):
        opened(tmp_path).start()
    assert values(opened(tmp_path)) == [1] and is_free(tmp_path)


def test_finishing_needs_the_lease(tmp_path):
    one = opened(tmp_path)
    one.start()
    one.push("A", row(1))
    one.stop()
    with opened(tmp_path) as two:
        two.start()
        with pytest.raises(JobError, match="another driver runs"):
            one.finish()
        two.push("A", row(2))
    one.finish()
    assert values(one) == [1, 2] and is_free(tmp_path)


def test_nothing_is_committed_without_the_lease(tmp_path):
    one = opened(tmp_path, {"n": COUNT})
    one.start()
    one.push("A", row(1))
    one.stop()
    with pytest.raises(JobError, match="has been stopped"):
        one.push("A", row(2))
    one.end_available()
    assert CheckpointStore(str(tmp_path)).batch_ids() == [0]


def test_what_is_not_declared_any_more_goes_on_until_it_is_dropped_by_name(tmp_path, caplog):
    tables = [row(i, i * 60) for i in range(6)]
    once(tmp_path, *tables[:3], queries={"q": PLAIN, "n": COUNT})
    assert opened(tmp_path).results("n").num_rows
    once(tmp_path, *tables[3:5], retained=2)
    assert "query n is no longer declared: it keeps running" in caplog.text
    with opened(tmp_path, {"q": PLAIN, "n": COUNT}) as session:
        session.start()
        session.push("A", tables[5])
        session.finish()
        expected = ms.reference(COUNT, {"A": pa.concat_tables(tables)}, time="ts")
        assert ms.snapshot_equal(session.queries["n"].table(), expected)


def test_dropped_by_name_it_is_gone_also_if_it_is_declared(tmp_path):
    once(tmp_path, row(1), queries={"q": PLAIN, "n": COUNT})
    with opened(tmp_path) as session:
        session.drop("n")
        assert session.was_dropped("n", COUNT)
        session.start()
        session.push("A", row(2))
        assert set(session.queries) == {"q"}
    with opened(tmp_path) as session:
        session.start()
        assert set(session.queries) == {"q"} and session.was_dropped("n", COUNT)


def test_a_drop_is_remembered_when_an_undeclared_query_is_dropped_after_it(tmp_path):
    queries = {"q": PLAIN, "n": COUNT}
    once(tmp_path, row(1), queries={**queries, "m": COUNT})
    with opened(tmp_path, queries) as session:
        listener = Listener(session)
        listener.answer({"command": "drop", "query": "q"})
        listener.answer({"command": "drop", "query": "m"})
        assert session.was_dropped("q", PLAIN) and session.was_dropped("m", COUNT)
        session.start()
        session.push("A", row(2))
    with opened(tmp_path, {"n": COUNT}) as session:
        assert session.was_dropped("q", PLAIN) and session.was_dropped("m", COUNT)


def test_a_query_that_is_dropped_between_two_starts_does_not_come_back(tmp_path):
    with opened(tmp_path, {"q": PLAIN, "n": COUNT}) as session:
        session.start()
        session.push("A", row(1))
        session.stop()
        session.drop("n")
        session.start()
        assert set(session.queries) == {"q"}


def test_a_query_that_cannot_go_on_is_refused_by_name(tmp_path):
    once(tmp_path, row(1))
    session = CheckpointSession(checkpoint=str(tmp_path), on="local").stream("B", SCHEMA)
    with pytest.raises(JobError, match="query q of the checkpoint is no longer declared and cannot continue") as told:
        session.start()
    assert "--drop q" in str(told.value.hint) and is_free(tmp_path)
    session.drop("q")
    with session:
        session.start()


def test_a_checkpoint_knows_its_job(tmp_path):
    once(tmp_path, row(1), name="orders")
    with pytest.raises(JobError, match="belongs to job orders, not to payments"):
        opened(tmp_path, name="payments")
    once(tmp_path, row(2))
    once(tmp_path, row(3), name="orders")
    with pytest.raises(JobError, match="belongs to job orders"):
        opened(tmp_path, name="payments")


def test_a_session_that_was_opened_before_another_went_on_reads_the_checkpoint_again(tmp_path):
    once(tmp_path, row(1))
    standby = opened(tmp_path)
    with opened(tmp_path) as one:
        one.start()
        with pytest.raises(JobError, match="another driver"):
            standby.start()
        one.query("n", COUNT)
        one.push("A", row(2))
    with standby:
        standby.start()
        standby.push("A", row(3))
        standby.finish()
        assert set(standby.queries) == {"q", "n"} and values(standby) == [1, 2, 3]


def test_what_was_dropped_since_a_session_was_opened_stays_so(tmp_path):
    once(tmp_path, row(1), queries={"q": PLAIN, "n": COUNT})
    standby = opened(tmp_path, {"q": PLAIN, "n": COUNT})
    with opened(tmp_path) as one:
        one.drop("n")
        one.start()
        one.push("A", row(2))
    with standby:
        standby.start()
        assert set(standby.queries) == {"q"}


@pytest.mark.parametrize(
    ("schema", "options", "told"),
    [
        (SCHEMA, {"time": "v"}, "stream A has another time column"),
        (SCHEMA, {"timestamps": "internal"}, "stream A has other timestamps"),
        (SCHEMA.set(0, pa.field("k", pa.string())), {}, "stream A has another type of column k"),
    ],
)
def test_a_stream_declared_in_another_way_is_refused(schema, options, told, tmp_path):
    once(tmp_path, row(1), queries={"q": "SELECT k FROM A [NOW]"})
    session = CheckpointSession(checkpoint=str(tmp_path), on="local").stream("A", schema, **options)
    session.query("q", "SELECT k FROM A [NOW]")
    with pytest.raises(JobError, match=told):
        session.start()
    assert is_free(tmp_path)


@pytest.mark.parametrize("lateness", [(0, 10), (10, 0)])
def test_another_lateness_is_taken_up(lateness, tmp_path):
    def taken(late: int, *rows: pa.Table) -> CheckpointSession:
        session = CheckpointSession(checkpoint=str(tmp_path), on="local").stream("A", SCHEMA, lateness=late)
        session.query("q", PLAIN)
        with session:
            session.start()
            for table in rows:
                session.push("A", table)
        return session

    taken(lateness[0], row(1, 100))
    session = taken(lateness[1], row(2, 120), row(3, 115))
    late = session.dead_letters().num_rows
    assert late == (1 if lateness[1] == 0 else 0)


def test_a_start_that_fails_gives_the_lease_back(tmp_path):
    once(tmp_path, row(1))
    session = opened(tmp_path)
    session._job.state.added["x"] = {"cql": "SELECT k FROM GONE [NOW]"}
    with pytest.raises(MidstreamError, match="GONE"):
        session.start()
    assert is_free(tmp_path)
    once(tmp_path, row(2))


def test_a_job_without_queries_starts_and_waits_for_one(tmp_path):
    once(tmp_path, row(1))
    with opened(tmp_path) as session:
        session.drop("q")
        session.start()
        session.push("A", row(2))
        assert not session.queries
        session.query("again", PLAIN)
        session.push("A", row(3))
        session.finish()
        assert values(session, "again") == [3]


def test_the_results_of_a_replaced_query_never_reach_the_sink_of_the_new_one(tmp_path, caplog):
    got: dict[int, pa.Table] = {}

    def fails(_: Any, batch: int) -> None:
        if batch == 1:
            raise OSError("the sink is down")

    with opened(tmp_path) as session:
        session.sink("q", fails)
        session.start()
        session.push("A", row(1))
        with pytest.raises(OSError, match="is down"):
            session.push("A", row(2))
    with opened(tmp_path, {}) as session:
        session.query("q", "SELECT ts AS w FROM A [NOW]", replace=True)
        session.sink("q", lambda table, batch: got.update({batch: table}))
        session.start()
        session.push("A", row(3))
        session.finish()
    assert "results of query q that start from 1 to before 2 never reached sink function" in caplog.text
    assert f"1 in all, which midstream results {tmp_path} q@2 shows" in caplog.text
    assert [value for _, table in sorted(got.items()) for value in table.column("w").to_pylist()] == [3]
