"""Whatever point a job dies at, started again it ends as if nothing had happened.

The job runs in a process of its own, which is killed where it writes its checkpoint.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from midstream import api
from midstream.algebra.snapshots import snapshot_equal
from midstream.checkpoint import crash_points
from midstream.errors import JobError

Job = Callable[[Path], object]

POINTS = (
    "pack.before_write",
    "pack.after_rename",
    "results.within_write",
    "commit.before_sync",
    "manifest.before_write",
    "manifest.within_write",
    "manifest.after_rename",
    "manifest.after_rename:2",
)
"""Where a job is killed by default; `name:2` is the second time it gets there. `crash_points.POINTS` has them all."""


def assert_survives_crashes(
    job: Job, folder: str | os.PathLike[str], *, points: Sequence[str] = POINTS, patience: float = 120.0
) -> list[str]:
    """Fails unless a job that is killed at any of the points, and started again, has the results of one that was not.

    `job(checkpoint)` runs it until its streams are worked through. It must read from sources that are still there after
    a restart, such as folders (`session.open_stream`), because pushed rows would be pushed twice. Gives the points at
    which it was killed. Not with Spark, and not on Windows: the job runs in a fork of this process.
    """
    __tracebackhide__ = True
    if not hasattr(os, "fork"):
        raise JobError("crashes are tested in a fork of this process, which this system does not have")
    where = Path(folder)
    wanted = _undisturbed(job, where / "whole", patience)
    reached = []
    for point in points:
        checkpoint = where / point.replace(":", "-")
        if _forked(job, checkpoint, patience, point) == -signal.SIGKILL:
            reached.append(point)
            _go_on(job, checkpoint, point, patience)
        _compare(checkpoint, wanted, point)
        shutil.rmtree(checkpoint, ignore_errors=True)
    return reached


def _undisturbed(job: Job, checkpoint: Path, patience: float) -> Mapping[str, pa.Table]:
    code = _forked(job, checkpoint, patience)
    if code != 0:
        raise AssertionError(f"the job fails without any crash, with code {code}; its error was written to stderr")
    stored = api.open(checkpoint)
    return {name: stored.results(name) for name in stored.queries}


def _go_on(job: Job, checkpoint: Path, point: str, patience: float) -> None:
    try:
        if api.open(checkpoint).finished:
            return  # killed after its last batch, which counts
    except JobError:
        pass  # killed before its first batch
    code = _forked(job, checkpoint, patience)
    if code != 0:
        raise AssertionError(f"killed at {point}, the job does not start again: code {code}, see stderr")


def _compare(checkpoint: Path, wanted: Mapping[str, pa.Table], point: str) -> None:
    stored = api.open(checkpoint)
    for name, expected in wanted.items():
        difference = snapshot_equal(stored.results(name), expected)
        if not difference:
            raise AssertionError(f"killed at {point}, query {name} ends with other results: {difference}")


def _forked(job: Job, checkpoint: Path, patience: float, point: str = "") -> int:
    """Runs a job in a fork of this process; gives its exit code, negative for a signal."""
    child = os.fork()
    if child == 0:
        _run_and_exit(job, checkpoint, point)
    until = time.monotonic() + patience
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError(f"the job has not ended after {patience:g} seconds{f', killed at {point}' if point else ''}")


def _run_and_exit(job: Job, checkpoint: Path, point: str) -> None:
    code = 1
    try:
        os.environ.pop(crash_points.CRASH_ONCE, None)
        os.environ[crash_points.CRASH_AT] = point
        crash_points.reset()
        job(checkpoint)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
