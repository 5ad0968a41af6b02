"""Folders of files on Spark: they are read as in a process, whatever they hold and are called."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyarrow import feather
from tests.checkpoint.s3_server import s3_bucket
from tests.connectors.awkward_texts import GROUPS, require_expected
from tests.connectors.test_object_folders import COLUMNS, parquet
from tests.connectors.test_object_folders import put as put_object
from tests.connectors.test_waiting_files import QUERY, batches

import midstream as ms
from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import INFINITY
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.spark_log import LoggedFile
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.spark.frames.tagging import StreamInput
from midstream.cluster.spark.source_files import SourceFiles
from midstream.inputs import NamedSource

pytestmark = pytest.mark.filterwarnings("ignore::midstream.DeadLetterWarning")


@pytest.mark.parametrize("group", GROUPS)
def test_awkward_texts_mean_on_spark_what_the_table_says(spark, group, tmp_path):
    with CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint"), slots=2) as session:
        require_expected(session, tmp_path, group)


@pytest.mark.parametrize("group", ["csv with header", "json"])
def test_awkward_texts_mean_the_same_where_the_driver_reads_them(spark, group, tmp_path):
    with CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint"), slots=2, small_batches="1 MB") as session:
        require_expected(session, tmp_path, group)


@pytest.mark.parametrize("small", [0, "1 MB"])
def test_files_of_arrow_are_read_as_in_a_process(spark, tmp_path, small):
    (tmp_path / "in").mkdir()
    feather.write_feather(pa.table({"ts": [1, 2], "v": [7, 8]}), str(tmp_path / "in" / "1.arrow"))
    session = CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint"), small_batches=small)
    with opened(session, tmp_path / "in", "arrow"):
        session.process_available(finish=True)
        assert sorted(row["v"] for row in session.results("q").collect()) == [7, 8]


def opened(session: CheckpointSession, folder: Path, format: str = "csv") -> CheckpointSession:
    session.open_stream("A", format, path=str(folder), schema="ts BIGINT, v BIGINT", max_ahead="any", lateness=1000)
    session.query("q", "SELECT v FROM A [RANGE 5]")
    return session


def test_names_that_spark_takes_for_patterns_or_partitions_are_read_once(spark, tmp_path):
    names = ["[x].csv", "x.csv", "a?b.csv", "a b.csv", "{c,d}.csv", "c.csv", "*.csv", "day=1/x.csv", "_k=2/y.csv"]
    for number, name in enumerate(names):
        file = tmp_path / "in" / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(f"{number + 1},{number}\n")
    with opened(CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint")), tmp_path / "in") as session:
        session.process_available(finish=True)
        assert sorted(row["v"] for row in session.results("q").collect()) == list(range(len(names)))


@pytest.mark.parametrize("small", [0, "1 MB"])
def test_a_file_that_is_no_text_is_named(spark, tmp_path, small):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_bytes(b"PAR1")
    session = CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint"), small_batches=small)
    with opened(session, tmp_path / "in"), pytest.raises(ms.InputError, match=r"cannot read .*1\.csv as csv"):
        session.process_available(finish=True)


@pytest.mark.parametrize("path", ["{base}/*", "{base}/nowhere"])
def test_a_path_that_is_no_folder_is_refused(spark, tmp_path, path):
    (tmp_path / "all" / "in").mkdir(parents=True)
    with CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint")) as session, pytest.raises(ms.InputError):
        opened(session, Path(path.format(base=tmp_path / "all")))


def put(folder: Path, number: int) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / f"{number}.csv").write_text(f"{number},{number}\n")


@pytest.mark.parametrize("small", [0, "1 MB"])
def test_a_moved_folder_has_the_same_files_wherever_the_job_goes_on(spark, tmp_path, small):
    """On Spark, moved and on Spark, moved and in a process, in the folder above and on Spark."""
    places = [tmp_path / "a/in", tmp_path / "b/in", tmp_path / "c/in", tmp_path / "c"]
    for number, (place, on) in enumerate(zip(places, [spark, spark, None, spark], strict=True)):
        if number and place.name == "in":
            place.parent.mkdir()
            places[number - 1].rename(place)
        put(place, number)
        options = {"small_batches": small} if on is not None else {}
        where = "local" if on is None else "spark"
        session = CheckpointSession(on, checkpoint=str(tmp_path / "checkpoint"), on=where, **options)
        with opened(session, place) as session:
            session.process_available(finish=number == 3)
            if number == 3:
                assert sorted(row["v"] for row in session.results("q").collect()) == [0, 1, 2, 3]


def test_streams_in_another_order_are_refused(spark, tmp_path):
    for name in "AB":
        put(tmp_path / name, 1)
    for names, refused in (("AB", False), ("BA", True)):
        with CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint")) as session:
            for name in names:
                session.open_stream(name, "csv", path=str(tmp_path / name), schema="ts BIGINT, v BIGINT")
            session.query("q", "SELECT A.v FROM A [RANGE 5], B [RANGE 5] WHERE A.v = B.v")
            if refused:
                with pytest.raises(ms.JobError, match="another order than before: B, A instead of A, B"):
                    session.process_available()
            else:
                session.process_available()


def test_a_folder_that_is_gone_while_a_job_runs_is_an_error(spark, tmp_path):
    put(tmp_path / "in", 1)
    with opened(CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint")), tmp_path / "in") as session:
        session.start()
        shutil.rmtree(tmp_path / "in")
        with pytest.raises(ms.InputError, match="there is no folder|is gone|cannot read"):
            session.wait(60)


def test_a_folder_named_after_a_declared_column_is_refused(spark, tmp_path):
    (tmp_path / "in" / "v=1").mkdir(parents=True)
    put(tmp_path / "in" / "v=1", 1)
    session = CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint"))
    with opened(session, tmp_path / "in"), pytest.raises(ms.InputError, match="columns come from files only"):
        session.process_available()


@pytest.mark.parametrize(("most", "batches"), [("10", [2, 2, 1]), ("any", [5])])
def test_a_backlog_is_cut_to_what_fits(spark, tmp_path, most, batches):
    for number in range(5):
        put(tmp_path / "in", number)
    taken: list[int] = []
    with CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint"), small_batches="1 MB") as session:
        schema, options = "ts BIGINT, v BIGINT", {"maxBytesPerTrigger": most}
        session.open_stream("A", "csv", path=str(tmp_path / "in"), schema=schema, options=options, lateness=9)
        session.query("q", "SELECT v FROM A [RANGE 5]")
        session.on_progress(lambda event: taken.append(event["rows"].get("A", 0)))
        session.process_available()
    assert [rows for rows in taken if rows] == batches


@pytest.mark.spark
@pytest.mark.parametrize("format", ["parquet", "csv.gz"])
def test_rows_of_a_backlog_whose_files_are_out_of_order_are_not_late(format, spark, tmp_path):
    fed, found, _, late = batches(tmp_path, format, [40, 0, 30, 10, 20], spark)
    assert late == 0
    assert ms.snapshot_equal(found, ms.reference(QUERY, {"A": fed}, time="ts"))


def test_objects_that_wait_on_spark_are_looked_at_where_this_process_can_list_them(tmp_path, caplog):
    with s3_bucket() as bucket:
        for name, times in {"b": (40, 45), "a": (7, 9), "c": (20, 29)}.items():
            put_object(f"{bucket}/in/{name}.parquet", parquet(*times))
        for path, earliest in ((f"{bucket}/in", 7), ("s3a://no-such-bucket/in", INFINITY)):
            source = NamedSource("A", "parquet", path=path, schema="id BIGINT, ts BIGINT")
            stream = StreamInput(StreamDeclaration("A", COLUMNS, "ts"), cast(Any, None), source)
            files = SourceFiles.of(files_at(str(tmp_path)), None, cast(Any, None), [stream])
            read = files.of_batch({"A": [LoggedFile(f"{path}/b.parquet", 1)]}, "", "")
            assert read.waiting == {"A": earliest}
    assert "files of stream A that wait for a later batch are not looked at" in caplog.text
