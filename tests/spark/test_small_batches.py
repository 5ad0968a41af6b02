"""Small batches run in the driver, and leave the same behind as in executors."""

from __future__ import annotations

import re
import shutil
from dataclasses import asdict
from math import inf
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from tests.spark.feeding import SCHEMA, Feed

import midstream as ms
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.spark import small_batches
from midstream.cluster.spark.backend import SparkBackend
from midstream.cluster.spark.environment import is_one_process
from midstream.cluster.spark.small_batches import (
    DRIVER,
    EXECUTORS,
    USUAL_ON_ONE_MACHINE,
    SmallBatches,
    SparkPace,
    most_bytes,
)
from midstream.distribution.fragments import STAY
from midstream.errors import JobError
from midstream.job.batch import RunOptions
from midstream.job.circumstances import Incoming, SlotLayout
from midstream.job.task.exchange import PORT
from midstream.job.task.memory import Memory
from midstream.job.task.reports import Report, StreamCounts
from midstream.optimizer.cost import SPARK, Constants

QUERIES = {
    "join": "SELECT A.k, A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k",
    "counts": "SELECT A.v, count(*) AS n FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k AND A.v > 2 GROUP BY A.v",
}


class Plan:
    """A Spark plan that states its size, or fails to."""

    def __init__(self, size: int | None) -> None:
        self.size = size

    def __getattr__(self, name: str) -> Any:
        if self.size is None:
            raise Py4JError("no such method")
        return lambda: self.size if name == "sizeInBytes" else self


class Frame:
    """A DataFrame that counts how often it is collected."""

    def __init__(self, size: int | None, rows: int) -> None:
        self._jdf = Plan(size)
        self.rows, self.collected = rows, 0

    def toArrow(self) -> pa.Table:  # noqa: N802
        self.collected += 1
        return pa.table({PORT: pa.array([0] * self.rows, pa.int32())})


