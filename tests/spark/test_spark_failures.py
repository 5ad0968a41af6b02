"""What Spark's own failures are said to be: which process died or which file is damaged, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkValueError, StreamingQueryException
from tests.spark.feeding import Feed
from tests.spark.test_processes import process_of

import midstream as ms
from midstream.cluster.spark import failures
from midstream.cluster.spark.failures import _explained, in_words
from midstream.errors import ClusterError

COUNTED = "SELECT k, count(*) AS n FROM A [RANGE 10] GROUP BY k"


def failing(spark: Any, folder: Path, cql: str = COUNTED, **options: Any) -> ms.MidstreamError:
    """What a session over a folder fails with."""
    with ms.Session(spark, checkpoint=str(folder / "checkpoint"), slots=2, **options) as session:
        session.stream("A", Feed(folder / "A").frame(spark), time="ts")
        session.query("q", cql)
        with pytest.raises(ms.MidstreamError) as caught:
            session.process_available()
    return caught.value


def test_a_torn_file_of_a_stream_is_named_and_mended_the_job_goes_on(spark, tmp_path):
    feed = Feed(tmp_path / "A")
    feed.rows((1, 1, 1))
    feed.rows((1, 1, 2))
    torn = tmp_path / "A" / "000001.parquet"
    whole = torn.read_bytes()
    torn.write_bytes(whole[: len(whole) // 2])
    error = failing(spark, tmp_path)
    assert isinstance(error, ms.InputError)
    assert "000001.parquet" in error.message and "cannot be read" in error.message
    assert "is not a Parquet file" in str(error.detail)
    torn.write_bytes(whole)
    with ms.Session(spark, checkpoint=str(tmp_path / "checkpoint"), slots=2) as session:
        session.stream("A", feed.frame(spark), time="ts")
        query = session.query("q", COUNTED)
        session.process_available(finish=True)
        assert query.table().num_rows > 0


def test_a_file_of_other_types_is_named_with_the_column(spark, tmp_path):
    (tmp_path / "A").mkdir()
    pq.write_table(pa.table({"k": ["x"], "v": ["y"], "ts": ["z"]}), tmp_path / "A" / "000000.parquet")
    error = failing(spark, tmp_path)
    assert isinstance(error, ms.InputError)
    assert error.message.endswith("000000.parquet") and "another type in column" in error.message
    assert error.detail == "the stream's schema says bigint, the file has BINARY"


def die(values: pa.Array) -> pa.Array:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)
    return values


def test_a_worker_that_is_killed_in_a_task_is_named(spark, tmp_path):
    Feed(tmp_path / "A").rows((1, 1, 1))
    deadly = ms.ScalarFunction("die", die, pa.int64())
    error = failing(spark, tmp_path, "SELECT die(v) AS d FROM A [RANGE 10]", functions=[deadly])
    assert isinstance(error, ClusterError)
    assert "a Python worker of Spark ended" in error.message and "start the job again" in str(error.hint)


@pytest.mark.slow
def test_a_killed_virtual_machine_is_named_and_ends_a_command_with_a_code_of_its_own(tmp_path):
    Feed(tmp_path / "A").rows((1, 1, 1))
    process = process_of("killing_process.py", str(tmp_path))
    _, complaint = process.communicate(timeout=600)
    assert process.returncode == 75, complaint
    assert "has ended while the job was running" in complaint
    assert "signal 9 (SIGKILL)" in complaint
    assert "Traceback" not in complaint


@pytest.mark.parametrize("lost", [True, False])
def test_a_lost_connection_that_is_taken_for_something_else_is_named(lost, spark, monkeypatch):
    """Killed while PySpark asks for a schema, Java's end was told as a schema that cannot be parsed."""
    monkeypatch.setattr(failures, "_how_it_ended", lambda: None)  # it has not
    with pytest.raises(PySparkValueError) as caught:
        try:
            raise Py4JNetworkError("Answer from Java side is empty") if lost else ValueError("not a type")
        except Exception as error:
            arguments = {"msg": str(error)}
            raise PySparkValueError(errorClass="CANNOT_PARSE_DATATYPE", messageParameters=arguments)  # noqa: B904
    told = in_words(caught.value, spark, "checkpoint")
    assert isinstance(told, ClusterError) == lost
    assert lost == ("has ended while the job was running" in str(told))


