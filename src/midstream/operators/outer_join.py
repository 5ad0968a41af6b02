"""Outer, semi and anti joins, per snapshot.

A tuple is padded, or kept by an anti join, exactly at the instants at which no partner is valid with it: over its
interval less the union of its pairs' intervals. A semi join keeps it over that union.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from midstream.algebra.plan import JoinKind
from midstream.algebra.windows import Hop
from midstream.operators.elements import Elements, Indices, Ticks, concatenate
from midstream.operators.expressions import Predicate
from midstream.operators.hashing import columns_equal
from midstream.operators.join import output_of, prepare
from midstream.operators.slices import SliceOperator
from midstream.operators.state.segment import pairs
from midstream.operators.state.sorted_state import SortedState
from midstream.operators.sweep import join_neighbours, sweep, uncovered


class OuterJoin(SliceOperator):
    """Left, right and full outer joins, anti joins, and semi joins whose condition is more than equal keys."""

    def __init__(
        self,
        schema: pa.Schema,
        left: SortedState,
        right: SortedState,
        grid: Hop,
        kind: JoinKind,
        nulls_equal: bool = False,
        residual: Predicate | None = None,
    ) -> None:
        super().__init__(schema, (left, right), grid)
        self.kind = kind
        self.name = f"{kind} join"
        self.nulls_equal = nulls_equal
        self.residual = residual
        self.both = pa.schema([*left.schema, *right.schema])

    def evaluate(self, start: int, end: int) -> Elements | None:
        left, right = self.alive(0, start, end), self.alive(1, start, end)
        here, there = self._partners(left, right)
        valid_from = np.maximum(left.valid_from[here], right.valid_from[there])
        valid_to = np.minimum(left.valid_to[here], right.valid_to[there])
        parts = []
        if self.kind == "semi":
            parts.append(self._covered(left, here, valid_from, valid_to))
        elif self.kind == "anti":
            parts.append(self._alone(left, here, valid_from, valid_to))
        else:
            columns = self._columns(left.columns.take(pa.array(here)), right.columns.take(pa.array(there)))
            parts.append(Elements(columns, valid_from, valid_to))
            if self.kind in ("left", "full"):
                parts.append(self._alone(left, here, valid_from, valid_to))
            if self.kind in ("right", "full"):
                parts.append(self._alone(right, there, valid_from, valid_to))
        parts = [part for part in parts if len(part)]
        return concatenate(parts) if parts else None

    def _partners(self, left: Elements, right: Elements) -> tuple[Indices, Indices]:
        """Positions of pairs that overlap in time and meet the condition."""
        rows_left, rows_right = np.arange(len(left)), np.arange(len(right))
        left = _numbered(left, rows_left)
        right = _numbered(right, rows_right)
        sorted_left, hashes_left = prepare(left, self.kept[0].key, self.nulls_equal, self.kept[0].grouping)
        sorted_right, hashes_right = prepare(right, self.kept[1].key, self.nulls_equal, self.kept[1].grouping)
        here, there = pairs(hashes_left, hashes_right)
        overlap = np.maximum(sorted_left.valid_from[here], sorted_right.valid_from[there]) < np.minimum(
            sorted_left.valid_to[here], sorted_right.valid_to[there]
        )
        here, there = here[overlap], there[overlap]
        columns_left = sorted_left.columns.take(pa.array(here))
        columns_right = sorted_right.columns.take(pa.array(there))
        keep = np.ones(len(here), bool)
        if self.kept[0].key:
            keep &= columns_equal(
                [columns_left.column(n) for n in self.kept[0].key],
                [columns_right.column(n) for n in self.kept[1].key],
                self.nulls_equal,
            )
        if self.residual is not None:
            both = pa.RecordBatch.from_arrays(
                [*columns_left.columns[:-1], *columns_right.columns[:-1]], schema=self.both
            )
            keep &= self.residual(both)
        numbers_left = columns_left.column(columns_left.num_columns - 1).to_numpy()
        numbers_right = columns_right.column(columns_right.num_columns - 1).to_numpy()
        return numbers_left[keep], numbers_right[keep]

    def _alone(self, side: Elements, owner: Indices, valid_from: Ticks, valid_to: Ticks) -> Elements:
        rows, starts, ends = uncovered(side.valid_from, side.valid_to, owner, valid_from, valid_to)
        return Elements(self._padded(side.columns.take(pa.array(rows))), starts, ends)

    def _covered(self, side: Elements, owner: Indices, valid_from: Ticks, valid_to: Ticks) -> Elements:
        pieces = sweep(owner, valid_from, valid_to)
        some = pieces.steps() > 0
        rows, starts, ends = join_neighbours(pieces.groups[some], pieces.starts[some], pieces.ends[some])
        return Elements(self._padded(side.columns.take(pa.array(rows))), starts, ends)

    def _columns(self, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
        output = output_of(self.schema, left.schema, right.schema)
        arrays = [(left if here else right).column(i) for here, i in output.places]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _padded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = set(batch.schema.names)
        arrays = [batch.column(f.name) if f.name in names else pa.nulls(batch.num_rows, f.type) for f in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _numbered(elements: Elements, numbers: Indices) -> Elements:
    """Elements that know their position, so that it survives sorting and dropping."""
    columns = elements.columns
    arrays = [*columns.columns, pa.array(numbers)]
    schema = columns.schema.append(pa.field("#row", pa.int64()))
    return elements.with_columns(pa.RecordBatch.from_arrays(arrays, schema=schema))
