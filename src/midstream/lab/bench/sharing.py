"""`midstream bench sharing`: fifty queries over the same three windows against one of them.

The fifty each select a fiftieth of a three-way join. Their state is held against that of one of them, which keeps a
fiftieth of one window; their time against that of one query that gives the whole join: the same results in all.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from midstream.cluster.local.embedded_session import EmbeddedSession
from midstream.lab.bench.figures import Report

QUERIES = 50
ROWS = 3_000
BATCHES = 24
KEYS = 6_000
JOIN = "SELECT A.v, B.v AS w, C.v AS u FROM A [RANGE 10], B [RANGE 10], C [RANGE 10] WHERE A.k = B.k AND B.k = C.k"
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])


def bench_sharing(repeats: int = 3, seed: int = 11) -> Report:
    """State, time and output of fifty queries against those of one."""
    pushes = _pushes(seed)
    best: dict[str, float] = {}
    sessions: dict[str, EmbeddedSession] = {}
    for turn in range(repeats):
        for name in ("whole", "one", "many", "apart") if turn == 0 else ("whole", "many"):
            session = sessions[name] = _opened(name)
            start = time.process_time()
            for push in pushes:
                session.push(push)
            took = time.process_time() - start
            best[name] = min(best.get(name, took), took)
    whole, one, many = (sessions[name] for name in ("whole", "one", "many"))
    given = {name: sum(q.results().num_rows for q in s.queries.values()) for name, s in sessions.items()}
    report = Report("sharing")
    report.add("results of the whole join", given["whole"], "rows")
    report.add(f"results of {QUERIES} queries / of the whole join", given["many"] / given["whole"], "ratio", 1.0)
    for record, session in (("the whole join", whole), ("one query", one), (f"{QUERIES} queries", many)):
        report.add(f"state of {record}", session.state_rows, "rows")
    report.add(f"state of {QUERIES} / of one query", many.state_bytes / one.state_bytes, "ratio", 3.0, "at most")
    ratio = best["many"] / best["whole"]
    report.add(f"time of {QUERIES} queries / of one at equal output", ratio, "ratio", 5.0, "at most")
    report.add(f"time of {QUERIES} queries that share nothing / of one", best["apart"] / best["whole"], "ratio")
    return report


def _opened(name: str) -> EmbeddedSession:
    session = EmbeddedSession()
    for stream in "ABC":
        session.stream(stream, SCHEMA)
    if name == "whole":
        session.query("all", JOIN)
    else:
        for i in range(1 if name == "one" else QUERIES):
            session.query(f"q{i}", f"{JOIN} AND A.v = {i}", share=name == "many")
    return session


def _pushes(seed: int) -> list[dict[str, pa.Table]]:
    random = np.random.default_rng(seed)

    def rows(tick: int) -> pa.Table:
        columns = [np.sort(random.integers(2 * tick, 2 * tick + 2, ROWS)), random.integers(0, KEYS, ROWS)]
        return pa.table([*columns, random.integers(0, QUERIES, ROWS)], schema=SCHEMA)

    return [{name: rows(tick) for name in "ABC"} for tick in range(BATCHES)]
