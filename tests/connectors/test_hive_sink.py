"""A folder in partitions has each result once, in this process and where tasks of Spark write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow.fs import FileSystem
from tests.checkpoint.s3_server import s3_bucket

from midstream.cluster.sinks import Delivery, connect
from midstream.connectors.hive import write_parts
from midstream.connectors.sink import deliver
from midstream.errors import JobError
from midstream.testing import check_sink

ROWS = pa.table(
    {
        "k": [1, 2, 3, 4],
        "place": ["a/b", None, "ü 1", "a/b"],
        "valid_from": [1, 2, 3, 4],
        "valid_to": pa.array([9, 9, None, 9], pa.int64()),
    }
)


def delivery(**changed: Any) -> Delivery:
    known: dict[str, Any] = {"query": "q", "identity": "i", "checkpoint": "c", "history": "h", "batch_id": 3}
    return Delivery(**{**known, "since": 0, "until": 10, "schema": ROWS.schema, **changed})


def rows(folder: Path) -> list[dict[str, Any]]:
    if not list(folder.rglob("*.parquet")):
        return []
    found: list[dict[str, Any]] = ds.dataset(folder, format="parquet", partitioning="hive").to_table().to_pylist()
    return found


def test_a_folder_in_partitions_has_each_result_once_and_others_read_it(tmp_path):
    sink = connect("hive", path=str(tmp_path), by=["place"])
    for _ in range(2):
        deliver(sink, ROWS, delivery())
    found = sorted((row["k"], row["place"]) for row in rows(tmp_path))
    assert found == [(1, "a/b"), (2, None), (3, "ü 1"), (4, "a/b")]
    text = f"SELECT k, place FROM read_parquet('{tmp_path}/*/*.parquet', hive_partitioning = true) ORDER BY k"
    assert duckdb.connect().execute(text).fetchall() == found
    with pytest.raises(JobError, match="names day, which is no column of the results"):
        deliver(connect("hive", path=str(tmp_path), by=["day"]), ROWS, delivery())


def test_a_delivery_without_its_mark_does_not_count_and_is_removed(tmp_path):
    sink = connect("hive", path=str(tmp_path), by=["place"])
    deliver(sink, ROWS, delivery())
    deliver(sink, ROWS, delivery(since=10, until=20, batch_id=4))
    (mark,) = [path for path in (tmp_path / "_midstream").iterdir() if '"batch": 4' in path.read_text()]
    mark.unlink()
    assert len(rows(tmp_path)) == 8
    deliver(connect("hive", path=str(tmp_path), by=["place"]), ROWS[:1], delivery(since=10, until=20))
    assert sorted(row["k"] for row in rows(tmp_path)) == [1, 1, 2, 3, 4]


@pytest.mark.slow
def test_a_folder_in_partitions_holds_the_law_of_sinks(tmp_path):
    check_sink(
        lambda place: connect("hive", path=str(tmp_path / place), by=["name"]),
        lambda place: rows(tmp_path / place),
        kills=30,
        seen_in_part=True,
    )


def test_partitions_of_an_object_store_have_each_result_once():
    with s3_bucket() as bucket:
        sink = connect("hive", path=f"{bucket}/out", by=["place"])
        for _ in range(2):
            deliver(sink, ROWS, delivery())
        deliver(connect("hive", path=f"{bucket}/out", by=["place"]), ROWS, delivery())
        filesystem, place = FileSystem.from_uri(f"{bucket}/out".replace("s3a:", "s3:"))
        found = ds.dataset(place, filesystem=filesystem, format="parquet", partitioning="hive").to_table().to_pylist()
    assert sorted((row["k"], row["place"]) for row in found) == [(1, "a/b"), (2, None), (3, "ü 1"), (4, "a/b")]


def test_a_task_that_runs_again_leaves_nothing_of_the_run_that_failed(tmp_path):
    rows = pa.table({"k": [1, 2, 1, None], "v": [1, 2, 3, 4]})
    name = f"{7:016x}-{9:016x}"
    first = write_parts(str(tmp_path), ["k"], name, rows.slice(0, 3), task=5)
    again = write_parts(str(tmp_path), ["k"], name, rows.take([3, 2, 1, 0]), task=5)
    other = write_parts(str(tmp_path), ["k"], name, rows.slice(0, 1), task=6)
    assert set(first) < set(again) and not set(again) & set(other)
    found = duckdb.execute("SELECT v FROM read_parquet(?) ORDER BY v", [f"{tmp_path}/*/*.parquet"]).fetchall()
    assert found == [(1,), (1,), (2,), (3,), (4,)]