def test_a_value_that_one_query_cannot_use_stops_that_one_alone(spark, tmp_path):
    feed = Feed(tmp_path / "A")
    feed.rows((1, 1, 1))
    feed.rows((1, 1, 2))
    feed.rows((2, 5, 3), (1, 2, 3))
    feed.rows((1, 3, 4))
    large = "SELECT k, v * 2305843009213693952 AS large FROM A [RANGE 10]"
    session: Any = ms.Session(spark, checkpoint=str(tmp_path / "checkpoint"), slots=2)
    with session:
        session.stream("A", feed.frame(spark), time="ts")
        queries = {
            name: session.query(name, cql, on_error=policy)
            for name, cql, policy in [
                ("plain", COUNTED, None),
                ("stopped", large, "stop_query"),
                ("sifted", large, "dead_letter"),
            ]
        }
        session.process_available(finish=True)
        assert queries["plain"].quarantine is None and queries["sifted"].quarantine is None
        assert queries["stopped"].quarantine["reason"].startswith("integer overflow")
        assert sorted(queries["sifted"].table()["large"].to_pylist()) == [2**61, 2**61, 2**62, 3 * 2**61]
        assert queries["stopped"].table()["large"].to_pylist() == [2**61]
        letters = session.dead_letters().toPandas()
        assert len(letters) == 1 and "query sifted: integer overflow" in letters["reason"][0]
        rows = {"A": pa.concat_tables([pq.read_table(path) for path in sorted((tmp_path / "A").glob("*.parquet"))])}
        assert ms.snapshot_equal(queries["plain"].table(), ms.reference(COUNTED, rows))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "ExecutorLostFailure (executor 1 exited caused by one of the running tasks)\n",
            "an executor of Spark was lost",
        ),
        ("java.io.IOException: No space left on device\n", "Spark cannot write at /c: no space left"),
        (
            "java.nio.file.AccessDeniedException: /data/in/sub: Permission denied\n",
            "a folder of a stream cannot be listed: /data/in/sub",
        ),
        (
            'AccessControlException: Permission denied: user=me, access=READ_EXECUTE, inode="/data/in":you:x:drwx\n',
            "a folder of a stream cannot be listed: /data/in",
        ),
        ("java.nio.file.AccessDeniedException: /c/spark: Permission denied\n", "Spark cannot write at /c"),
        ("java.lang.IllegalStateException: Incomplete log file in the log\n", "Spark cannot read its own log in /c"),
    ],
)
def test_other_failures_are_known_by_what_spark_says(text, message):
    error = _explained(text, "/c")
    assert error is not None and error.message.startswith(message)


@pytest.mark.parametrize(
    ("trace", "detail"),
    [
        ("\nCaused by: java.lang.StackOverflowError\n\tat a.B.c(B.scala:1)", "java.lang.StackOverflowError"),
        ("\njava.io.IOException: a: b\n\tat a.B.c\n", "java.io.IOException: a: b"),
        ("", "it does not say why; its log may"),
    ],
)
def test_an_end_of_sparks_query_for_whatever_reason_is_told_in_words(trace, detail, spark):
    ended = StreamingQueryException(f"[STREAM_FAILED] Query terminated with exception:  SQLSTATE: XXKST{trace}")
    told = in_words(ended, spark, "/c")
    assert isinstance(told, ClusterError) and told.__cause__ is ended
    assert told.message == "Spark ended the job's streaming query" and told.detail == detail


def test_what_nobody_knows_stays_as_it_is():
    assert _explained("java.lang.NullPointerException", "/c") is None
