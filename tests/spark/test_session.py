"""Sessions on Spark: results, late rows, sinks, resuming, and what is refused."""

from __future__ import annotations

import gc
import json
import shutil
import threading
import weakref
from pathlib import Path

import pyarrow as pa
import pytest
from tests.spark.feeding import SCHEMA, Feed

import midstream as ms
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.control import ask
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.errors import JobError

pytestmark = pytest.mark.spark

JOIN = "SELECT A.v AS a, B.v AS b FROM A [RANGE 10], B [RANGE 10] WHERE A.k = B.k"


@pytest.fixture
def feeds(tmp_path: Path) -> dict[str, Feed]:
    return {name: Feed(tmp_path / name) for name in "AB"}


def session_on(spark, tmp_path: Path, feeds: dict[str, Feed], cql: str = JOIN, **options) -> CheckpointSession:
    session = CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint"), slots=3)
    for name, feed in feeds.items():
        session.stream(name, feed.frame(spark), time="ts", **options)
    session.query("q", cql)
    return session


def pairs(table: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(table.column("a").to_pylist(), table.column("b").to_pylist(), strict=True))


def test_a_session_goes_on_where_it_was_stopped(spark, tmp_path, feeds):
    feeds["A"].rows((1, 10, 0), (2, 20, 1))
    feeds["B"].rows((1, 11, 3))
    with session_on(spark, tmp_path, feeds) as session:
        session.process_available()
        assert pairs(session.queries["q"].table()) == []  # B may still bring something that starts at 3
    feeds["A"].rows((1, 30, 5))
    feeds["B"].rows((2, 21, 6), (1, 12, 20))
    with session_on(spark, tmp_path, feeds) as session:
        session.process_available()
        assert pairs(session.queries["q"].table()) == [(10, 11)]
        session.finish()
        assert pairs(session.queries["q"].table()) == [(10, 11), (20, 21), (30, 11)]
        assert session.results("q").count() == 3


def test_a_session_that_is_over_leaves_nothing_in_memory(spark, tmp_path, feeds):
    feeds["A"].rows((1, 10, 0))
    with session_on(spark, tmp_path, feeds) as session:
        session.process_available()
        feeds["A"].rows((1, 20, 1))
        session.process_available()
        job = weakref.ref(session._backend)
    del session
    gc.collect()
    assert job() is None  # Spark kept what it called with each batch, and with that all that the job held


def test_late_and_unusable_rows_are_counted_and_kept(spark, tmp_path, feeds):
    feeds["A"].rows((1, 10, 100), (1, 99, None))
    feeds["B"].rows((1, 11, 100))
    feeds["A"].rows((1, 12, 50), (1, 13, 101))
    feeds["B"].rows((1, 14, 102))
    with session_on(spark, tmp_path, feeds) as session:
        session.process_available()
        session.finish()
        assert pairs(session.queries["q"].table()) == [(10, 11), (10, 14), (13, 11), (13, 14)]
        letters = session.dead_letters().orderBy("batch_id").collect()
    assert [(row.stream, row.reason) for row in letters] == [("A", "null time"), ("A", "late")]


def test_a_sink_gets_each_result_once_in_order_of_its_start(spark, tmp_path, feeds):
    from midstream.cluster.sinks import MemorySink

    for i in range(3):
        feeds["A"].rows((1, i, 10 * i), (1, 10 + i, 10 * i + 5))
        feeds["B"].rows((1, 100 + i, 10 * i + 2))
    memory = MemorySink()
    with session_on(spark, tmp_path, feeds) as session:
        session.sink("q", memory)
        session.process_available()
        session.finish()
        everything = session.queries["q"].table()
    starts = memory.table.column("valid_from").to_pylist()
    assert starts == sorted(starts)
    assert pairs(memory.table) == pairs(everything)


def test_a_fresh_spark_checkpoint_under_old_state_is_refused(spark, tmp_path, feeds):
    feeds["A"].rows((1, 10, 0))
    feeds["B"].rows((1, 11, 3))
    with session_on(spark, tmp_path, feeds) as session:
        session.process_available()
    (tmp_path / "checkpoint/spark/.metadata.crc").unlink()
    (tmp_path / "checkpoint/spark/metadata").write_text('{"id":"7a07eb29-901d-4c10-8fab-89b5268c9122"}')
    feeds["A"].rows((1, 12, 4))
    with session_on(spark, tmp_path, feeds) as session, pytest.raises(JobError, match="another Spark query"):
        session.process_available()
    shutil.rmtree(tmp_path / "checkpoint/spark")
    with session_on(spark, tmp_path, feeds) as session, pytest.raises(JobError, match="lacks entry 0"):
        session.process_available()
    assert not (tmp_path / "checkpoint/spark").exists()


