"""A folder that queries and checkpoints share: nobody's results are lost or doubled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from tests.job.many import Many

from midstream.api import ask
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.records import Settings
from midstream.cluster.sinks import folder
from midstream.job.outputs.delivery import deliver

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
        job.driver.deliveries.sinks[name] = [sink]
    for times in batches:
        before = job.driver.manifest
        job.batch({"A": pa.record_batch({"k": pa.array(times), "ts": pa.array(times)})})
        job.driver.call_sinks(before, job.manifest)
    return job


def test_queries_and_checkpoints_share_a_folder(tmp_path):
    place = tmp_path / "out"
    run(tmp_path / "one", folder(str(place)), [1], [2], [9])
    run(tmp_path / "two", folder(str(place)), [1], [2], [9])
    assert values(place) == sorted([1, 2] * 4)


def test_a_batch_that_is_repeated_is_written_once(tmp_path):
    place = tmp_path / "out"
    job = run(tmp_path / "one", folder(str(place)), [1], [2], [9])
    job.driver.call_sinks(job.driver.store.read(1), job.manifest)
    again = run(tmp_path / "one", folder(str(place)), [10])
    again.driver.call_sinks(job.driver.store.read(1), job.driver.store.read(2))
    assert values(place) == sorted([1, 2, 9] * 2)


def test_the_file_of_a_batch_of_an_earlier_version_is_known(tmp_path):
    sink = folder(str(tmp_path / "out"))
    sink.files.write_atomic("000000000003.parquet", b"as it was")
    deliver(sink, TABLE, "q", Manifest("x", 3))
    assert sink.files.list("") == ["000000000003.parquet"]
    deliver(sink, TABLE, "q", Manifest("x", 4, settings=Settings(identity="abc")))
    assert sink.files.list("") == ["000000000003.parquet", "000000000004-q-abc.parquet"]


def test_a_checkpoint_keeps_its_identity(tmp_path):
    first = run(tmp_path, folder(str(tmp_path / "out")), [1]).manifest.settings.identity
    assert run(tmp_path, folder(str(tmp_path / "out")), [2]).manifest.settings.identity == first


@pytest.mark.parametrize("times", [1, 2])
def test_results_of_which_only_the_batch_is_known_do_not_replace_others(times, tmp_path):
    for _ in range(times):
        for number in (1, 2):
            folder(str(tmp_path))(pa.table({"k": [number]}), 0)
    assert values(tmp_path) == [1, 2]
