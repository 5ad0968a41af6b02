"""Multiset difference and intersection per snapshot: both count, per piece of time, the equal tuples on each side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.algebra.physical.relational import SetOperation
from midstream.operators.elements import Elements, concatenate_batches
from midstream.operators.large_groups import LargeGroups
from midstream.operators.ordering import group_rows
from midstream.operators.slices import KeyedSliceOperator
from midstream.operators.state.alive import Alive, Stored
from midstream.operators.state.sorted_state import SortedState
from midstream.operators.sweep import Sweep, sweep

Counts = npt.NDArray[np.int64]

ROW_BYTES = 64
"""What a row that is given out takes, about."""


class SetOperationOperator(KeyedSliceOperator):
    """EXCEPT ALL and INTERSECT ALL: as many copies of a tuple as the counts on both sides leave."""

    def __init__(self, node: SetOperation, left: SortedState, right: SortedState) -> None:
        super().__init__(node.schema, (left, right), node.grid)
        self.kind = self.name = node.kind

    def answers(self, alive: Sequence[Alive], start: int, end: int) -> Iterator[Elements]:
        left, right = (side.elements for side in alive)
        if len(left) == 0:
            return
        right_columns = pa.RecordBatch.from_arrays(right.columns.columns, schema=left.columns.schema)
        both = concatenate_batches([left.columns, right_columns])
        groups, rows = group_rows(both.columns)
        pieces = sweep(
            groups, np.concatenate([left.valid_from, right.valid_from]), np.concatenate([left.valid_to, right.valid_to])
        )
        here = pieces.steps(np.repeat(np.array([1, 0], np.int64), [len(left), len(right)]))
        there = pieces.steps(np.repeat(np.array([0, 1], np.int64), [len(left), len(right)]))
        yield from self._copies(pieces, here, there, both.take(pa.array(rows)))

    def answers_in_parts(self, stored: Sequence[Stored], start: int, end: int) -> Iterator[Elements]:
        assert self.most is not None
        large = LargeGroups(stored, stored[0].state.schema.names, self.most)
        for found in large.slices():
            counts = np.zeros((2, len(found.pieces)), np.int64)
            for side, more in found.counts():
                counts[side] += more
            yield from self._copies(found.pieces, counts[0], counts[1], found.examples)

    def _copies(self, pieces: Sweep, here: Counts, there: Counts, tuples: pa.RecordBatch) -> Iterator[Elements]:
        """As many copies of the tuples, which are numbered by group, as the counts leave; not too many at a time."""
        copies = np.maximum(here - there, 0) if self.kind == "difference" else np.minimum(here, there)
        ends = np.cumsum(copies)
        total = int(ends[-1]) if len(ends) else 0
        at_once = total if self.most is None else max(1, self.most // ROW_BYTES)
        for first in range(0, total, max(1, at_once)):
            at = np.searchsorted(ends, np.arange(first, min(first + at_once, total)), side="right")
            columns = tuples.take(pa.array(pieces.groups[at]))
            batch = pa.RecordBatch.from_arrays(columns.columns, schema=self.schema)
            yield Elements(batch, pieces.starts[at], pieces.ends[at])
