"""`midstream bench evolution`: what changed queries start with, how long that takes, and what retention costs.

Edits are those of `evolution.toml`: of each it is asked, without making it, whether results would be complete at once.
A four-way join is changed while batches come: deriving its windows at once is held against running their rows through
the new text, and where they are filled over several batches, the longest of these against the median before.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.errors import InternalError
from midstream.job.queries.completeness import COMPLETE
from midstream.job.task.memory import bytes_of
from midstream.lab.bench.figures import Report

TYPES = {"BIGINT": pa.int64(), "VARCHAR": pa.string()}
RETAINED = 4_000
"""For how many ticks rows of the corpus' streams are retained."""

STREAMS = "ABCD"
ROWS, BEFORE, MOST = 4_000, 8, 2_000
"""Rows of a stream in a batch, the batches that are timed before the change, and those that it may take, at most."""

FILLED, TIMED = 9, 40
"""Batches of 100k rows until all that is retained is there, and those that are timed with and without it, in turns."""

ROW_BYTES = 60
"""What a row takes in a window, about."""

JOIN = "SELECT A.k, {columns} FROM {windows} WHERE A.k = B.k AND B.k = C.k AND C.k = D.k"
OLD, NEW = "A.v, B.v AS b, C.v AS c, D.v AS d", "A.v + B.v + C.v + D.v AS total"


def bench_evolution(state: int | str = "16 MB", seed: int = 5) -> Report:
    """How many edits are complete at once, what deriving takes, and what retention costs."""
    report = Report("evolution")
    for retained in (False, True):
        found = list(_complete_and_at_once(retained))
        bar, how = (0.8, ", rows retained") if retained else (None, ", nothing retained")
        report.add(f"edits complete at once{how}", sum(at_once for _, at_once in found) / len(found), "part", bar)
        report.add(f"edits complete, no instant left out{how}", sum(whole for whole, _ in found) / len(found), "part")
    report.add("edits", len(found), "edits", 200)
    try:
        _add_deriving(report, bytes_of(state, "state"), seed)
    finally:
        gc.unfreeze()
    report.add("time of a batch of 100k rows, rows retained / not", _retaining(seed), "ratio", 1.05, "at most")
    return report


def corpus() -> Mapping[str, Any]:
    """Streams, queries, and edits of them."""
    return tomllib.loads(files("midstream.lab.bench").joinpath("evolution.toml").read_text())


def edited(cql: str, edit: list[str]) -> str:
    """A text in which parts are replaced."""
    for old, new in zip(edit[::2], edit[1::2], strict=True):
        cql = cql.replace(old, new, 1)
    return cql


def _complete_and_at_once(retained: bool) -> Iterator[tuple[bool, bool]]:
    """Whether each edit would be complete and leave out no instant, in a job of all queries, and at once at that."""
    content = corpus()
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as folder:
        session, rows = CheckpointSession(None, checkpoint=folder, on="local", slots=2), {}
        for name, columns in content["streams"].items():
            schema = pa.schema([(c.split()[0], TYPES[c.split()[1]]) for c in columns.split(", ")])
            session.stream(name, schema)
            rows[name] = [{f.name: i if pa.types.is_integer(f.type) else "x" for f in schema} for i in range(10)]
            if retained:
                session.query(f"retained_{name}", f"SELECT KEEP * FROM {name} [RANGE {RETAINED}]")
        for name, query in content["queries"].items():
            session.query(name, query["cql"])
        with session.start():
            session.push(rows)
            for name, query in content["queries"].items():
                for edit in query["edits"]:
                    told = session.replace(name, edited(query["cql"], edit), dry_run=True)
                    whole = told["complete"] == COMPLETE and not told["gap"]
                    yield whole, whole and not told["paced"]


