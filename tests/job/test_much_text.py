"""More text than a column of one Arrow batch can hold: here with a small limit in the place of 2 GB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.job.chain import Chain

from midstream.api import ask
from midstream.checkpoint.stored_results import in_order
from midstream.job.task import exchange, step
from midstream.job.task.exchange import portions
from midstream.job.task.sorted_runs import Runs
from midstream.operators.vectors import numbers_of

LIMIT = 100


def batch(texts: list[str], start: int = 0) -> pa.RecordBatch:
    times = pa.array(range(start, start + len(texts)), pa.int64())
    return pa.record_batch({"s": pa.array(texts, pa.string()), "ts": times})


def in_fives(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for rows in batches:
        yield from (rows.slice(start, 5) for start in range(0, rows.num_rows, 5))


@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), max_size=8), st.integers(50, 10_000))
def test_portions_hold_all_rows_and_no_column_that_is_too_large(lengths, most):
    batches = [batch([chr(97 + i) * n for n in some]) for i, some in enumerate(lengths)]
    found = list(portions(iter(batches), most, LIMIT))
    texts = [text for some, _ in found for rows in some for text in rows.column("s").to_pylist()]
    assert texts == [text for rows in batches for text in rows.column("s").to_pylist()]
    assert [more for _, more in found] == [True] * (len(found) - 1) + [False]
    largest = max((rows.column("s").nbytes for rows in batches), default=0)
    assert all(sum(rows.column("s").nbytes for rows in some) <= max(LIMIT, largest) for some, _ in found)


@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=6), min_size=1, max_size=6))
def test_chunks_of_runs_hold_all_rows_and_not_too_much_text(lengths):
    runs = Runs(10_000, most_text=LIMIT)
    for i, some in enumerate(lengths):
        rows = batch([chr(97 + i) * n for n in some], start=i)
        runs.add(0, rows, numbers_of(rows.column("ts")))
    chunks = [chunk[0] for chunk in runs.chunks()]
    assert sorted(t for rows, _ in chunks for t in rows.column("s").to_pylist()) == sorted(
        chr(97 + i) * n for i, some in enumerate(lengths) for n in some
    )
    assert [t for _, ticks in chunks for t in sorted(ticks.tolist())] == sorted(
        i + j for i, some in enumerate(lengths) for j in range(len(some))
    )
    assert all(rows.nbytes <= LIMIT or rows.num_rows == 1 for rows, _ in chunks)


def test_results_in_several_pieces_are_ordered_as_in_one():
    table = pa.table({"s": pa.chunked_array([["d", "b"], ["c", "a"]]), "ts": pa.chunked_array([[2, 1], [1, 1]])})
    for piece in (1, 10, 2**30):
        assert in_order(table, ["ts"], piece).to_pydict() == {"s": ["a", "b", "c", "d"], "ts": [1, 1, 1, 2]}
    assert in_order(table, ["ts"], 1).schema == table.schema


@pytest.mark.parametrize("limit", [40, 2**31 - 1])
def test_a_slot_keeps_all_rows_of_a_batch_that_arrives_in_portions(limit, tmp_path, monkeypatch):
    monkeypatch.setattr(step, "portions", lambda batches, most: exchange.portions(in_fives(batches), most, limit))
    rows = batch([f"{i:04d}" for i in range(50)])
    question = ask("SELECT s FROM A [NOW]", {"A": pa.Table.from_batches([rows])})
    chain = Chain(question.plan, question.catalog, tmp_path)
    chain.batch({"A": rows})
    chain.batch({}, end=True)
    assert chain.results().column("s").to_pylist() == [f"{i:04d}" for i in range(50)]
