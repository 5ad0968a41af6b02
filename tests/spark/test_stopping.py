"""A job is told to stop as shells and supervisors do it, by a signal to all its processes, and goes on later."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from midstream.checkpoint.store import CheckpointStore

ROOT = Path(__file__).parents[2]


def run_until(folder: Path, batches: int, sign: signal.Signals) -> tuple[int, str]:
    """Runs the job until it has committed so many batches, then signals its whole group."""
    command = [sys.executable, "-c", "from midstream.interface.cli import main; main()", "run", "clicks.toml"]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < until and newest(folder) < batches:
        time.sleep(0.05)
    os.killpg(process.pid, sign)
    told, _ = process.communicate(timeout=300)
    return process.returncode, told


def newest(folder: Path) -> int:
    checkpoint = folder / "clicks.checkpoint"
    manifest = CheckpointStore(str(checkpoint)).latest() if checkpoint.exists() else None
    return -1 if manifest is None else manifest.batch_id


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_processes_ends_a_job_in_order(sign, tmp_path):
    shutil.copy(ROOT / "examples" / "clicks.toml", tmp_path)
    code, told = run_until(tmp_path, 1, sign)
    assert (code, "Traceback" in told) == (0, False), told
    first = newest(tmp_path)
    code, told = run_until(tmp_path, first + 2, sign)
    assert (code, "Traceback" in told) == (0, False), told
    assert newest(tmp_path) >= first + 2