class Steps:
    """Threads that only count rows, or fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def deliver(self, rows: Any, groups: Any, delivery: Any, slots: Any) -> None:
        slots[0].append(rows)

    def run(self, steps: Any, dealt: Any, count: int) -> list[Report]:
        if self.error is not None:
            raise self.error
        return [Report(0, 0, streams=StreamCounts({"A": sum(rows.num_rows for rows in dealt[0])}))]


def framed(size: int | None, rows: int = 10) -> Any:
    return Frame(size, rows)


def batch(state: int = 0, registers: Any = None) -> Any:
    before = Manifest("x", 0, segments={"q": {0: {0: [SimpleNamespace(bytes=state)]}}})  # type: ignore[list-item]
    layout = SimpleNamespace(row_bytes=100, split=lambda tables: {0: tables[0]}, payload=lambda port, rows: rows)
    streams = {0: SimpleNamespace(name="A", timestamps="external", time=PORT)}
    return SimpleNamespace(
        before=before, batch_id=1, incoming=Incoming(streams, layout, registers=registers),  # type: ignore[arg-type]
        slots=SlotLayout(2, (0,) * 256), options=RunOptions(Memory(8000)), steps=lambda memory: [],
        arriving=lambda port: [(port, STAY)], delivery=lambda stream: None,
    )  # fmt: skip


def roomy() -> Any:
    """A batch of a job with more memory."""
    found = batch()
    found.options = RunOptions(Memory(800_000))
    return found


def small(**options: Any) -> SmallBatches:
    return SmallBatches(1000, **{"slots": Steps(), **options})


def test_a_batch_is_taken_by_the_driver_if_its_plan_states_few_bytes():
    reports = small().run(batch(), framed(1000))
    assert (
        reports is not None and [r.ran_on.place for r in reports] == [DRIVER] and reports[0].streams.rows == {"A": 10}
    )
    assert small().run(batch(), framed(1001)) is None


def test_a_size_that_spark_does_not_state_is_taken_from_offsets_and_files():
    known: dict[str, Any] = {"rows_of_others": lambda: 5, "bytes_of_files": lambda: 400}
    assert small(**known).run(batch(), framed(2**63)) is not None
    assert small(**{**known, "rows_of_others": lambda: 7}).run(batch(), framed(2**63)) is None
    assert small(**{**known, "rows_of_others": lambda: None}).run(batch(), framed(2**63)) is None
    assert small().run(batch(), framed(None)) is None


def test_much_state_stays_in_executors():
    assert small().run(batch(state=1000), framed(10)) is not None
    assert small().run(batch(state=1001), framed(10)) is None


def test_rows_that_were_packed_tightly_are_known_from_the_last_batch():
    runner, tight = small(), framed(1000, 1_000_000)
    assert runner.run(batch(), tight) is not None
    assert runner.run(batch(), framed(1000)) is None
    runner.ran_elsewhere(batch(), [Report(0, 0, streams=StreamCounts({"A": 1}))], 1.0)
    assert runner.run(batch(), framed(1000)) is not None


def test_rows_are_collected_once_however_often_the_batch_runs():
    runner, frame = small(), framed(10)
    assert runner.run(batch(), frame) is not None and runner.run(batch(), frame) is not None
    assert frame.collected == 1


def test_a_batch_without_rows_asks_spark_for_nothing():
    frame = framed(None)
    assert small().run(batch(registers={}), frame) is not None and frame.collected == 0


def test_what_fails_in_the_driver_for_a_reason_of_its_own_runs_in_executors():
    runner = small(slots=Steps(OSError("no space")))
    assert runner.run(batch(), framed(10)) is None
    runner.slots = Steps()  # type: ignore[assignment]
    assert runner.run(batch(), framed(10)) is None  # and so do the next ones
    with pytest.raises(JobError):
        small(slots=Steps(JobError("the data"))).run(batch(), framed(10))


def test_a_batch_that_took_long_has_executors_run_the_next_ones_until_they_are_compared(monkeypatch):
    monkeypatch.setattr(small_batches, "LONGEST", -1.0)
    runner = small()
    assert runner.run(batch(), framed(10)) is not None
    for seconds in (0.0, 1e9):
        assert runner.run(batch(), framed(10)) is None
        runner.ran_elsewhere(batch(), [Report(0, 0, streams=StreamCounts({"A": 1}))], seconds)
    assert all(runner.run(batch(), framed(10)) is not None for _ in range(small_batches.STANDS))


def test_the_faster_place_gets_the_next_batches_and_more_of_them_each_time():
    known = SparkPace()
    known.driver_took(0.9, 10)
    assert known.is_drivers_turn()
    for stands in (20, 40, 80):
        known.driver_took(2.0, 10)
        for seconds in (9.0, 1.9):  # the first one starts workers
            assert not known.is_drivers_turn()
            known.executors_took(seconds, 10)
        assert [known.is_drivers_turn() for _ in range(stands + 1)] == [False] * stands + [True]
    known.driver_took(2.0, 10)
    for _ in range(2):
        assert not known.is_drivers_turn()
        known.executors_took(2.1, 10)
    for _ in range(20):
        assert known.is_drivers_turn()
        known.driver_took(2.0, 10)
    assert known.is_drivers_turn()
    known.driver_took(2.0, 10)
    assert not known.is_drivers_turn()


def test_plain_files_are_small_as_far_as_memory_goes_where_executors_are_no_other_machines():
    asked: list[int] = []

    def plain(incoming: Incoming, most: int) -> None:
        asked.append(most)

    for all_plain in (False, True):
        assert small(plain=plain, all_plain=all_plain).run(batch(), framed(1001)) is None
        assert SmallBatches(0, plain=plain, all_plain=all_plain).run(batch(), framed(10)) is None
    assert asked == [1000, 1000] and small(plain=plain, all_plain=True).run(roomy(), framed(1001)) is None
    assert asked[-1] == roomy().options.memory.input > 1000


def test_where_most_batches_ran_lately_is_where_they_usually_run():
    runner, elsewhere = small(), [Report(0, 0, streams=StreamCounts({"A": 1}))]
    assert not runner.usual and small(all_plain=True).usual and not SmallBatches(0, all_plain=True).usual
    assert runner.run(batch(), framed(10)) is not None and runner.usual
    runner.ran_elsewhere(batch(), elsewhere, 1.0)
    runner.ran_elsewhere(batch(registers={}), elsewhere, 1.0)  # without rows it says nothing
    assert runner.run(batch(), framed(10)) is not None and runner.usual
    for _ in range(2):
        runner.ran_elsewhere(batch(), elsewhere, 1.0)
    assert not runner.usual


@pytest.mark.spark
def test_plans_are_weighed_as_in_one_process_where_the_driver_runs_them(spark, tmp_path):
    cluster = SparkBackend(spark, files_at(str(tmp_path)), "2 kB").cluster
    assert cluster.constants == SPARK
    cluster.small._lately.append(DRIVER)
    assert cluster.constants == Constants()


@pytest.mark.spark
def test_none_are_small_in_sessions_of_these_tests_unless_they_say_so(spark, tmp_path):
    assert SparkBackend(spark, files_at(str(tmp_path))).cluster.small.most == 0
    assert SparkBackend(spark, files_at(str(tmp_path)), "2 kB").cluster.small.most == 2048


def test_none_are_small_if_none_are_to_be():
    assert SmallBatches(most_bytes(0)).run(batch(), framed(0)) is None
    assert most_bytes("2 kB") == 2048
    with pytest.raises(JobError, match="small_batches"):
        most_bytes(-1)


@pytest.mark.parametrize(
    ("master", "one"), [("local", True), ("local[2]", True), ("local[*, 4]", True), ("local-cluster[2,1,1024]", False)]
)
def test_larger_batches_are_small_where_spark_runs_in_one_process(master, one):
    spark = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    assert is_one_process(spark) == one  # type: ignore[arg-type]
    assert most_bytes(None) < most_bytes(None, USUAL_ON_ONE_MACHINE) == most_bytes("8 MB")


def _fed(folder):
    feeds = {name: Feed(folder / name) for name in "AB"}
    for at in range(4):
        for place, feed in enumerate(feeds.values()):
            feed.rows(*((k % 5, (k * 7 + at) % 9, 10 * at + (k * 3 + place) % 14 - 2) for k in range(12)))
    return feeds


def _left(checkpoint: str) -> dict[str, Any]:
    """What the newest manifest says, without random names and clocks."""
    newest = CheckpointStore(checkpoint).latest()
    assert newest is not None
    told = asdict(newest)
    for name in ("query_id", "recent", "offsets", "epoch"):
        told.pop(name, None)
    return told


@pytest.mark.spark
def test_a_small_batch_leaves_the_same_behind_as_in_executors(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(small_batches, "LONGEST", inf)  # however busy the machine is
    feeds, ran, results, left = _fed(tmp_path / "in"), {}, {}, {}
    for size in (0, "1 MB"):
        events: list[Any] = []
        with ms.Session(spark, checkpoint=str(tmp_path / f"c{size}"), slots=3, small_batches=size) as session:
            for name, feed in feeds.items():
                session.open_stream(
                    name, "parquet", path=str(feed.folder), schema=SCHEMA, options={"maxFilesPerTrigger": "1"}
                )
            queries = {name: session.query(name, cql) for name, cql in QUERIES.items()}
            session.on_progress(events.append)
            session.process_available()
            results[size] = {name: sorted(map(str, q.table().to_pylist())) for name, q in queries.items()}
            told = session.metrics().column("ran_on").to_pylist()
            ran[size] = [e["ran_on"] for e in events if any(e["rows"].values())], told[:4]
        left[size] = _left(str(tmp_path / f"c{size}"))
    assert ran[0] == ([[EXECUTORS]] * 4,) * 2 and ran["1 MB"] == ([[DRIVER]] * 4,) * 2
    assert results[0] == results["1 MB"] and results[0]["join"] and results[0]["counts"]
    assert _plain(left[0]) == _plain(left["1 MB"])


@pytest.mark.spark
def test_batches_of_one_job_run_here_and_there(spark, tmp_path):
    feeds = _fed(tmp_path / "in")
    expected = ms.run(QUERIES["counts"], {n: _all(feed) for n, feed in feeds.items()}, time="ts")
    for part, size in enumerate(("1 MB", "0", "1 MB")):
        with ms.Session(spark, checkpoint=str(tmp_path / "c"), slots=2, small_batches=size) as session:
            for name, feed in feeds.items():
                folder = tmp_path / "some" / name
                folder.mkdir(parents=True, exist_ok=True)
                for path in sorted(feed.folder.iterdir())[part : part + 1 if part < 2 else None]:
                    shutil.copy2(path, folder / path.name)
                session.open_stream(name, "parquet", path=str(folder), schema=SCHEMA, lateness=30)
            query = session.query("counts", QUERIES["counts"])
            session.process_available(finish=part == 2)
            got = query.table()
    assert ms.snapshot_equal(got, expected)


def _all(feed):
    return pa.concat_tables([pq.read_table(p) for p in sorted(feed.folder.iterdir())]).sort_by("ts")


CLOCKS = ("checksum", "seconds", "offset", "length", "bytes", "identity", "since", "figures", "recent")
MERGED = ("results", "superseded")  # when files are merged is up to a thread


def _plain(told: Any) -> Any:
    """A value without what differs from run to run: random names, checksums, times."""
    if isinstance(told, dict):
        return {k: _plain(v) for k, v in told.items() if k not in (*CLOCKS, *MERGED)}
    if isinstance(told, (list, tuple)):
        return sorted((_plain(v) for v in told), key=str)
    return re.sub(r"-[0-9a-f]{12}\b", "-*", told) if isinstance(told, str) else told
