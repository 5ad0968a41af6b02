"""How much memory a batch takes in a slot: what Python and NumPy hold, and what Arrow does, without mapped files.

The rows come as they do from Spark, some at a time, and what goes from stage to stage waits in files, as in a shuffle:
so all that is held is held by the slot.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
from tests.job.chain import Chain

from midstream.job.batch import Batch, finished
from midstream.job.slots.moving import Move
from midstream.job.task.memory import Spill
from midstream.job.task.reports import Report

_POOLS: list[pa.MemoryPool] = []
"""A buffer may outlive the work that made it, and must find its pool when it goes."""

Parts = Iterable[Mapping[str, pa.RecordBatch]]


def peak_of(work: Callable[[], object]) -> int:
    """The most bytes that some work held at once, above what there was before."""
    default = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(default)
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] + int(pool.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(default)


def run_batch(chain: Chain, parts: Parts, end: bool = False) -> Batch:
    """One batch of a chain with a single slot, whose rows come part by part."""
    batch = chain.made()
    if end:
        registers = finished(batch.registers, chain.driver.streams)
        batch = replace(batch, incoming=replace(batch.incoming, registers=registers))
    arriving = (rows for part in parts for rows in chain.cluster._dealt(batch, part)[0])
    batch.reports = carried_out(batch.steps(), arriving)
    chain.commit(batch)
    return batch


def run_move(move: Move) -> list[Report]:
    """A move of state between plans in a single slot."""
    sending, filling = move.steps()
    return carried_out([sending, *filling], iter(()))


def carried_out(steps: Iterable[object], flow: Iterator[pa.RecordBatch]) -> list[Report]:
    """All stages of a batch or a move in one slot."""
    for step in steps:
        flow = step.run(0, flow)  # type: ignore[attr-defined]
        if not getattr(step, "last", False):
            flow = _spooled(flow)
    reports = [Report.from_bytes(note) for rows in flow for note in rows.column("#note").to_pylist()]
    for report in reports:
        if report.error:
            raise report.error
    return reports


def _spooled(flow: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A shuffle that keeps nothing in memory."""
    spill = None
    for batch in flow:
        spill = spill or Spill(batch.schema)
        spill.write(batch)
    if spill is not None:
        yield from spill.batches()
