"""What a slot holds does not grow with the batch: four times the rows take about the memory of one time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.spark.chain import Chain
from tests.spark.peaks import peak_of, run_batch, run_move

from midstream.api import ask
from midstream.runtime.spark.batches.batch import Batch
from midstream.runtime.spark.batches.moving import Move
from midstream.runtime.spark.slots.memory import Memory
from midstream.runtime.spark.slots.reports import Report

MEMORY = 2**21
PART = 1_500
DISTINCT = {
    "few tuples, again and again": ("SELECT DISTINCT A.k FROM A [NOW]", 20),
    "few tuples, always there": ("SELECT DISTINCT A.k FROM A [RANGE 500]", 20),
    "many tuples": ("SELECT DISTINCT A.k FROM A [RANGE 20]", 2_000),
    "above a join": ("SELECT DISTINCT A.v FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k", 100),
}

WINDOWS = "A [RANGE 50000], B [RANGE 50000], C [RANGE 50000]"
MOVES = {
    "joins": f"SELECT A.v AS a, C.v AS c FROM {WINDOWS} WHERE A.k = B.k AND B.v = C.v",
    "joins below a distinct": f"SELECT DISTINCT A.v AS a, C.v AS c FROM {WINDOWS} WHERE A.k = B.k AND B.v = C.v",
}


@pytest.fixture(autouse=True)
def without_syncing(monkeypatch):
    """Little memory means many small files, and no machine crashes here."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def rows_of(stream: str, first: int, rows: int, keys: int) -> pa.RecordBatch:
    random = np.random.default_rng([ord(stream), first])
    columns = {"k": random.integers(0, keys, rows), "v": random.integers(0, keys, rows)}
    return pa.RecordBatch.from_pydict({**columns, "ts": (first + np.arange(rows)) // 10})


def arriving(streams: str, rows: int, keys: int) -> Iterator[dict[str, pa.RecordBatch]]:
    for first in range(0, rows, PART):
        yield from ({stream: rows_of(stream, first, PART, keys)} for stream in streams)


def opened(query: str, keys: int, folder: Path, plan: str | None = None) -> Chain:
    streams = {name: pa.Table.from_batches([rows_of(name, 0, 10, keys)]) for name in "ABC"}
    question = ask(query, {name: table for name, table in streams.items() if f"{name} [" in query})
    return Chain(question.plan, question.catalog, folder, slots=1, plan=plan, memory=Memory(MEMORY))


@pytest.mark.parametrize("name", DISTINCT)
def test_a_large_batch_of_a_distinct_takes_no_more_memory_than_a_small_one(name, tmp_path):
    query, keys = DISTINCT[name]

    def peak(rows: int) -> int:
        chain = opened(query, keys, tmp_path / str(rows))
        streams = "".join(sorted(d.name for d in chain.driver.streams.values()))
        return peak_of(lambda: run_batch(chain, arriving(streams, rows, keys)))

    small, large = peak(15_000), peak(60_000)
    assert large < 2 * small


@pytest.mark.parametrize("name", MOVES)
def test_a_move_of_large_states_takes_no_more_memory_than_one_of_small_ones(name, tmp_path):
    def peak(rows: int) -> int:
        chain = opened(MOVES[name], rows, tmp_path / str(rows), "((A B) C)")
        run_batch(chain, arriving("ABC", rows, rows))
        peaks: list[int] = []
        moved: list[Report] = []

        def watched(move: Move) -> list[Report]:
            peaks.append(peak_of(lambda: moved.extend(run_move(move))))
            return moved

        chain.driver.run_move = watched
        chain.migrate("(A (B C))", "moving_state")
        run_batch(chain, ())
        assert sum(part.processed_twice for report in moved for part in report.fragments.values()) >= rows
        return peaks[0]

    small, large = peak(9_000), peak(36_000)
    assert large < 2 * small


def test_a_move_inside_tasks_takes_no_more_memory_than_one_of_small_states(tmp_path):
    query = f"SELECT A.v AS a, C.v AS c FROM {WINDOWS} WHERE A.k = B.k AND B.k = C.k"

    def peak(rows: int) -> int:
        chain = opened(query, rows, tmp_path / str(rows), "((A B) C)")
        run_batch(chain, arriving("ABC", rows, rows))
        chain.migrate("(A (B C))", "moving_state")
        moved: list[Batch] = []
        found = peak_of(lambda: moved.append(run_batch(chain, ())))
        parts = [part for report in moved[0].reports for part in report.fragments.values()]
        assert sum(part.processed_twice for part in parts) >= rows
        return found

    small, large = peak(9_000), peak(36_000)
    assert large < 2 * small
