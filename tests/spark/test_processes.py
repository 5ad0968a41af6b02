"""Jobs in processes of their own: killed at any point they resume, and on a cluster they give the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.job_process import QUERIES, run

import midstream as ms
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.check import check as check_files
from midstream.checkpoint.collect import collect, garbage
from midstream.checkpoint.control import REQUESTS, TAKEN, path_of
from midstream.checkpoint.store import CheckpointStore

ROOT = Path(__file__).parents[2]
BATCHES = 10

POINTS = [
    "manifest.before_rename:2",
    "pack.after_rename:5",
    "results.before_write:4",
    "manifest.after_rename:4",
    "commit.before_sync:3",
    "retain.before_delete:1",
    "taken.after_rename:1",
    "answer.after_rename:2",
]


def write_inputs(folder: Path, rows: int = 240, batches: int = BATCHES) -> dict[str, pa.Table]:
    random = np.random.default_rng(3)
    inputs = {}
    first = time.time() - 1000
    for name in "ABC":
        ts = np.sort(random.integers(0, 200, rows))
        table = pa.table({"k": random.integers(0, 8, rows), "v": random.integers(0, 50, rows), "ts": ts})
        inputs[name] = table
        (folder / name).mkdir()
        for i in range(batches):
            inside = np.flatnonzero((ts >= i * 200 // batches) & (ts < (i + 1) * 200 // batches))
            path = folder / name / f"{i:03d}.parquet"
            pq.write_table(table.take(pa.array(inside)), path)
            os.utime(path, (first + i, first + i))
    return inputs


def job(folder: Path, master: str, strategy: str = "genmig", **environment: str) -> subprocess.Popen:
    return process_of("job_process.py", str(folder), master, strategy, **environment)


def process_of(script: str, *arguments: str, **environment: str) -> subprocess.Popen:
    """A script of this folder in a process of its own."""
    paths = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    settings = {**os.environ, "PYTHONPATH": paths, "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    command = [sys.executable, str(ROOT / "tests/spark" / script), *arguments]
    return subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check(folder: Path, inputs: dict[str, pa.Table], told: str) -> None:
    assert "(A (B C))" in told
    found = {name: pq.read_table(folder / f"{name}.parquet") for name in QUERIES}
    for name, query in QUERIES.items():
        difference = ms.snapshot_equal(found[name], ms.run(query, inputs))
        assert difference, f"{name}: {difference}"
    expected = ms.run(QUERIES["joined"], inputs)
    assert sorted(map(str, found["joined"].to_pylist())) == sorted(map(str, expected.to_pylist()))
    # What a crash has left is collected, and then everything there is is named by some manifest.
    store = CheckpointStore(str(folder / "checkpoint"))
    collect(store, store.files)
    assert garbage(store, store.files) == []
    manifest = store.latest()
    assert manifest is not None and check_files(store.files, manifest) == []


ASKED: dict[str, dict[str, Any]] = {
    "1": {"command": "rebalance", "routing": [1 - group % 2 for group in range(256)]},
    "2": {"command": "add", "query": "late", "cql": "SELECT v FROM B [NOW] WHERE k < 4"},
}


def ask(folder: Path) -> None:
    """Leaves requests for a job, whether it runs or not."""
    files = files_at(str(folder / "checkpoint"))
    for number, request in ASKED.items():
        files.write_atomic(path_of(REQUESTS, number), json.dumps(request).encode())


def check_asked(folder: Path) -> None:
    """All that was asked has been done, once."""
    store = CheckpointStore(str(folder / "checkpoint"))
    manifest = store.latest()
    assert manifest is not None and store.files.list(TAKEN) == store.files.list(REQUESTS) == []
    assert [told.id for told in manifest.asked.requests] == list(ASKED)
    assert list(manifest.slots.routing) == ASKED["1"]["routing"] and len(manifest.slots.moves) == 1
    started = [record for record in manifest.account("late").history if record.get("event") == "started"]
    assert "late" in manifest.queries and len(started) <= 1


def kill_and_resume(folder: Path, point: str) -> None:
    inputs = write_inputs(folder)
    ask(folder)
    marker = folder / "killed"
    told = ""
    for _ in range(4):
        process = job(folder, "local[2]", MIDSTREAM_CRASH_AT=point, MIDSTREAM_CRASH_ONCE=str(marker))
        told, errors = process.communicate(timeout=600)
        if process.returncode == 0:
            break
    assert process.returncode == 0, errors[-3000:]
    assert marker.exists(), f"{point} was never reached"
    check(folder, inputs, told)
    check_asked(folder)


@pytest.mark.spark
def test_a_killed_job_resumes_right(spark, tmp_path):
    """The first process is killed in truth; what resumes is the process of these tests, whose Spark is warm."""
    inputs = write_inputs(tmp_path, batches=6)
    ask(tmp_path)
    marker = tmp_path / "killed"
    process = job(tmp_path, "local[2]", MIDSTREAM_CRASH_AT=POINTS[0], MIDSTREAM_CRASH_ONCE=str(marker))
    _, errors = process.communicate(timeout=600)
    assert process.returncode != 0 and marker.exists(), errors[-3000:]
    check(tmp_path, inputs, run(spark, tmp_path))
    check_asked(tmp_path)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_job_killed_anywhere_resumes_right(point, tmp_path):
    kill_and_resume(tmp_path, point)


STRATEGIES = ("genmig", "moving_state", "parallel_track", "moving_state_paced", "genmig_reference_point", "auto")
KILLS = 5


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_job_killed_again_and_again_resumes_right(strategy, tmp_path):
    inputs = write_inputs(tmp_path)
    ask(tmp_path)
    random = np.random.default_rng(STRATEGIES.index(strategy))
    kills = 0
    while True:
        process = job(tmp_path, "local[2]", strategy)
        if kills < KILLS and died_at_work(process, tmp_path, float(random.random())):
            kills += 1
            continue
        told, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors[-3000:]
        break
    assert kills >= KILLS - 1
    check(tmp_path, inputs, told)
    check_asked(tmp_path)


def died_at_work(process: subprocess.Popen, folder: Path, delay: float) -> bool:
    """Kills the job a moment after it has begun or finished a batch; False if it came to its end before."""
    offsets, manifests = folder / "checkpoint" / "spark" / "offsets", folder / "checkpoint" / "manifests"

    def progress() -> int:
        return sum(len(list(place.glob("[!.]*"))) for place in (offsets, manifests) if place.exists())

    before = progress()
    while process.poll() is None and progress() <= before:
        time.sleep(0.01)
    time.sleep(delay)
    if process.poll() is not None:
        return False
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return True


@pytest.mark.cluster
@pytest.mark.slow
def test_a_cluster_gives_the_same(tmp_path):
    inputs = write_inputs(tmp_path)
    process = job(tmp_path, "local-cluster[2,1,1500]")
    told, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-3000:]
    check(tmp_path, inputs, told)
