"""Windows whose tuples count from or until when others come: row windows and sessions.

When that is depends on what is still to come, so these windows answer by slices: within a slice, every row that could
end something is known. Ties in time are broken by all columns, of which the first tells in which order rows came.

A row is closed once its validity is known. Closed rows may stay where they are stored, because they change no later
answer: the last n rows of a partition are always kept, so a closed row of a row window has n successors among what is
kept whether or not other closed rows are still there; of an ended session any rows end no later, and long before the
next one begins. So a segment is rewritten only when most of its rows are closed, and what is written is never more than
what was closed. Windows that move by several rows count the rows of a partition, so they drop all closed rows or none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from midstream.algebra.time import BEGINNING
from midstream.algebra.windows import ColumnOrder, Hop, Rows
from midstream.operators.elements import Elements, Indices, Mask, Ticks
from midstream.operators.ordering import NeighbourRuns, numbers_by, ranks_of, total_order
from midstream.operators.slices import SliceOperator
from midstream.operators.state.alive import stored_by_range
from midstream.operators.state.places import ChosenRows, stored_rows
from midstream.operators.state.segment import Segment
from midstream.operators.state.sorted_state import SortedState

Answer = tuple[Elements, Mask]
"""What a slice gives, and which rows are closed by it."""


class OrderedRowsOperator(SliceOperator):
    """Looks at the rows of a partition in order of time, then of the columns of `order`."""

    ties: tuple[ColumnOrder, ...] = ()
    """What rows of one time are ordered by first."""

    def __init__(self, schema: pa.Schema, kept: SortedState, order: tuple[str, ...], grid: Hop | None) -> None:
        super().__init__(schema, (kept,), grid)
        self.order = order
        self.again: list[Elements] = []
        """Rows that are kept in the place of closed ones."""

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
            given, closed = self.look(rows, start, end)
            closed_rows.add(places, closed)
            yield given
        self.drop(closed_rows)
        for rows in self.again:
            self.kept[0].insert(rows, self.hashes(0, rows))
        self.again = []

    def look(self, rows: Elements, start: int, end: int) -> tuple[Elements, Indices]:
        """What the slice gives for the rows that are kept, and which of them are closed."""
        order, partitions = self._order(rows)
        given, closed = self.answer(rows, order, partitions, start, end)
        return given, order[closed]

    def answer(self, rows: Elements, order: Indices, partitions: Indices, start: int, end: int) -> Answer:
        """What the slice gives for rows, and which of them are closed; `partitions` and that are in their order."""
        raise NotImplementedError

    def drop(self, closed: ChosenRows) -> None:
        """Drops closed rows where they are most of what is stored."""
        for segment, gone in closed:
            if 2 * len(gone) > len(segment):
                self._leave(segment, gone)

    def _leave(self, segment: Segment, gone: Indices) -> None:
        """Keeps the other rows of a segment."""
        self.kept[0].replace_segment(segment, np.delete(np.arange(len(segment)), gone))

    def _order(self, rows: Elements) -> tuple[Indices, Indices]:
        """Positions in order of partition, then of time and some columns, and the partition at each."""
        by_value = [rows.columns.column(name) for name in self.order]
        ties = [ranks_of(rows.columns.column(tie.name), tie.descending, tie.nulls_first) for tie in self.ties]
        partitions = numbers_by(rows.columns, self.kept[0].key)
        order = total_order(by_value, [partitions, rows.valid_from, *ties])
        return (np.arange(len(rows)), partitions) if order is None else (order, partitions.take(order))


class RowWindowOperator(OrderedRowsOperator):
    """`[ROWS n]`, `[ROWS n SLIDE m]` and the same by partition.

    The row at place i of its partition, counted from 0, is valid in the windows that end at places `m*j - 1` for the j
    with `m*j - n <= i < m*j`.
    """

    name = "row window"

    def __init__(self, schema: pa.Schema, kept: SortedState, spec: Rows, grid: Hop) -> None:
        super().__init__(schema, kept, tuple(schema.names), grid)
        self.count, self.slide, self.ties = spec.count, spec.slide, spec.order

    def answer(self, rows: Elements, order: Indices, partitions: Indices, start: int, end: int) -> Answer:
        rows = rows.take(order)
        n, m = self.count, self.slide
        runs = NeighbourRuns(len(rows), partitions[1:] != partitions[:-1])
        first, size = runs.first.repeat(runs.sizes), runs.sizes.repeat(runs.sizes)
        place = np.arange(len(rows)) - first

        def time_of(places: Indices) -> Ticks:
            """When the rows at these places of the partition come; at the slice's end if they have not come yet."""
            there = places < size
            return np.where(there, rows.valid_from[np.where(there, first + places, 0)], end)

        starts = rows.valid_from if m == 1 else time_of((place // m + 1) * m - 1)
        ends = time_of(((place + n) // m + 1) * m - 1)
        closed = ((place // m * m + m - 1 + n) // m + 1) * m - 1 < size
        return rows.with_validity(starts, ends).clipped(start, end), closed

    def drop(self, closed: ChosenRows) -> None:
        if self.slide == 1:
            super().drop(closed)
            return
        gone = list(closed)
        if 2 * sum(len(rows) for _, rows in gone) > sum(map(len, self.kept[0].segments)):
            for segment, rows in gone:
                self._leave(segment, rows)


class SessionWindowOperator(OrderedRowsOperator):
    """`[SESSION gap]`: rows that follow one another by no more than the gap, at the instant at which they end.

    `bounds` says whether the session's first time and its end are added as columns.
    """

    name = "session window"

    def __init__(self, schema: pa.Schema, kept: SortedState, gap: int, bounds: bool) -> None:
        super().__init__(schema, kept, (), None)
        self.gap = gap
        self.bounds = bounds

    def answer(self, rows: Elements, order: Indices, partitions: Indices, start: int, end: int) -> Answer:
        times = rows.valid_from.take(order)
        sessions = NeighbourRuns(len(rows), partitions[1:] != partitions[:-1], times[1:] - times[:-1] > self.gap)
        ends, sizes = times[sessions.end - 1] + self.gap, sessions.sizes
        given = (ends >= start) & (ends < end)
        chosen, ends_given = given.repeat(sizes), ends[given].repeat(sizes[given])
        ended = rows.take(order[chosen]).with_validity(ends_given, ends_given + 1)
        if self.bounds:
            begins = times[sessions.first[given]].repeat(sizes[given])
            bounds = [pa.array(ticks).cast(self.schema.types[-1]) for ticks in (begins, ends_given)]
            columns = pa.RecordBatch.from_arrays([*ended.columns.columns, *bounds], schema=self.schema)
            ended = ended.with_columns(columns)
        return ended, (ends < end).repeat(sizes)
