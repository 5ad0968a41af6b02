"""A full or closed disk is told as such and the job goes on once it is repaired; what cannot run is refused by name."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.job.chain import Chain

import midstream as ms
from midstream.api import ask
from midstream.checkpoint import local_files
from midstream.checkpoint.collect import collect, garbage
from midstream.checkpoint.failures import storage_refusal
from midstream.errors import JobError
from midstream.job.commits import Compactor
from midstream.job.task import memory as spill
from midstream.job.task.memory import Memory

QUERY = "SELECT A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k"


def tables(rows: int = 60, last: int = 100) -> dict[str, pa.Table]:
    random = np.random.default_rng(7)

    def table() -> pa.Table:
        columns = {"k": random.integers(0, 4, rows), "v": random.integers(0, 30, rows)}
        return pa.table({**columns, "ts": np.sort(random.integers(0, last, rows))})

    return {name: table() for name in "AB"}


def opened(folder: Path, memory: Memory | None = None) -> Chain:
    question = ask(QUERY, tables())
    return Chain(question.plan, question.catalog, folder, slots=2, memory=memory)


def late(parts: dict[str, pa.RecordBatch]) -> dict[str, pa.RecordBatch]:
    rows = parts["A"].to_pylist()
    return {**parts, "A": pa.RecordBatch.from_pylist([*rows, {**rows[0], "ts": -1}], schema=parts["A"].schema)}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize("folder", ["state", "results", "dead_letters", "manifests"])
def test_a_refused_write_is_told_and_the_job_resumes(folder, number, tmp_path, monkeypatch):
    write, failing = local_files._write, [False]

    def write_or_fail(path: str, *rest: Any) -> None:
        if failing[0] and Path(path).is_relative_to(tmp_path / folder):
            raise OSError(number, os.strerror(number), path)
        write(path, *rest)

    monkeypatch.setattr(local_files, "_write", write_or_fail)
    # A round of merges that nobody waits for leaves a file that no manifest names.
    monkeypatch.setattr(Compactor, "begin", lambda self, manifest: None)
    chain = opened(tmp_path)
    parts = chain.cut(tables(), 20)
    for i, part in enumerate(parts):
        given = late(part) if i else part
        failing[0] = i == 3
        if failing[0]:
            with pytest.raises(JobError) as refused:
                chain.batch(given)
            assert refused.value.detail == os.strerror(number) and str(tmp_path) in refused.value.message
            assert ("free space" if number == errno.ENOSPC else "right to read and write") in str(refused.value.hint)
            failing[0] = False
            chain = opened(tmp_path)
        chain.batch(given)
    chain.batch({}, end=True)
    assert sorted(map(str, chain.results().to_pylist())) == sorted(map(str, ms.run(QUERY, tables()).to_pylist()))
    collect(chain.driver.store, chain.driver.files)
    assert not garbage(chain.driver.store, chain.driver.files)


def test_a_full_folder_for_temporary_files_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(spill, "spill_folder", lambda: str(tmp_path / "gone"))
    chain = opened(tmp_path / "checkpoint", Memory(2**10))
    with pytest.raises(JobError, match="temporary file in .*gone"):
        chain.batch(chain.cut(tables(), 60)[0])


def test_what_spark_says_of_the_disk_is_understood():
    told = storage_refusal("Caused by: java.io.IOException: No space left on device\n  at x", "/c")
    assert told is not None and "no space left" in told.message and "free space" in str(told.hint)
    assert storage_refusal("something else", "/c") is None


def test_spark_connect_is_refused_by_name():
    from midstream.cluster.spark.environment import require_classic

    client = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(JobError, match="Spark Connect") as refused:
        require_classic(client)
    assert "spark-submit" in str(refused.value.hint)
