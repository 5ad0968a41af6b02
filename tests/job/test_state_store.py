"""The files that a task writes before it is closed: those that were merged since are removed, and no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from midstream.checkpoint.addresses import files_at
from midstream.job.task.kept_tasks import Pool
from midstream.job.task.memory import Memory
from midstream.job.task.state_store import StateStore
from midstream.operators.elements import Elements
from midstream.operators.state.sorted_state import SortedState

SCHEMA = pa.schema([("k", pa.int64())])
NAME = ("what two queries compute in different ways", ("k",))


def state_of(key: int) -> SortedState:
    state, ticks = SortedState(*NAME, SCHEMA, longest=None), np.array([1])
    rows = pa.RecordBatch.from_arrays([pa.array([key], pa.int64())], schema=SCHEMA)
    state.insert(Elements(rows, ticks, ticks + 5), np.array([key], np.uint64))
    return state


def test_states_of_one_name_that_are_not_the_same_keep_their_files(tmp_path: Path):
    files = files_at(str(tmp_path))
    store = StateStore(0, files, Pool(), 1, Memory(1))
    one, other, merged = ((NAME, state_of(key)) for key in range(3))
    for state in (one, other, merged):
        store.spill([state])
    assert len(store.flushed) == 3
    store.remove_merged([one, other])
    assert sorted(files.list("state")) == sorted(store.flushed[:2])
    assert [segment.elements.columns.to_pylist() for segment in (*one[1].segments, *other[1].segments)] == [
        [{"k": 0}],
        [{"k": 1}],
    ]
