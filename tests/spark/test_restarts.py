"""What a restart on Spark keeps, and what it refuses: offsets, last results, the tail of what is available."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.job.test_replacing import clipped
from tests.spark.feeding import Feed
from tests.spark.test_offset_log import UNFINISHED

import midstream as ms
from midstream.checkpoint.lease import Lease
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.errors import JobError

PLAIN = "SELECT k, v FROM A [NOW]"
COUNT = "SELECT k, COUNT(*) AS n FROM A [RANGE 100] GROUP BY k"


class Place:
    """A checkpoint, and the stream that it is fed from."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder, self.feed = spark, folder, Feed(folder / "a")

    def session(self, queries: dict[str, str] | None = None, **options: Any) -> CheckpointSession:
        session = CheckpointSession(self.spark, checkpoint=str(self.folder / "cp"), slots=1, **options)
        session.stream("A", self.feed.frame(self.spark))
        for name, cql in ({"q": PLAIN} if queries is None else queries).items():
            session.query(name, cql)
        return session

    def is_free(self) -> bool:
        """Whether nobody holds the lease."""
        files = CheckpointSession(self.spark, checkpoint=str(self.folder / "cp"))._job.files
        with Lease.take(files):
            return True


@pytest.fixture
def place(spark, tmp_path) -> Place:
    return Place(spark, tmp_path)


def until(table: pa.Table, end: int) -> pa.Table:
    """What is valid before an instant."""
    early = table.filter(pc.less(table.column("valid_from"), end))
    ends = pc.min_element_wise(pc.fill_null(early.column("valid_to"), end), pa.scalar(end, pa.int64()))
    return early.set_column(early.column_names.index("valid_to"), "valid_to", ends)


def values(session: CheckpointSession, name: str = "q") -> list[int]:
    return sorted(session.queries[name].table().column("v").to_pylist())


def test_offsets_that_spark_lost_come_back_from_the_manifest(place):
    for ts in (1, 2, 3):
        place.feed.rows((ts, ts, ts))
    with place.session() as session:
        session.process_available()
    for lost in ("offsets/2", "offsets/.2.crc", "commits/2", "commits/.2.crc", "commits/.1.crc", "commits/1"):
        (place.folder / "cp/spark" / lost).unlink()
    (place.folder / "cp/spark/offsets/1").write_bytes(b"")
    for ts in (4, 5):
        place.feed.rows((ts, ts, ts))
    with place.session() as session:
        session.process_available(finish=True)
        assert values(session) == [1, 2, 3, 4, 5]


def test_a_list_of_files_that_spark_lost_is_refused_and_the_lease_given_back(place):
    for ts in (1, 2):
        place.feed.rows((ts, ts, ts))
    with place.session() as session:
        session.process_available()
    for lost in ("offsets/1", "commits/1", "sources/0/1"):
        (place.folder / "cp/spark" / lost).unlink()
    place.feed.rows((3, 3, 3))
    session = place.session()
    with pytest.raises(JobError, match="lacks entry 1"):
        session.process_available()
    assert place.is_free()


def test_finishing_a_session_that_runs_takes_in_what_there_is(place):
    place.feed.rows((1, 1, 1))
    with place.session({"q": COUNT}) as session:
        session.start()
        place.feed.rows((2, 2, 2))
        session.finish()
        got = session.queries["q"].table()
        rows = pa.table({"k": [1, 2], "v": [1, 2], "ts": [1, 2]})
        assert ms.snapshot_equal(got, ms.reference(COUNT, {"A": rows}, time="ts"))
        assert session.wait(timeout=120)


def test_a_query_that_was_interrupted_before_its_first_entry_was_whole_begins_anew(place):
    place.feed.rows((1, 1, 1))
    (place.folder / "cp/spark/offsets").mkdir(parents=True)
    for name in UNFINISHED:
        (place.folder / "cp/spark/offsets" / name).touch()
    with place.session() as session:
        session.process_available(finish=True)
        assert values(session) == [1]


