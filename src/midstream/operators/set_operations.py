"""Multiset difference and intersection per snapshot: both count, per piece of time, the equal tuples on each side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from midstream.algebra.windows import Hop
from midstream.operators.elements import Elements, concatenate_batches
from midstream.operators.ordering import group_rows
from midstream.operators.slices import KeyedSliceOperator
from midstream.operators.state.alive import Alive
from midstream.operators.state.sorted_state import SortedState
from midstream.operators.sweep import sweep


class SetOperation(KeyedSliceOperator):
    """EXCEPT ALL and INTERSECT ALL: as many copies of a tuple as the counts on both sides leave."""

    def __init__(
        self,
        schema: pa.Schema,
        left: SortedState,
        right: SortedState,
        grid: Hop,
        kind: Literal["difference", "intersect"],
    ) -> None:
        super().__init__(schema, (left, right), grid)
        self.kind = kind
        self.name = kind

    def answers(self, alive: Sequence[Alive], start: int, end: int) -> Iterator[Elements]:
        left, right = (side.elements for side in alive)
        if len(left) == 0:
            return
        right_columns = pa.RecordBatch.from_arrays(right.columns.columns, schema=left.columns.schema)
        both = concatenate_batches([left.columns, right_columns])
        groups, rows = group_rows(both.columns)
        pieces = sweep(
            groups,
            np.concatenate([left.valid_from, right.valid_from]),
            np.concatenate([left.valid_to, right.valid_to]),
        )
        here = pieces.steps(np.repeat(np.array([1, 0], np.int64), [len(left), len(right)]))
        there = pieces.steps(np.repeat(np.array([0, 1], np.int64), [len(left), len(right)]))
        copies = np.maximum(here - there, 0) if self.kind == "difference" else np.minimum(here, there)
        at = np.repeat(np.arange(len(pieces)), copies)
        columns = both.take(pa.array(rows[pieces.groups[at]]))
        yield Elements(
            pa.RecordBatch.from_arrays(columns.columns, schema=self.schema), pieces.starts[at], pieces.ends[at]
        )