def test_stamped_rows_have_the_time_that_spark_has_logged(spark, tmp_path, feeds):
    feeds["A"].rows((1, 10, 0))
    feeds["A"].rows((1, 11, 0))
    cql = "SELECT A.v AS a FROM A [NOW]"
    with session_on(spark, tmp_path, {"A": feeds["A"]}, cql, timestamps="internal") as session:
        session.process_available()
        session.finish()
        table = session.queries["q"].table()
    offsets = [(tmp_path / f"checkpoint/spark/offsets/{i}").read_text().splitlines() for i in range(2)]
    logged = [json.loads(lines[1])["batchTimestampMs"] * 1000 for lines in offsets]
    assert table.column("valid_from").cast(pa.int64()).to_pylist() == logged
    assert table.column("a").to_pylist() == [10, 11]


def test_the_command_line_asks_spark(spark, tmp_path, feeds):
    from typer.testing import CliRunner

    from midstream.interface.cli import app

    tables = {"A": feeds["A"].rows((1, 10, 0), (2, 20, 1)), "B": feeds["B"].rows((1, 11, 3))}
    files = [word for n, f in feeds.items() for word in ("--stream", f"{n}={f.folder / '000000.parquet'}")]
    done = CliRunner().invoke(app, ["query", JOIN, *files, "--on", "spark", "--json"])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["on"] == "spark"
    assert answer["rows"] == ms.run(JOIN, tables).to_pylist()


def test_a_second_driver_is_refused(spark, tmp_path, feeds):
    feeds["A"].rows((1, 10, 0))
    feeds["B"].rows((1, 11, 3))
    with session_on(spark, tmp_path, feeds) as session:
        session.process_available()
        with pytest.raises(JobError, match="another driver"):
            session_on(spark, tmp_path, feeds).process_available()


def test_another_text_under_the_same_name_is_refused(spark, tmp_path, feeds):
    feeds["A"].rows((1, 10, 0))
    feeds["B"].rows((1, 11, 3))
    with session_on(spark, tmp_path, feeds) as session:
        session.process_available()
    with pytest.raises(JobError, match="another text"):
        session_on(spark, tmp_path, feeds, JOIN + " AND A.v > 0")


def test_a_second_process_can_ask_migrate_and_stop(spark, tmp_path, feeds):
    feeds["A"].rows((1, 10, 0))
    feeds["B"].rows((1, 11, 3))
    files = files_at(str(tmp_path / "checkpoint"))
    told = {}
    with session_on(spark, tmp_path, feeds) as session:
        session.start("1 second")

        def talk() -> None:
            told["status"] = ask(files, {"command": "status"})
            told["plan"] = ask(files, {"command": "plan", "query": "q"})
            told["add"] = ask(files, {"command": "add", "query": "r", "cql": "SELECT v FROM A [NOW] WHERE k = 1"})
            feeds["A"].rows((1, 12, 4))
            ask(files, {"command": "stop"})

        other = threading.Thread(target=talk)
        other.start()
        assert session.wait(timeout=120)
        other.join()
    assert told["status"]["queries"]["q"]["plan"] == told["plan"]["plan"]
    assert told["add"]["query"] == "r"


def test_a_stream_can_be_added_to_a_session_whose_sources_are_named(spark, tmp_path):
    from midstream.cluster.spark.frames.sources import EVOLUTION

    feeds = {name: Feed(tmp_path / name) for name in "ABC"}

    def opened(names: str) -> CheckpointSession:
        session = CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint"), slots=2)
        for name in names:
            options = {"maxFilesPerTrigger": "1"}
            session.open_stream(name, "parquet", path=str(tmp_path / name), schema=SCHEMA, options=options)
        session.query("q", JOIN)
        return session

    spark.conf.set(EVOLUTION, "true")
    try:
        feeds["A"].rows((1, 10, 0))
        feeds["B"].rows((1, 11, 3))
        with opened("AB") as session:
            session.process_available()
        feeds["A"].rows((1, 12, 4))
        feeds["C"].rows((1, 13, 5))
        with opened("CAB") as session:
            session.query("r", "SELECT A.v AS a, C.v AS b FROM A [RANGE 10], C [RANGE 10] WHERE A.k = C.k")
            session.process_available()
            session.finish()
            assert pairs(session.queries["q"].table()) == [(10, 11), (12, 11)]
            # The new query starts from what the window over A holds.
            assert pairs(session.queries["r"].table()) == [(10, 13), (12, 13)]
    finally:
        spark.conf.unset(EVOLUTION)
