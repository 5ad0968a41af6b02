"""Row windows: a tuple is valid until its n-th successor, among the tuples of its partition.

When that is depends on what is still to come, so the window answers by slices: within a slice, every row that could
end something is known. Ties in time are broken by all columns, so that arrival order never matters.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from midstream.algebra.time import BEGINNING
from midstream.algebra.windows import Hop
from midstream.operators.elements import Elements, Indices, Mask, Ticks, concatenate
from midstream.operators.ordering import group_rows, total_order
from midstream.operators.slices import SliceOperator
from midstream.operators.state.sorted_state import SortedState


class RowWindow(SliceOperator):
    """`[ROWS n]` and `[PARTITION BY k ROWS n]`."""

    name = "row window"

    def __init__(self, schema: pa.Schema, kept: SortedState, count: int, order: tuple[str, ...], grid: Hop) -> None:
        super().__init__(schema, (kept,), grid)
        self.count = count
        self.order = order

    @property
    def needed_after(self) -> int:
        return BEGINNING

    def forget(self, end: int) -> None:
        """Nothing expires by time: `evaluate` has already dropped the rows that were closed."""

    def evaluate(self, start: int, end: int) -> Elements | None:
        state = self.kept[0]
        # Rows are stored with the one tick of a raw tuple, which says nothing of how long they count.
        reached = [segment for segment in state.segments if segment.earliest_from < end]
        if not reached:
            return None
        rows = concatenate([segment.elements for segment in reached])
        early = rows.where(rows.valid_from < end)
        later = rows.where(rows.valid_from >= end)
        ordered, partitions = self._ordered(early)
        ends, closed = self._ends(ordered, partitions, end)
        kept = ordered.where(~closed)
        state.segments = [segment for segment in state.segments if segment.earliest_from >= end]
        for part in (kept, later):
            if len(part):
                state.insert(part, self.hashes(0, part))
        return ordered.with_validity(ordered.valid_from, ends).clipped(start, end)

    def _ordered(self, rows: Elements) -> tuple[Elements, Indices]:
        by_value = [rows.columns.column(name) for name in self.order]
        order = total_order(by_value, [rows.valid_from])
        if order is not None:
            rows = rows.take(order)
        key = self.kept[0].key
        if not key:
            return rows, np.zeros(len(rows), np.intp)
        partitions, _ = group_rows([rows.columns.column(name) for name in key])
        by_partition = np.argsort(partitions, kind="stable")
        return rows.take(by_partition), partitions[by_partition]

    def _ends(self, rows: Elements, partitions: Indices, end: int) -> tuple[Ticks, Mask]:
        """When each row ends (at the slice's end while it is open), and which rows are closed for good."""
        ends = np.full(len(rows), end, np.int64)
        n = self.count
        if len(rows) > n:
            same = partitions[n:] == partitions[:-n]
            ends[:-n] = np.where(same, rows.valid_from[n:], ends[:-n])
            closed = np.append(same, np.zeros(n, bool))
        else:
            closed = np.zeros(len(rows), bool)
        return ends, closed
