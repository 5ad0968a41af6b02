"""Where a session keeps its files on Spark: odd names, files that have gone, and what is left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.spark.feeding import Feed

import midstream as ms
from midstream.checkpoint.outputs import outputs_of
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.errors import JobError

pytestmark = pytest.mark.spark

ODD = "run[1] {a,b} 50%20off a#b what*?"
"""What Spark takes for patterns, escapes or fragments where it is not told otherwise."""


def session_on(spark, folder: Path, feed: Feed, given: list) -> CheckpointSession:
    session = CheckpointSession(spark, checkpoint=str(folder), slots=1)
    session.stream("A", feed.frame(spark), time="ts")
    session.query("q", "SELECT A.k, A.v FROM A [NOW]")
    session.sink("q", lambda frame, batch_id: given.extend(frame.collect()))
    return session


def test_signs_of_patterns_in_the_checkpoints_path_mean_themselves(spark, tmp_path):
    feed = Feed(tmp_path / "A")
    given: list = []
    for i in range(3):
        feed.rows((i, i, i))
    feed.rows((9, 9, -5))
    with session_on(spark, tmp_path / ODD, feed, given) as session:
        session.process_available()
        assert session.results("q").count() == len(given) == 2
        assert session.dead_letters().count() == 1
        assert session.metrics().num_rows == 4
    assert ms.read_results(str(tmp_path / ODD), "q").num_rows == 2


def test_a_result_file_that_was_deleted_is_named_by_the_session(spark, tmp_path):
    feed = Feed(tmp_path / "A")
    given: list = []
    for i in range(3):
        feed.rows((i, i, i))
    with session_on(spark, tmp_path / "checkpoint", feed, given) as session:
        session.process_available()
        manifest = session._job.manifest
        assert manifest is not None
        path = next(outputs_of(session._job.files, manifest)).path
        os.unlink(session._job.files.full(path))
        with pytest.raises(JobError, match="the result file .* is missing"):
            session.results("q")
    with pytest.raises(JobError, match="the result file .* is missing"):
        session_on(spark, tmp_path / "checkpoint", feed, given).start()


def test_what_is_shipped_lies_where_spark_removes_it(spark, tmp_path):
    feed = Feed(tmp_path / "A")
    feed.rows((1, 1, 1))
    with session_on(spark, tmp_path / "checkpoint", feed, []) as session:
        session.process_available()
    (shipped,) = {file for file in spark.sparkContext.listFiles if file.endswith("/midstream.zip")}
    rights = (tmp_path / "checkpoint").stat().st_mode & 0o777
    assert rights == 0o700
    assert Path(spark.sparkContext._temp_dir, "midstream.zip").exists(), shipped
