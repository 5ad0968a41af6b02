"""Slots as threads of this process. Executors load this too, so it imports only what they are said to need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.job.task.exchange import NOTE, SLOT, Addressing
from midstream.job.task.reports import Report
from midstream.operators.group_hash import group_hash
from midstream.operators.vectors import Indices, gather_rows

Dealt = list[list[pa.RecordBatch]]
"""The rows of each slot."""

Owners = npt.NDArray[np.int32]

MANY = 10_000
"""From how many rows on it is worth it to have several threads move them."""

S = TypeVar("S")
T = TypeVar("T")


class Step(Protocol):
    """What a slot runs."""

    def run(self, slot: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turns what arrives in a slot into what leaves it."""


class SlotThreads:
    """Runs steps, `threads` slots at once; deals rows in a random order by `shuffle`."""

    def __init__(self, threads: int | None = None, shuffle: np.random.Generator | None = None) -> None:
        self.threads = threads
        self.shuffle = shuffle
        self._pool: ThreadPoolExecutor | None = None

    def run(self, steps: Sequence[Step], slots: Dealt, count: int) -> list[Report]:
        """Runs steps one after the other over the rows of each slot; gives every slot's reports."""
        for step in steps:
            sent: Dealt = [[] for _ in range(count)]
            for left in self._in_slots(step, slots):
                for rows in left:
                    if rows.num_rows:
                        self.deal(rows, _owners(rows), sent)
            slots = sent
        return [Report.from_bytes(note) for rows in slots[0] for note in rows.column(NOTE).to_pylist()]

    def deliver(self, rows: pa.RecordBatch, groups: Owners, delivery: Addressing, slots: Dealt) -> None:
        """Adds arriving rows to the lists of all slots that get them by their groups."""
        if self.shuffle is None and len(slots) == 1:
            slots[0].append(rows)
            return
        by = [rows.column(column.name) for column in delivery.by]
        order, owners = delivery.dealt(groups, lambda some: group_hash([column.take(pa.array(some)) for column in by]))
        self.deal(gather_rows(rows, order) if delivery.copies else rows, owners, slots)

    def deal(self, rows: pa.RecordBatch, owners: Owners, slots: Dealt) -> None:
        """Adds rows to the lists of the slots that own them."""
        if self.shuffle is None and len(slots) == 1:
            slots[0].append(rows)
            return
        parts: list[tuple[int, Indices]] = []
        for slot in np.bincount(owners).nonzero()[0]:
            chosen = np.flatnonzero(owners == slot)
            some = [chosen] if self.shuffle is None else np.array_split(self.shuffle.permutation(chosen), 2)
            parts += [(int(slot), part) for part in some if len(part)]
        gathered = self._side_by_side(lambda part: gather_rows(rows, part[1]), parts, len(owners) >= MANY)
        for (to, _), taken in zip(parts, gathered, strict=True):
            slots[to].append(taken)

    def close(self) -> None:
        """Ends the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _in_slots(self, step: Step, slots: Dealt) -> list[list[pa.RecordBatch]]:
        """What leaves each slot."""

        def run(slot: int) -> list[pa.RecordBatch]:
            return list(step.run(slot, iter(slots[slot])))

        return self._side_by_side(run, range(len(slots)))

    def _side_by_side(self, does: Callable[[S], T], these: Sequence[S], worth_it: bool = True) -> list[T]:
        """Does something with each of these, in the threads of slots if that is worth it."""
        if len(these) == 1 or self.threads == 1 or not worth_it:
            return list(map(does, these))
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="midstream-slot")
        return list(self._pool.map(does, these))


def _owners(rows: pa.RecordBatch) -> Owners:
    """The slots that rows go to; what the last step gives goes to the job."""
    return rows.column(SLOT).to_numpy() if SLOT in rows.schema.names else np.zeros(rows.num_rows, np.int32)
