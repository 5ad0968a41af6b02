"""A folder that queries and checkpoints share: nobody's results are lost or doubled."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from tests.job.many import Many

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.api import ask
from midstream.cluster.sinks import Delivery, Folder, digest_of, folder
from midstream.errors import JobError
from midstream.lab.simulated_cluster.storage import NOTHING, VolatileDisk, insert

TABLE = pa.table({"k": [1, 2], "ts": [1, 2]})
CATALOG = ask("SELECT k FROM A [NOW]", {"A": TABLE}).catalog


def values(place: Path) -> list[int]:
    """All that is in the folder."""
    return sorted(pyarrow.dataset.dataset(place).to_table()["k"].to_pylist())


def run(checkpoint: Path, sink: Any, *batches: list[int]) -> Many:
    """A job of two queries whose results go to one sink."""
    job = Many(catalog=CATALOG, folder=checkpoint, slots=1)
    for name in ("first", "second"):
        job.add(name, "SELECT k FROM A [NOW]")
        job.driver.deliveries.add(name, sink, job.driver.manifest)
    job.driver.deliver(job.driver.manifest)
    for times in batches:
        job.batch({"A": pa.record_batch({"k": pa.array(times), "ts": pa.array(times)})})
        job.driver.deliver(job.manifest)
    return job


def rows(*starts: int) -> pa.Table:
    return pa.table({"k": starts, "ts": starts}, schema=pa.schema([("k", pa.int64()), ("ts", pa.int64())]))


def delivery(since: int, until: int, batch: int = 0, checkpoint: str = "one", history: str = "one") -> Delivery:
    return Delivery("q", "identity", checkpoint, history, batch, since, until, TABLE.schema)


def test_queries_and_checkpoints_share_a_folder(tmp_path):
    place = tmp_path / "out"
    run(tmp_path / "one", folder(str(place)), [1], [2], [9])
    run(tmp_path / "two", folder(str(place)), [1], [2], [9])
    assert values(place) == sorted([1, 2] * 4)


def test_a_delivery_that_is_repeated_is_written_once(tmp_path):
    place = tmp_path / "out"
    job = run(tmp_path / "one", folder(str(place)), [1], [2], [9])
    next((tmp_path / "one" / "deliveries").glob("record-*")).unlink()
    again = run(tmp_path / "one", folder(str(place)), [10])
    assert again.manifest.batch_id == job.manifest.batch_id + 1
    for times in range(2):
        folder(str(place)).deliver(rows(1), delivery(0, 2, times))
    assert values(place) == sorted([1, 2, 9] * 2 + [1])


def test_a_file_says_whose_results_it_has(tmp_path):
    folder(str(tmp_path)).deliver(rows(1, 2), delivery(BEGINNING, INFINITY, 7))
    (file,) = tmp_path.iterdir()
    said = json.loads(pq.read_schema(file).metadata[b"midstream"])
    assert said["query"] == "q" and said["since"] == BEGINNING and said["until"] == INFINITY and said["batch"] == 7
    assert said["digest"] == digest_of(pq.read_table(file)) and file.name.startswith("000000000007-q-")


@pytest.mark.parametrize("cuts", [(0, 4, 10), (0, 5, 10), (0, 6, 10), (0, 10), (3, 8, 10), (0, 2, 4, 6, 8, 10)])
def test_results_come_again_cut_in_other_batches_and_are_there_once(cuts, tmp_path):
    given = [1, 2, 5, 5, 7, 9]
    for since, until in ((0, 5), (5, 8)):
        folder(str(tmp_path)).deliver(rows(*(k for k in given if since <= k < until)), delivery(since, until))
    for since, until in zip(cuts, cuts[1:], strict=False):
        restored = delivery(since, until, checkpoint="two")
        folder(str(tmp_path)).deliver(rows(*(k for k in given if since <= k < until)), restored)
    assert values(tmp_path) == given


def test_what_starts_before_all_that_a_folder_has_is_written(tmp_path):
    sink = folder(str(tmp_path))
    sink.deliver(rows(5), delivery(5, 8))
    sink.deliver(rows(1, 2), delivery(0, 3))
    sink.deliver(rows(1, 4, 5, 9), delivery(0, 10, history="other", checkpoint="other"))
    assert values(tmp_path) == [1, 1, 2, 4, 5, 5, 9]


@pytest.mark.parametrize("others", [(1,), (1, 3), (1, 2, 2)])
def test_other_results_for_the_same_instants_are_refused(others, tmp_path):
    folder(str(tmp_path)).deliver(rows(1, 2), delivery(0, 5))
    with pytest.raises(JobError, match="has other results of query q for the same instants") as refused:
        folder(str(tmp_path)).deliver(rows(*others, 7), delivery(0, 8, checkpoint="two"))
    assert next(tmp_path.iterdir()).name in str(refused.value) and values(tmp_path) == [1, 2]


def test_a_clone_beside_its_original_writes_its_own(tmp_path):
    folder(str(tmp_path)).deliver(rows(1, 2), delivery(0, 5))
    folder(str(tmp_path)).deliver(rows(1, 3), delivery(0, 5, checkpoint="clone", history="clone"))
    assert values(tmp_path) == [1, 1, 2, 3]


def test_a_query_of_a_very_long_name_has_files(tmp_path):
    long = Delivery("ü" * 200, "identity", "one", "one", 0, 0, 5, TABLE.schema)
    for _ in range(2):
        folder(str(tmp_path)).deliver(rows(1), long)
    assert values(tmp_path) == [1]


@pytest.mark.parametrize("times", [1, 2])
def test_results_of_which_only_the_batch_is_known_do_not_replace_others(times, tmp_path):
    for _ in range(times):
        for number in (1, 2):
            folder(str(tmp_path))(pa.table({"k": [number]}), 0)
    assert values(tmp_path) == [1, 2]


def test_a_digest_is_of_rows_in_any_order_also_of_values_with_parts():
    table = pa.table({"k": [1, None, 3], "l": [[1], None, [2, 3]], "s": [{"a": 1}, {"a": None}, {"a": 2}]})
    assert digest_of(table) == digest_of(table.take([2, 0, 1])) != digest_of(table.take([2, 0, 0]))
    assert digest_of(table.slice(0, 0)) == digest_of(pa.table({"other": []}))


@pytest.mark.parametrize("same", [True, False], ids=["the same process", "another process"])
def test_results_that_are_not_written_again_are_safe(same, monkeypatch):
    """A name that was given before an error may be lost with the power, unless its folder is synced."""
    monkeypatch.setattr("midstream.connectors.retrying.PAUSES", ())
    disk = VolatileDisk()
    uri = insert("results-that-are-safe", disk)
    due = Delivery("q", "identity", "one", "one", 0, 0, 5, TABLE.schema)

    def fails(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    disk.renamed = fails
    first = Folder(uri)
    with pytest.raises(JobError, match="cannot write"):
        first.deliver(TABLE, due)
    disk.renamed = lambda path: None
    (first if same else Folder(uri)).deliver(TABLE, due)
    left = disk.after_power_loss(NOTHING).seen
    assert sorted(left) == sorted(disk.seen) and len(left) == 1
