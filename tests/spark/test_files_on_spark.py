"""Folders of files on Spark: they are read as in a process, whatever they hold and are called."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.connectors.awkward_texts import GROUPS, require_expected

import midstream as ms
from midstream.cluster.checkpoint_session import CheckpointSession

pytestmark = pytest.mark.filterwarnings("ignore::midstream.DeadLetterWarning")


@pytest.mark.parametrize("group", GROUPS)
def test_awkward_texts_mean_on_spark_what_the_table_says(spark, group, tmp_path):
    with CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint"), slots=2) as session:
        require_expected(session, tmp_path, group)


@pytest.mark.parametrize("group", ["csv with header", "json"])
def test_awkward_texts_mean_the_same_where_the_driver_reads_them(spark, group, tmp_path):
    with CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint"), slots=2, small_batches="1 MB") as session:
        require_expected(session, tmp_path, group)


def opened(session: CheckpointSession, folder: Path) -> CheckpointSession:
    session.open_stream("A", "csv", path=str(folder), schema="ts BIGINT, v BIGINT", max_ahead="any", lateness=1000)
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
    with CheckpointSession(spark, checkpoint=str(tmp_path / "checkpoint")) as session, pytest.raises(ms.InputError):
        opened(session, Path(path.format(base=tmp_path)))
