"""Row windows in slots: what is written is what is new, however much is kept."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.job.chain import Chain

import midstream as ms
from midstream.api import ask
from midstream.checkpoint.manifest import Manifest

KEYS = 40
ROWS = 6_000
BATCH = 100


def stream(rows: int = ROWS) -> pa.Table:
    random = np.random.default_rng(3)
    columns = {"k": random.integers(0, KEYS, rows), "v": random.integers(0, 1000, rows)}
    return pa.table({**columns, "ts": np.arange(rows)})


def stored(manifest: Manifest) -> dict[str, int]:
    """The bytes of each segment that a manifest names."""
    return {
        entry.origin: entry.length
        for fragments in manifest.segments.values()
        for slots in fragments.values()
        for entries in slots.values()
        for entry in entries
    }


def run(query: str, inputs: pa.Table, folder, batch_rows: int = BATCH) -> tuple[list[int], Chain]:
    """A chain that has taken all rows, and the bytes of segments that each batch wrote."""
    question = ask(query, {"A": inputs})
    chain = Chain(question.plan, question.catalog, folder, slots=1, emit_every=BATCH)
    written: list[int] = []
    before: dict[str, int] = {}
    for part in chain.cut(question.tables, batch_rows):
        chain.batch(part)
        now = stored(chain.manifest)
        written.append(sum(length for place, length in now.items() if place not in before))
        before = now
    return written, chain


@pytest.mark.parametrize("partition", ["PARTITION BY k ", ""])
def test_what_is_written_does_not_grow_with_what_is_kept(partition, tmp_path):
    """Forty times the window, and the same batches: about the same bytes."""
    share = 1 if partition else KEYS
    few, many = (
        run(f"SELECT k, v FROM A [{partition}ROWS {count * share}]", stream(), tmp_path / str(count))
        for count in (2, 80)
    )
    half = len(few[0]) // 2
    small, large = sum(few[0][half:]), sum(many[0][half:])
    kept = [sum(stored(chain.manifest).values()) for _, chain in (few, many)]
    assert kept[1] > 8 * kept[0]
    assert large < 3 * small
    assert large < 5 * kept[1], "what is kept was written again and again, by thirty batches"


def test_what_is_kept_is_at_most_twice_what_counts(tmp_path):
    _, chain = run("SELECT k, v FROM A [PARTITION BY k ROWS 5]", stream(), tmp_path)
    rows = sum(
        entry.rows
        for fragments in chain.manifest.segments.values()
        for slots in fragments.values()
        for entries in slots.values()
        for entry in entries
    )
    assert 5 * KEYS <= rows <= 2 * (5 * KEYS + 2 * BATCH)


@pytest.mark.parametrize("window", ["PARTITION BY k ROWS 3", "ROWS 7", "PARTITION BY k ROWS 1"])
@pytest.mark.parametrize("batch_rows", [7, 40])
def test_rows_that_stay_stored_after_they_were_closed_change_nothing(window, batch_rows, tmp_path):
    inputs = stream(400)
    inputs = inputs.set_column(2, "ts", pa.array(np.arange(400) // 3))
    query = f"SELECT k, v FROM A [{window}]"
    _, chain = run(query, inputs, tmp_path, batch_rows)
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.reference(query, {"A": inputs}, time="ts"))