def _add_deriving(report: Report, state: int, seed: int) -> None:
    """Changes a join with so much state while batches come, and compares with running the windows' rows through it.

    All windows are to be shorter by the same time; then, of another job, by unequal times: rows are read for that.
    """
    window = max(1, state // (len(STREAMS) * ROW_BYTES * ROWS)) * ROWS
    filled, sizes = window // ROWS, dict.fromkeys(STREAMS, window)
    batches = [_rows(seed + i, i * ROWS) for i in range(filled + BEFORE + 1)]
    old, new = _text(OLD, sizes), _text(NEW, dict.fromkeys(STREAMS, window * 3 // 4)) + " AND A.v < 90"
    before, meanwhile = _changed(batches, old, new, seed)
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as folder, _join(folder, old) as session:
        for batch in batches[: filled + BEFORE]:
            session.push(batch)
        entries = {e.place: e.bytes for e in session.job.manifest.entries()}
        session.query("q", new, replace=True)
        at_once = _timed(session, batches[filled + BEFORE])
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as folder, _join(folder, new) as session:
        replayed = sum(_timed(session, batch) for batch in batches[BEFORE : filled + BEFORE])
    usual = statistics.median(before)
    report.add("state", sum(entries.values()) / 1e6, "MB")
    report.add("batches until the new text answers", len(meanwhile), "batches")
    spent = max(0.0, at_once - usual)
    report.add("deriving a join at once / running its rows through it", spent / replayed, "ratio", 0.2, "at most")
    report.add("longest batch meanwhile / median", max(meanwhile) / usual, "ratio", 2.0, "at most")
    unequal = {stream: window * (12 - number) // 16 for number, stream in enumerate(STREAMS)}
    before, meanwhile = _changed(batches, old, _text(NEW, unequal), seed)
    report.add("batches until a text answers whose windows are filled", len(meanwhile), "batches")
    report.add(
        "longest batch while windows are filled / median",
        max(meanwhile) / statistics.median(before),
        "ratio",
        2.0,
        "at most",
    )


def _text(columns: str, windows: Mapping[str, int]) -> str:
    return JOIN.format(columns=columns, windows=", ".join(f"{s} [RANGE {size}]" for s, size in windows.items()))


def _changed(
    batches: Sequence[Mapping[str, pa.Table]], old: str, new: str, seed: int
) -> tuple[list[float], list[float]]:
    """How long batches took before a text was changed, and until the new one answered."""
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as folder, _join(folder, old) as session:
        for batch in batches[: -BEFORE - 1]:
            session.push(batch)
        before, meanwhile = [_timed(session, batch) for batch in batches[-BEFORE - 1 : -1]], list[float]()
        session.replace("q", new)
        while not (meanwhile and session.queries["q"].cql == new):
            if len(meanwhile) == MOST:
                raise InternalError(f"after {MOST} batches the new text does not answer")
            number = len(batches) - 1 + len(meanwhile)
            meanwhile.append(_timed(session, _rows(seed + number, number * ROWS)))
    return before, meanwhile


def _join(folder: str, cql: str) -> CheckpointSession:
    session = CheckpointSession(None, checkpoint=folder, on="local", slots=2)
    for name in STREAMS:
        session.stream(name, pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())]))
    session.query("q", cql)
    session.start()
    gc.collect()
    gc.freeze()  # as `midstream run` does: what modules hold is looked at once, not in one of the batches
    return session


def _rows(seed: int, first: int, rows: int = ROWS) -> dict[str, pa.Table]:
    random = np.random.default_rng(seed)
    return {
        name: pa.table(
            {
                "k": random.integers(0, 50_000_000, rows),
                "v": random.integers(0, 100, rows),
                "ts": np.arange(first, first + rows),
            }
        )
        for name in STREAMS
    }


def _timed(session: CheckpointSession, rows: Mapping[str, pa.Table]) -> float:
    started = time.perf_counter()
    session.push(rows)
    return time.perf_counter() - started


def _retaining(seed: int) -> float:
    """The median time of batches of a job that joins two streams and retains their rows, to that of one that does not.

    Both take the same batches, one after the other, in an order that changes: whatever else the machine does, it does
    to both.
    """
    with ExitStack() as stack:
        jobs = [stack.enter_context(_retaining_job(retained, stack)) for retained in (False, True)]
        seconds: list[list[float]] = [[], []]
        for number in range(FILLED + TIMED):
            rows = _rows(seed + number, number * 50_000, 50_000)
            for which in (0, 1) if number % 2 else (1, 0):
                seconds[which].append(_timed(jobs[which], {name: rows[name] for name in STREAMS[:2]}))
    plain, retaining = (statistics.median(times[FILLED:]) for times in seconds)
    return retaining / plain


def _retaining_job(retained: bool, stack: ExitStack) -> CheckpointSession:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="midstream-bench-"))
    session = CheckpointSession(None, checkpoint=folder, on="local", slots=2)
    for name in STREAMS[:2]:
        session.stream(name, pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())]))
        if retained:
            session.query(f"retained_{name}", f"SELECT KEEP * FROM {name} [RANGE 400000]")
    session.query("q", "SELECT A.k, A.v, B.v AS w FROM A [RANGE 200000], B [RANGE 200000] WHERE A.k = B.k")
    session.query("n", "SELECT k % 100 AS g, COUNT(*) AS n FROM A [TUMBLE 50000] GROUP BY k % 100")
    return session.start()
