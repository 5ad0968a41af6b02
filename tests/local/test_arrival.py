"""Among rows of one time the last that came is the newest, across pushes, restarts, slots and migrations."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import midstream as ms
from midstream.cluster.checkpoint_session import CheckpointSession

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
QUERIES = {
    "newest": "SELECT v FROM A [ROWS 1]",
    "each": "SELECT k, v FROM A [PARTITION BY k ROWS 2]",
    "last": "SELECT k, last(v) AS v, list(v) AS all_of_them FROM A [RANGE 2] GROUP BY k",
    "latest": "SELECT B.v AS b, A.v AS a FROM B ASOF JOIN A ON A.k = B.k",
    "number": "SELECT v, row_number() OVER (PARTITION BY k ORDER BY ts) AS n FROM A [TUMBLE 3]",
}


def parts_of(seed: int) -> list[dict[str, pa.Table]]:
    """Six pushes, each with several rows of the last time of the push before."""
    chance = random.Random(seed)

    def rows(first: int) -> pa.Table:
        times = sorted(first + chance.randrange(3) for _ in range(8))
        values = {"k": [chance.randrange(2) for _ in times], "v": [chance.randrange(100) for _ in times]}
        return pa.table({"ts": times, **values}, SCHEMA)

    return [{"A": rows(2 * i), "B": rows(2 * i)} for i in range(6)]


def whole(parts: list[dict[str, pa.Table]]) -> dict[str, pa.Table]:
    return {name: pa.concat_tables([part[name] for part in parts]) for name in "AB"}


@pytest.mark.parametrize("slots", [1, 3])
def test_arrival_decides_on_a_checkpoint_across_restarts(tmp_path: Path, slots: int) -> None:
    parts = parts_of(slots)
    for start in (0, 2, 4):
        with CheckpointSession(checkpoint=str(tmp_path), on="local", slots=slots) as session:
            session.stream("A", SCHEMA).stream("B", SCHEMA)
            for name, cql in QUERIES.items():
                session.query(name, cql)
            session.start()
            for part in parts[start : start + 2]:
                session.push(part)
            if start == 4:
                session.finish()
                for name, cql in QUERIES.items():
                    assert ms.snapshot_equal(session.queries[name].table(), ms.reference(cql, whole(parts))), name


def test_arrival_decides_in_memory_and_nobody_sees_it() -> None:
    parts = parts_of(7)
    session = ms.Session().stream("A", SCHEMA).stream("B", SCHEMA)
    queries = {name: session.query(name, cql) for name, cql in QUERIES.items()}
    for part in parts:
        session.push(part)
    session.stop()
    for name, cql in QUERIES.items():
        found = queries[name].table()
        assert "#arrival" not in found.column_names
        assert ms.snapshot_equal(found, ms.reference(cql, whole(parts))), name


def test_the_last_row_that_came_is_the_newest_across_pushes() -> None:
    session = ms.Session().stream("A", SCHEMA)
    newest = session.query("newest", "SELECT v FROM A [ROWS 1]")
    for v in (9, 3, 5):
        session.push("A", [{"ts": 1, "k": 0, "v": v}])
    session.stop()
    assert newest.table().to_pylist() == [{"v": 5, "valid_from": 1, "valid_to": None}]
