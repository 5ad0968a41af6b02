"""Moves of groups that are cancelled while some slots are done with theirs and others are not."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from tests.profiles import always

import midstream as ms

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
PAIR = "SELECT A.v, C.v AS w FROM A [RANGE 50], C [RANGE 50] WHERE A.k = C.k"
STAGES = "SELECT A.v, B.v AS b, C.v AS w FROM A [RANGE 30], B [RANGE 30], C [RANGE 30] WHERE A.k = B.k AND B.v = C.v"

Row = tuple[int, int, int]


def table(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(("ts", "k", "v"), row, strict=True)) for row in rows], schema=SCHEMA)


def opened(folder: Path, query: str, slots: int) -> ms.Session:
    session = ms.Session(checkpoint=str(folder), on="local", slots=slots)
    for name in (name for name in "ABC" if f"{name} [" in query):
        session.stream(name, SCHEMA)
    session.query("q", query)
    return session.start()


@pytest.mark.parametrize("protocol", ["ptlb", "split_time"])
def test_a_slot_without_old_rows_keeps_what_came_during_a_move_that_is_cancelled(protocol, tmp_path):
    given: dict[str, list[Row]] = {"A": [], "C": []}
    with opened(tmp_path, PAIR, 2) as session:

        def push(**rows: Row) -> None:
            for name, row in rows.items():
                given[name].append(row)
            session.push({name: table(*(r for n, r in rows.items() if n == name)) for name in "AC"})

        push(A=(0, 0, 0))
        here = session.job.slots.routing
        for key in range(4):  # of several keys some lie in other slots than the first one's
            start = 100 * key
            push(A=(start + 1, 0, 1))
            session.rebalance([1 - slot for slot in here], protocol=protocol)
            push(A=(start + 10, 0, 2), C=(start + 10, 0, 0))
            push(A=(start + 12, key, 3), C=(start + 12, 0, 0))
            session.cancel_rebalance()
            push(A=(start + 14, 0, 4), C=(start + 14, key, 5))
            push(A=(start + 16, 0, 4), C=(start + 16, key, 6))
        session.finish()
        assert session.job.slots.routing == here
        cancelled = [move for move in session.job.slots.moves if move.record.get("status") == "cancelled"]
        assert len(cancelled) == 4
        expected = ms.reference(PAIR, {name: table(*rows) for name, rows in given.items()})
        assert ms.snapshot_equal(session.queries["q"].table(), expected)


@pytest.mark.parametrize("query", [PAIR, STAGES])
@pytest.mark.parametrize("seed", always(2, range(40)))
def test_moves_are_cancelled_at_random_moments_of_sparse_streams(seed, query, tmp_path):
    rng = random.Random(f"{seed} {query}")
    names = [name for name in "ABC" if f"{name} [" in query]
    given: dict[str, list[Row]] = {name: [] for name in names}
    session = opened(tmp_path, query, 3)
    for part in range(24):
        moving = session.job.slots.moving if part else None
        if part and rng.random() < 0.25 and moving is None:
            protocol = rng.choice(["ptlb", "ptlb", "split_time"])
            session.rebalance([rng.randrange(3) for _ in range(256)], protocol=protocol)
        elif rng.random() < 0.25 and moving is not None:
            session.cancel_rebalance()
        elif rng.random() < 0.1:
            session.stop()
            session = opened(tmp_path, query, 3)
        fresh = {
            name: sorted(
                (6 * part + rng.randrange(6), rng.randrange(5), rng.randrange(4)) for _ in range(rng.randrange(4))
            )
            for name in names
        }
        for name, rows in fresh.items():
            given[name] += rows
        session.push({name: table(*rows) for name, rows in fresh.items()})
    session.finish()
    expected = ms.reference(query, {name: table(*rows) for name, rows in given.items()})
    assert ms.snapshot_equal(session.queries["q"].table(), expected)
    session.stop()
