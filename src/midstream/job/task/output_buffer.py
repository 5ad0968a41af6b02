"""What a fragment gives in a batch: in memory while it is little, in files without a name beyond."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.parquet import parquet_bytes
from midstream.job.task.result_table import result_table
from midstream.job.task.spill import ParquetSpool, Spill
from midstream.operators.elements import Elements, concatenate, rows_without_columns
from midstream.operators.vectors import Numbers
from midstream.optimizer.plans import Plan

FROM, TO = "#from", "#to"


class OutputBuffer:
    """Elements given so far; what is more than `most` bytes does not stay in memory."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows = 0
        self.held: list[Elements] = []
        self.bytes = 0
        self.first, self.last = INFINITY, BEGINNING

    def add(self, elements: Elements) -> None:
        """Takes what was given."""
        self.rows += len(elements)
        self.held.append(elements)
        self.bytes += elements.columns.nbytes + 16 * len(elements)
        if self.bytes > self.most:
            self._put(concatenate(self.held))
            self.held, self.bytes = [], 0

    def _put(self, elements: Elements) -> None:
        raise NotImplementedError

    def take(self) -> Iterator[Elements]:
        """What goes on to a next stage and was given since the last time."""
        return iter(())

    def content(self) -> pa.Buffer | None:
        """The Parquet file of a query's results; None if there are none."""
        return None


class ForwardBuffer(OutputBuffer):
    """What goes to a next stage."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.spill: Spill | None = None
        self.schema: pa.Schema | None = None

    def _put(self, elements: Elements) -> None:
        columns = elements.columns
        self.schema = columns.schema
        arrays = [pa.array(elements.valid_from), pa.array(elements.valid_to), *columns.columns]
        names = [FROM, TO, *columns.schema.names]
        batch = pa.RecordBatch.from_arrays(arrays, names=names)
        if self.spill is None:
            self.spill = Spill(batch.schema)
        self.spill.write(batch)

    def take(self) -> Iterator[Elements]:
        """All that was given since the last time, in pieces of bounded size where it is much."""
        spill, held = self.spill, self.held
        self.spill, self.held, self.bytes = None, [], 0
        if spill is not None:
            for batch in spill.batches():
                yield from _pieces(self._back(batch), self.most)
        if held:
            yield concatenate(held)

    def _back(self, batch: pa.RecordBatch) -> Elements:
        assert self.schema is not None
        if len(self.schema):
            columns = pa.RecordBatch.from_arrays(batch.columns[2:], schema=self.schema)
        else:
            columns = rows_without_columns(batch.num_rows)
        valid_from, valid_to = (batch.column(i).to_numpy(zero_copy_only=True) for i in range(2))
        return Elements(columns, valid_from, valid_to)


def _pieces(elements: Elements, most: int) -> Iterator[Elements]:
    size = elements.columns.nbytes + 16 * len(elements)
    rows = max(1, len(elements) * most // max(1, size))
    for start in range(0, len(elements), rows):
        yield elements.slice(start, min(rows, len(elements) - start))


FEW = 4_096
"""Of how many results, at most, the starts are kept until they are released."""


class ResultsBuffer(OutputBuffer):
    """A query's results, which become a file of the results table."""

    def __init__(self, most: int, plan: Plan) -> None:
        super().__init__(most)
        self.plan = plan
        self.spool = ParquetSpool(0)  # what comes there is too much for memory already

    def add(self, elements: Elements) -> None:
        """Takes results."""
        self.first = min(self.first, int(elements.valid_from.min()))
        self.last = max(self.last, int(np.max(elements.valid_from)))
        super().add(elements)

    @property
    def has_few(self) -> bool:
        """Whether there are results, all of them in memory, and no more than one would rather keep than read again."""
        return bool(self.held) and not self.spool.rows and self.rows <= FEW

    @property
    def starts(self) -> Numbers:
        """When the results in memory start."""
        return np.concatenate([piece.valid_from for piece in self.held])

    def _put(self, elements: Elements) -> None:
        self.spool.add(result_table(self.plan, elements))

    def content(self) -> pa.Buffer | None:
        """The Parquet file; None if there are no results."""
        held, self.held = self.held, []
        if self.spool.rows == 0:
            return parquet_bytes(result_table(self.plan, concatenate(held))) if held else None
        if held:
            self._put(concatenate(held))
        return self.spool.content()
