"""Row windows: a tuple is valid until its n-th successor, among the tuples of its partition.

When that is depends on what is still to come, so the window answers by slices: within a slice, every row that could
end something is known. Ties in time are broken by all columns, so that arrival order never matters.

A row is closed once it has n successors. The last n rows of a partition are always kept, so a closed row has n
successors among what is kept whether or not other closed rows are still there, and ends before the slices to come: it
may stay where it is stored, and changes no answer. So a segment is rewritten only when most of its rows are closed, and
what is written is never more than what was closed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from midstream.algebra.time import BEGINNING
from midstream.algebra.windows import Hop
from midstream.operators.elements import Elements, Indices, Mask, Ticks
from midstream.operators.ordering import group_rows, total_order
from midstream.operators.slices import SliceOperator
from midstream.operators.state.alive import stored_by_range
from midstream.operators.state.places import ChosenRows, stored_rows
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
        """Nothing expires by time: rows that were closed are dropped with the answer."""

    def evaluations(self, start: int, end: int) -> Iterator[Elements]:
        closed_rows = ChosenRows()
        # Rows are stored with the one tick of a raw tuple, which says nothing of how long they count.
        for stored in stored_by_range(self.kept, BEGINNING, end, self.most):
            if self.is_large(stored):
                self.refuse_more_than_memory("the rows of one partition", stored[0].size())
            rows, places = stored_rows(stored[0], lambda elements: elements.valid_from < end)
            if not len(rows):
                continue
            order, partitions = self._order(rows)
            ordered = rows.take(order)
            ends, closed = self._ends(ordered, partitions, end)
            closed_rows.add(places, order[closed])
            yield ordered.with_validity(ordered.valid_from, ends).clipped(start, end)
        for segment, gone in closed_rows:
            if 2 * len(gone) > len(segment):
                self.kept[0].replace_segment(segment, np.setdiff1d(np.arange(len(segment)), gone))

    def _order(self, rows: Elements) -> tuple[Indices, Indices]:
        """Positions in order of partition, then of time and all columns, and the partition at each."""
        by_value = [rows.columns.column(name) for name in self.order]
        order = total_order(by_value, [rows.valid_from])
        if order is None:
            order = np.arange(len(rows))
        key = self.kept[0].key
        if not key:
            return order, np.zeros(len(rows), np.intp)
        partitions = group_rows([rows.columns.column(name) for name in key])[0].take(order)
        by_partition = np.argsort(partitions, kind="stable")
        return order.take(by_partition), partitions.take(by_partition)

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
