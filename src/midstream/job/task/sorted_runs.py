"""More input than fits into memory: sorted runs in files, read together in order of time.

Each run is as much as may be held at once, sorted by time. All rows up to an instant, from every run of every stream,
make a chunk; the instants are chosen so that a chunk is small. So state and results grow in order of time, as they
would have in many small batches, though no register moves within a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.checkpoint.records import grouped
from midstream.job.task.exchange import MOST_TEXT
from midstream.job.task.memory import Spill
from midstream.operators.elements import Ticks, concatenate_batches
from midstream.operators.vectors import numbers_of

TICKS = "#ticks"

Accepted = tuple[pa.RecordBatch, Ticks]
"""Rows, and the instants by which they are in order."""

Arrange = Callable[[pa.RecordBatch, Ticks], Accepted]


@dataclass(slots=True)
class SortedRun:
    """Some rows of a port, in order of their ticks; those before `at` have been taken."""

    port: int
    rows: pa.RecordBatch
    ticks: Ticks
    at: int = 0

    def until(self, instant: int) -> int:
        """The position after all rows up to an instant."""
        return int(np.searchsorted(self.ticks, instant, side="right"))

    def take(self, end: int) -> Accepted:
        """The rows up to a position, which are then taken."""
        start, self.at = self.at, end
        return self.rows.slice(start, end - start), self.ticks[start:end]

    def bytes_until(self, end: int) -> int:
        """How many bytes the rows up to a position have."""
        return int(self.rows.slice(self.at, end - self.at).nbytes)

    @property
    def left(self) -> int:
        """How many rows there still are."""
        return len(self.ticks) - self.at


class Runs:
    """The runs of all ports; `chunk` is how many bytes are wanted at a time, `arrange` puts a chunk's rows in order.

    No chunk has more bytes than `most_text`, unless a single row has.
    """

    def __init__(self, chunk: int, arrange: Arrange | None = None, most_text: int = MOST_TEXT) -> None:
        self.chunk = chunk
        self.most_text = most_text
        self.arrange = arrange
        self.runs: list[SortedRun] = []
        self.bytes = 0
        self.rows = 0

    def add(self, port: int, rows: pa.RecordBatch, ticks: Ticks) -> None:
        """Puts rows into a file, in order of their ticks."""
        if len(ticks) == 0:
            return
        if not bool((ticks[1:] >= ticks[:-1]).all()):
            order = np.argsort(ticks, kind="stable")
            rows, ticks = rows.take(pa.array(order)), ticks[order]
        self.bytes += rows.nbytes + ticks.nbytes
        self.rows += len(ticks)
        arrays = [pa.array(ticks), *rows.columns]
        batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema([(TICKS, pa.int64()), *rows.schema]))
        spill = Spill(batch.schema)
        spill.write(batch)
        (stored,) = spill.batches()
        back = pa.RecordBatch.from_arrays(stored.columns[1:], schema=rows.schema) if rows.num_columns else rows
        self.runs.append(SortedRun(port, back, numbers_of(stored.column(0))))

    def chunks(self) -> Iterator[Mapping[int, Accepted]]:
        """The rows of all runs, a bounded number at a time, in order of time."""
        most = max(1, self.chunk * self.rows // max(1, self.bytes))
        while left := [run for run in self.runs if run.left]:
            self.runs = left
            yield self._together(self._next(most))

    def _next(self, most: int) -> list[tuple[int, Accepted]]:
        ends = self._ends(most)
        while most > 1 and sum(run.bytes_until(end) for run, end in ends) > self.most_text:
            most //= 2
            ends = self._ends(most)
        return [(run.port, run.take(end)) for run, end in ends]

    def _ends(self, most: int) -> list[tuple[SortedRun, int]]:
        """The runs that the next chunk is taken from, each with the position after what is taken."""
        low = min(int(run.ticks[run.at]) for run in self.runs)
        if self._count(low) > most:
            return self._some_of(low, most)
        high = max(int(run.ticks[-1]) for run in self.runs)
        while low < high:
            middle = low + (high - low + 1) // 2
            low, high = (middle, high) if self._count(middle) <= most else (low, middle - 1)
        return [(run, end) for run in self.runs if (end := run.until(low)) > run.at]

    def _count(self, instant: int) -> int:
        return sum(run.until(instant) - run.at for run in self.runs)

    def _some_of(self, instant: int, most: int) -> list[tuple[SortedRun, int]]:
        """Rows of one instant that has too many."""
        taken = []
        for run in self.runs:
            end = min(run.until(instant), run.at + most)
            if end > run.at and most > 0:
                most -= end - run.at
                taken.append((run, end))
        return taken

    def _together(self, parts: list[tuple[int, Accepted]]) -> Mapping[int, Accepted]:
        return {port: self._merged(some) for port, some in sorted(grouped(parts).items())}

    def _merged(self, parts: list[Accepted]) -> Accepted:
        if len(parts) == 1:
            return parts[0]
        rows = concatenate_batches([rows for rows, _ in parts])
        ticks = np.concatenate([ticks for _, ticks in parts])
        return (rows, ticks) if self.arrange is None else self.arrange(rows, ticks)
