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
from itertools import count
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
"""Rows of a stream in a batch, the batches that are timed before a change, and those that it may take, at most."""

CHANGES = 6
"""How often a text is changed whose windows get shorter by the same time."""

TURN, TURNS, JOBS = 10, 12, 3
"""Batches of 100k rows that a job takes in a row, how often, and how many jobs retain their rows, and do not."""

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
    report.add("time of batches of 100k rows, rows retained / not", _retaining(seed), "ratio", 1.05, "at most")
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
    old, shorter = _text(OLD, sizes), [_shorter(window, number) for number in range(CHANGES)]
    changes = [_longest(before, meanwhile) for before, meanwhile in _changed(old, shorter, filled, seed)]
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as folder, _join(folder, old) as session:
        before = [_timed(session, _rows(seed, number)) for number in range(filled + BEFORE)][-BEFORE:]
        entries = {e.place: e.bytes for e in session.job.manifest.entries()}
        session.query("q", shorter[0], replace=True)
        at_once = _timed(session, _rows(seed, filled + BEFORE))
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as folder, _join(folder, shorter[0]) as session:
        replayed = sum(_timed(session, _rows(seed, number)) for number in range(BEFORE, filled + BEFORE))
    report.add("state", sum(entries.values()) / 1e6, "MB")
    spent = max(0.0, at_once - statistics.median(before))
    report.add("deriving a join at once / running its rows through it", spent / replayed, "ratio", 0.2, "at most")
    report.add(f"batches until each of {CHANGES} new texts answers, at most", max(n for n, _ in changes), "batches")
    longest = [times for _, times in changes]
    report.add("longest batch meanwhile / median", max(longest), "ratio", 2.0, "at most")
    report.add("longest batch meanwhile / median, of the median change", statistics.median(longest), "ratio")
    unequal = _text(NEW, {stream: window * (12 - number) // 16 for number, stream in enumerate(STREAMS)})
    [(number, times)] = [_longest(*change) for change in _changed(old, [unequal], filled, seed)]
    report.add("batches until a text answers whose windows are filled", number, "batches")
    report.add("longest batch while windows are filled / median", times, "ratio", 2.0, "at most")


def _shorter(window: int, number: int) -> str:
    """The text of a change: shorter windows than of those before, a condition more, and other columns in turn."""
    sizes = dict.fromkeys(STREAMS, window * (24 - number) // 32)
    return _text(OLD if number % 2 else NEW, sizes) + f" AND A.v < {90 - number}"


def _longest(before: Sequence[float], meanwhile: Sequence[float]) -> tuple[int, float]:
    """How many batches there were until a text answered, and the longest to the median of those before."""
    return len(meanwhile), max(meanwhile) / statistics.median(before)


def _text(columns: str, windows: Mapping[str, int]) -> str:
    return JOIN.format(columns=columns, windows=", ".join(f"{s} [RANGE {size}]" for s, size in windows.items()))


def _changed(old: str, texts: Sequence[str], filled: int, seed: int) -> Iterator[tuple[list[float], list[float]]]:
    """Of each change of a text, one after the other: how long batches took before it, and until it was made."""
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as folder, _join(folder, old) as session:
        batches = (_timed(session, _rows(seed, number)) for number in count())
        for _ in range(filled):
            next(batches)
        for text in texts:
            before, meanwhile = [next(batches) for _ in range(BEFORE)], list[float]()
            session.replace("q", text)
            while not (meanwhile and session.queries["q"].cql == text):
                if len(meanwhile) == MOST:
                    raise InternalError(f"after {MOST} batches the new text does not answer")
                meanwhile.append(next(batches))
            yield before, meanwhile


def _join(folder: str, cql: str) -> CheckpointSession:
    session = CheckpointSession(None, checkpoint=folder, on="local", slots=2)
    for name in STREAMS:
        session.stream(name, pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())]))
    session.query("q", cql)
    session.start()
    gc.collect()
    gc.freeze()  # as `midstream run` does: what modules hold is looked at once, not in one of the batches
    return session


def _rows(seed: int, number: int, rows: int = ROWS) -> dict[str, pa.Table]:
    """The rows of a batch."""
    random, first = np.random.default_rng(seed + number), number * rows
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
    """The time of batches of a job that joins two streams and retains their rows, to that of one that does not.

    All take the same batches, in turns, so that whatever else the machine does, it does to all; some at a time, so
    that what a job does beside its batches falls into its own. Of jobs that do the same, one takes up to 1.09 times
    as long as another, so there are several of each.
    """
    with ExitStack() as stack:
        kinds = [retained for number in range(JOBS) for retained in (number % 2 > 0, number % 2 == 0)]
        jobs = [(retained, stack.enter_context(_retaining_job(retained, stack))) for retained in kinds]
        ratios: list[float] = []
        for turn in range(TURNS + 1):
            rows = [_rows(seed, number, 50_000) for number in range(turn * TURN, (turn + 1) * TURN)]
            spent = {True: 0.0, False: 0.0}
            for retained, job in jobs if turn % 2 else jobs[::-1]:
                spent[retained] += sum(_timed(job, {name: some[name] for name in STREAMS[:2]}) for some in rows)
            ratios.append(spent[True] / spent[False])
    return statistics.median(ratios[1:])


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
