"""Crashes: whatever point a process dies at, what is left goes on from the last batch that was done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from midstream.checkpoint import crash_points
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.check import check
from midstream.checkpoint.collect import collect
from midstream.checkpoint.crash_points import CRASH_AT, CRASH_ONCE, reach
from midstream.checkpoint.lists import results_of
from midstream.checkpoint.names import DATA_FOLDERS
from midstream.checkpoint.store import CheckpointStore

ROOT = Path(__file__).parent.parent.parent
BATCHES = 6

JOB = f"""
import sys
from dataclasses import replace
from midstream.checkpoint.collect import collect
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.lease import Lease
from midstream.checkpoint.lists import shorten
from midstream.checkpoint.file_entries import FileLog, ResultFile
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.records import Outputs
from midstream.checkpoint.names import name_for
from midstream.checkpoint.opening import open_states
from midstream.checkpoint.packs import kept_entries, write_pack
from midstream.checkpoint.store import CheckpointStore
from tests.checkpoint.making import STATE, grown, segment

files = files_at(sys.argv[1])
store = CheckpointStore(files)
with Lease.take(files) as lease:
    collect(store, files)
    while (last := store.latest()) is None or last.batch_id < {BATCHES} - 1:
        batch_id = 0 if last is None else last.batch_id + 1
        last = store.before(batch_id, "q") or Manifest("q", -1)
        entries = last.slot("hot", 0, 0)
        held = {{STATE: [*open_states(files, entries).get(STATE, [])[-1:], segment(start=100 * batch_id)]}}
        kept = kept_entries(entries, held)
        made = write_pack(files, name_for("state", batch_id, 0, 0), held)
        path = name_for("results/hot", batch_id, 0, 0)
        files.write_atomic(path, b"rows of batch %d" % batch_id, point="results", sync=False)
        given = ResultFile(path, 1, batch_id, batch_id, batch_id)
        results = {{"hot": grown(last.outputs.results.get("hot", FileLog()), given)}}
        done = Manifest("q", batch_id, segments={{"hot": {{0: {{0: (*kept, *made)}}}}}}, released={{"hot": batch_id}},
                        outputs=Outputs(results=results))
        lease.beat()
        store.commit(shorten(files, done, most=1))
        store.retain(2)
        collect(store, files)
"""

WRITES = [f"{kind}.{step}" for kind in ("pack", "results", "manifest", "lease") for step in crash_points.STEPS]
POINTS = [*WRITES, "list.before_write", "list.within_write", "list.after_rename", *crash_points.OTHERS]


def run_job(checkpoint: Path, crash_at: str | None = None) -> int:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    if crash_at:
        environment[CRASH_AT] = crash_at
    return subprocess.run([sys.executable, "-c", JOB, str(checkpoint)], env=environment, check=False).returncode


def assert_whole(checkpoint: Path) -> None:
    """The outcome of a run that never crashed: every batch's results once, two segments, nothing besides."""
    files = files_at(str(checkpoint))
    store = CheckpointStore(files)
    last = store.latest()
    assert last is not None and last.batch_id == BATCHES - 1 and check(files, last) == []
    assert [e.earliest_from for e in last.slot("hot", 0, 0)] == [100 * (BATCHES - 2), 100 * (BATCHES - 1)]
    results = [files.read(file.path) for file in results_of(files, last, "hot")]
    assert results == [b"rows of batch %d" % i for i in range(BATCHES)]
    collect(store, files)
    assert len(files.list("results")) == BATCHES and len(files.list("manifests")) == 2
    assert not [path for folder in DATA_FOLDERS for path in files.list(folder) if path.endswith(".tmp")]


@pytest.mark.parametrize("point", ["manifest.within_write:2", "pack.after_rename", "list.before_write"])
def test_a_job_killed_at_a_point_resumes_as_if_nothing_had_been(tmp_path, point):
    assert run_job(tmp_path, point) == -signal.SIGKILL
    assert run_job(tmp_path) == 0
    assert_whole(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_a_job_killed_at_any_point_resumes_as_if_nothing_had_been(tmp_path, point, count):
    killed = run_job(tmp_path, f"{point}:{count}")
    assert killed == -signal.SIGKILL
    assert run_job(tmp_path) == 0
    assert_whole(tmp_path)


def test_without_the_variable_nothing_happens(monkeypatch):
    monkeypatch.delenv(CRASH_AT, raising=False)
    for point in crash_points.POINTS:
        reach(point)


def test_a_process_dies_the_time_it_was_told_to(monkeypatch):
    killed = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    monkeypatch.setattr(crash_points, "_reached", type(crash_points._reached)())
    monkeypatch.setenv(CRASH_AT, "pack.before_write:3")
    for _ in range(2):
        reach("pack.before_write")
        reach("pack.after_write")
    assert killed == []
    reach("pack.before_write")
    assert killed == [(os.getpid(), signal.SIGKILL)]
    reach("pack.before_write")
    assert len(killed) == 1


def test_only_one_process_dies_if_told_so(monkeypatch, tmp_path):
    killed = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    monkeypatch.setenv(CRASH_AT, "pack.before_write")
    monkeypatch.setenv(CRASH_ONCE, str(tmp_path / "died"))
    for _ in range(2):
        monkeypatch.setattr(crash_points, "_reached", type(crash_points._reached)())
        reach("pack.before_write")
    assert len(killed) == 1
