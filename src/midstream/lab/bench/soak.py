"""`midstream bench soak`: hundreds of small batches of streams that do not change; nothing may grow but the results.

A join and a grouped count over Spark's own steady source. After the windows have filled, each quantity is compared
between the first and the last third of the batches.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midstream.checkpoint.names import STATE
from midstream.checkpoint.store import CheckpointStore
from midstream.lab.bench.figures import Report

BATCHES = 510
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
    manifest_bytes: int
    memory: int


def bench_soak(batches: int = BATCHES) -> Report:
    """State, files, memory and time of a batch at the end against the beginning."""
    with tempfile.TemporaryDirectory(prefix="midstream-soak-") as folder:
        moments = soak(Path(folder) / "checkpoint", batches)
    report = Report("soak")
    steady = moments[FILLED:]
    third = len(steady) // 3
    report.add("batches", float(len(moments)), "batches", 500.0)
    _ratio(report, "time of a batch", steady, third, lambda m: m.seconds, 1.25)
    _ratio(report, "state bytes", steady, third, lambda m: m.state_bytes, 1.05)
    _ratio(report, "state files", steady, third, lambda m: m.state_files, 1.1)
    _ratio(report, "files that a manifest names", steady, third, lambda m: m.files, 1.25)
    _ratio(report, "size of a manifest", steady, third, lambda m: m.manifest_bytes, 1.1)
    _ratio(report, "memory of the driver's processes", steady, third, lambda m: m.memory, 1.25)
    report.add("a batch, median", statistics.median(m.seconds for m in steady), "s")
    return report


def _ratio(
    report: Report, name: str, moments: Sequence[Moment], third: int, of: Callable[[Moment], float], bar: float
) -> None:
    first = statistics.median(map(of, moments[:third]))
    last = statistics.median(map(of, moments[-third:]))
    if first > 0:  # memory is told by some systems only
        report.add(f"{name}, last third / first", last / first, "ratio", bar, "at most")


def soak(checkpoint: Path, batches: int) -> list[Moment]:
    """Runs the session for some batches and looks after each of them."""
    from midstream.cluster.spark import Session, spark_session

    moments: list[Moment] = []
    enough = threading.Event()

    def look(event: dict[str, Any]) -> None:
        moments.append(_moment(event, checkpoint))
        if len(moments) >= batches:
            enough.set()

    with Session(spark_session(), checkpoint=str(checkpoint)) as session:
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
        while not enough.is_set() and not session.wait(1):
            pass
        session.stop()
    return moments


def _moment(event: dict[str, Any], checkpoint: Path) -> Moment:
    manifest = CheckpointStore(str(checkpoint)).latest()
    assert manifest is not None
    # Files that were merged are kept for readers for some minutes more; they do not count.
    named = manifest.files() - {file.path for file in manifest.outputs.superseded}
    queries = event["queries"].values()
    return Moment(
        event["seconds"]["batch"],
        sum(query["state_bytes"] for query in queries),
        sum(path.startswith(f"{STATE}/") for path in named),
        len(named),
        len(manifest.to_bytes()),
        _memory(os.getpid()),
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
