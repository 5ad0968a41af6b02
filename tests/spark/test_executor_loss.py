"""An executor of a cluster is killed while a batch runs, before and during a migration: the results stay the same."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from tests.spark.test_processes import check, job, process_of, write_inputs

EXECUTOR = "CoarseGrainedExecutorBackend"


def executors_of(driver: int) -> list[int]:
    """The executors that a driver has, however they were started."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in brackets may itself hold anything; what follows it is plain.
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = []
    for process in parents:
        ancestors, at = set(), process
        while at in parents and at not in ancestors:
            ancestors.add(at)
            at = parents[at]
        if driver in ancestors and _runs(process, EXECUTOR):
            found.append(process)
    return found


def _runs(process: int, what: str) -> bool:
    try:
        return what in Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return False


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 3, 4])
def test_a_lost_executor_loses_nothing(after, tmp_path):
    inputs = write_inputs(tmp_path)
    process = job(tmp_path, "local-cluster[2,1,1500]")
    committed = tmp_path / "checkpoint" / "manifests"
    until = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < until:
        if committed.exists() and len(list(committed.iterdir())) >= after:
            break
        time.sleep(0.02)
    lost = executors_of(process.pid)
    assert lost, "no executor was running"
    os.kill(lost[0], signal.SIGKILL)
    told, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-3000:]
    check(tmp_path, inputs, told)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("all_attempts", ["true", "false"])
def test_rows_that_spark_selects_twice_are_counted_once(all_attempts, tmp_path):
    inputs = write_inputs(tmp_path)
    (tmp_path / "wait").touch()
    process = process_of("selecting_process.py", str(tmp_path), "local-cluster[2,1,1500]", all_attempts)
    until = time.monotonic() + 300
    while process.poll() is None and len(list(tmp_path.glob("waits-*"))) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    # Whichever of them had selected rows: all output is lost.
    lost = executors_of(process.pid)
    assert lost, "no executor was running"
    for executor in lost:
        os.kill(executor, signal.SIGKILL)
    (tmp_path / "wait").unlink()
    told, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-3000:]
    selected = sum(v > 40 for v in inputs["A"]["v"].to_pylist())
    account = json.loads(told.splitlines()[-1])
    assert (account["rows"], account["results"]) == (len(inputs["A"]), selected)
    assert account["anew"] == (all_attempts == "true")