def test_a_sink_that_failed_at_the_end_gets_the_last_results_later(place):
    place.feed.rows((1, 1, 1), (2, 2, 2))
    got: dict[int, list[Any]] = {}

    def down(*_: Any) -> None:
        raise OSError("the sink is down")

    with place.session({"q": COUNT}) as session:
        session.sink("q", lambda frame, batch: got.update({batch: frame.collect()}))
        session.process_available()
        session._job.deliveries.sinks["q"] = [down]
        with pytest.raises(OSError, match="is down"):
            session.finish()
    with place.session({"q": COUNT}) as session:
        session.sink("q", lambda frame, batch: got.update({batch: frame.collect()}))
        session.process_available(finish=True)
        assert sum(map(len, got.values())) == session.queries["q"].table().num_rows
    with place.session({"q": COUNT}) as session, pytest.raises(JobError, match="has been finished"):
        session.process_available()


def test_the_results_of_a_replaced_query_never_reach_the_sink_of_the_new_one(place, caplog):
    place.feed.rows((1, 10, 1))
    place.feed.rows((2, 20, 5))
    got: dict[int, list[dict[str, Any]]] = {}

    def fails_once(_: Any, batch: int) -> None:
        if batch == 1:
            raise OSError("the sink is down")

    session = place.session()
    session.sink("q", fails_once)
    with pytest.raises(OSError, match="is down"):
        session.process_available()
    session.stop()
    place.feed.rows((3, 30, 9))
    with place.session({}) as session:
        session.query("q", "SELECT v AS k, k AS w FROM A [NOW]", replace=True)
        session.sink("q", lambda frame, batch: got.update({batch: [row.asDict() for row in frame.collect()]}))
        session.process_available(finish=True)
    assert [(row["k"], row["w"]) for rows in got.values() for row in rows] == [(30, 3)]
    assert "never reached sink function: it was replaced; 1 in all" in caplog.text


def test_a_job_without_queries_starts_and_waits_for_one(place):
    place.feed.rows((1, 1, 1))
    with place.session() as session:
        session.process_available()
    place.feed.rows((2, 2, 2))
    with place.session() as session:
        session.drop("q")
        session.process_available()
        assert not session.queries
        place.feed.rows((3, 3, 3))
        session.query("again", PLAIN)
        session.process_available(finish=True)
        assert values(session, "again") == [3]


def test_what_is_available_is_released_as_far_as_the_registers_permit(place):
    cql = "SELECT k, COUNT(*) AS n FROM A [TUMBLE 10] GROUP BY k"
    rows = pa.concat_tables([place.feed.rows(*((k, k, t) for k in range(4))) for t in range(0, 40, 5)])
    expected = ms.reference(cql, {"A": rows}, time="ts")
    with place.session({"q": cql}) as session:
        session.process_available()
        batch = session._job.manifest.batch_id
        got = session.queries["q"].table()
        assert ms.snapshot_equal(got, until(expected, 40))
        session.process_available()
        assert session._job.manifest.batch_id == batch
        more = place.feed.rows(*((k, k, 60) for k in range(4)))
        session.process_available(finish=True)
        whole = ms.reference(cql, {"A": pa.concat_tables([rows, more])}, time="ts")
        assert ms.snapshot_equal(session.queries["q"].table(), whole)


def test_a_changed_query_starts_with_what_follows_from_kept_windows(place):
    old, new = "SELECT DISTINCT k, v FROM A [RANGE 30]", "SELECT k, COUNT(*) AS n FROM A [RANGE 20] GROUP BY k"
    kept = "SELECT KEEP * FROM A [RANGE 30]"
    rows = [place.feed.rows(*((k % 3, k, t + k) for k in range(4))) for t in range(0, 40, 5)]
    with place.session({"q": old, "kept": kept}) as session:
        session.process_available()
    rows += [place.feed.rows(*((k % 3, k, t + k) for k in range(4))) for t in range(40, 60, 5)]
    with place.session({"kept": kept}) as session:
        told = session.query("q", new, replace=True)
        session.process_available(finish=True)
        begun = next(change.record for change in told.history if change.record.get("event") == "started")
        assert begun["complete"] == "all results are complete" and set(begun["derived"]) == {"A"}
        start, got = begun["complete_from"], session.results("q").toArrow()
    expected = ms.reference(new, {"A": pa.concat_tables(rows)}, time="ts")
    assert ms.snapshot_equal(clipped(got, start), clipped(expected, start)) and 20 < start < 50
