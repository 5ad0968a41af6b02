"""`midstream bench soak`: thousands of small batches of streams that do not change; nothing may grow.

In this process the job has all features on; on Spark it is a join and a grouped count over Spark's own steady source.
After the windows have filled, each quantity is compared between the first and the last third of the batches.
"""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midstream.checkpoint.names import STATE
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError
from midstream.lab.bench.figures import Report
from midstream.lab.bench.steady_job import SteadyJob

BATCHES = 2000
ON_SPARK = 510
FILLED = 30
"""Batches until windows and retained manifests are full."""

QUERIES = {
    "joined": "SELECT A.k, A.v AS a, B.v AS b FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k",
    "counted": "SELECT g, count(*) AS n, max(v) AS top FROM A [RANGE 10 SECONDS] GROUP BY g",
}


@dataclass(frozen=True, slots=True)
class Moment:
    """What a batch took and what there was after it."""

    seconds: float
    state_bytes: int
    state_files: int
    files: int
    present: int
    manifest_bytes: int
    memory: int
    objects: int = 0


def bench_soak(batches: int | None = None, hours: float | None = None, on: str = "local") -> Report:
    """State, files, memory and time of a batch at the end against the beginning."""
    if on not in ("local", "spark"):
        raise JobError(f"a soak runs on local or spark, not on {on!r}")
    with tempfile.TemporaryDirectory(prefix="midstream-soak-") as folder:
        run = soak_here if on == "local" else soak_on_spark
        moments = run(Path(folder) / "checkpoint", _enough(batches, hours, BATCHES if on == "local" else ON_SPARK))
    report = Report("soak")
    steady = moments[min(FILLED, len(moments) // 4) :]
    third = len(steady) // 3
    report.add("batches", float(len(moments)), "batches")
    _ratio(report, "time of a batch", steady, third, lambda m: m.seconds, 1.25)
    _ratio(report, "state bytes", steady, third, lambda m: m.state_bytes, 1.05)
    _ratio(report, "state files", steady, third, lambda m: m.state_files, 1.1)
    _ratio(report, "files that a manifest names", steady, third, lambda m: m.files, 1.25)
    _ratio(report, "files in the checkpoint", steady, third, lambda m: m.present, 1.25)
    _ratio(report, "size of a manifest", steady, third, lambda m: m.manifest_bytes, 1.1)
    _ratio(report, "memory of the driver's processes", steady, third, lambda m: m.memory, 1.25)
    _ratio(report, "Python objects", steady, third, lambda m: m.objects, 1.1)
    report.add("a batch, median", statistics.median(m.seconds for m in steady), "s")
    return report


def _enough(batches: int | None, hours: float | None, usual: int) -> Callable[[int], bool]:
    """When to stop, by the number of batches that were looked at."""
    most = batches if batches is not None else None if hours is not None else usual
    end = None if hours is None else time.monotonic() + 3600 * hours
    return lambda done: (most is not None and done >= most) or (end is not None and time.monotonic() >= end)


def _ratio(
    report: Report, name: str, moments: Sequence[Moment], third: int, of: Callable[[Moment], float], bar: float
) -> None:
    first = statistics.median(map(of, moments[:third]))
    last = statistics.median(map(of, moments[-third:]))
    if first > 0:  # memory is told by some systems only
        report.add(f"{name}, last third / first", last / first, "ratio", bar, "at most")


LOOK_EVERY = 10


def soak_here(checkpoint: Path, enough: Callable[[int], bool]) -> list[Moment]:
    """Runs a job with all features on in this process, and looks after every tenth batch."""
    moments: list[Moment] = []
    times: list[float] = []

    def look(event: dict[str, Any]) -> None:
        times.append(event["seconds"]["batch"])
        if len(times) % LOOK_EVERY == 0:
            moments.append(_moment(event, checkpoint, statistics.median(times[-LOOK_EVERY:])))

    SteadyJob(checkpoint, look).run(None, lambda: enough(len(times)))
    return moments


def soak_on_spark(checkpoint: Path, enough: Callable[[int], bool]) -> list[Moment]:
    """Runs a session on Spark, and looks after each batch."""
    from midstream.cluster.checkpoint_session import CheckpointSession
    from midstream.cluster.spark import spark_session

    moments: list[Moment] = []
    ended = threading.Event()

    def look(event: dict[str, Any]) -> None:
        moments.append(_moment(event, checkpoint, event["seconds"]["batch"]))
        if enough(len(moments)):
            ended.set()

    with CheckpointSession(spark_session(), checkpoint=str(checkpoint)) as session:
        for name, rows in (("A", 400), ("B", 200)):
            session.open_stream(
                name,
                "rate-micro-batch",
                options={"rowsPerBatch": str(rows), "advanceMillisPerBatch": "500", "numPartitions": "1"},
                columns=["timestamp AS ts", "value * 7919 % 5000 AS k", "value % 50 AS g", "value AS v"],
            )
        for name, query in QUERIES.items():
            session.query(name, query)
        session.on_progress(look)
        session.start()
        while not ended.is_set() and not session.wait(1):
            pass
        session.stop()
    return moments


def _moment(event: dict[str, Any], checkpoint: Path, seconds: float) -> Moment:
    store = CheckpointStore(str(checkpoint))
    manifest = store.latest()
    assert manifest is not None
    # Files that were merged are kept for readers for some minutes more; they do not count.
    superseded = {file.path for file in manifest.outputs.superseded}
    named = manifest.files() - superseded
    queries = event["queries"].values()
    return Moment(
        seconds,
        sum(query["state_bytes"] for query in queries),
        sum(path.startswith(f"{STATE}/") for path in named),
        len(named),
        len(set(store.files.list("")) - superseded),
        len(manifest.to_bytes()),
        _memory(os.getpid()),
        len(gc.get_objects()),
    )


def _memory(process: int) -> int:
    """The resident bytes of a process and of all it has started; 0 where the system does not tell."""
    status = Path(f"/proc/{process}/statm")
    if not status.exists():
        return 0
    here = int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    children = Path(f"/proc/{process}/task/{process}/children")
    started = children.read_text().split() if children.exists() else []
    return here + sum(_memory(int(child)) for child in started)
