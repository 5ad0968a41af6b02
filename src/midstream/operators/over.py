"""OVER, piece of time by piece of time.

Between two changes of a partition the functions over its rows do not change. So a row has a place among the others of
its partition on every piece that it covers, and all pieces are looked at together: rows in order, once per piece.
Neighbouring pieces on which a row has the same values are given as one.

A row counts for those rows whose frame it lies in. Frames begin and end in the order of their rows, so these are
neighbours, as pieces of time are that an element covers: what aggregates over time can do, they can do over frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.algebra.over import NEIGHBOURS, PICKS, RANKINGS, Frame, NamedOver
from midstream.algebra.windows import ColumnOrder, Hop
from midstream.operators.aggregate import AggregateSpec, InMemory, value_of
from midstream.operators.borrowed_aggregates import portions
from midstream.operators.elements import Elements, Indices
from midstream.operators.frames import FramePlaces, counted_for, frame_of, neighbour, picked, ranking
from midstream.operators.ordering import NeighbourRuns, changes, numbers_by, ranks_of, stable_order, total_order
from midstream.operators.parts import SweptRows
from midstream.operators.slices import KeyedSliceOperator
from midstream.operators.state.alive import Alive
from midstream.operators.state.sorted_state import SortedState
from midstream.operators.sweep import Sweep, sweep
from midstream.operators.vectors import Numbers, gather


@dataclass(frozen=True, slots=True)
class OverSpec:
    """A function over a partition, and the columns of the operator's input that it looks at."""

    over: NamedOver
    columns: AggregateSpec


@dataclass(frozen=True, slots=True)
class OrderedFunctions:
    """Functions of rows in an order; `ties` are the columns that order what is equal, and all that a row is."""

    order: tuple[ColumnOrder, ...]
    ties: tuple[str, ...]
    specs: tuple[OverSpec, ...]

    def in_order(self, columns: pa.RecordBatch, partitions: Indices) -> tuple[Indices, list[Numbers]]:
        """The rows by partition and then in their order, and numbers that are equal where the order holds rows equal.

        Rows of one partition are seldom equal, those of all partitions often: fewer need the columns that order them.
        """
        ranks = [ranks_of(columns.column(key.name), key.descending, key.nulls_first) for key in self.order]
        order = total_order([columns.column(name) for name in self.ties], [partitions, *ranks])
        return np.arange(columns.num_rows) if order is None else order, ranks

    def values(self, columns: pa.RecordBatch, places: FramePlaces) -> list[pa.Array]:
        """The value of every function at every place."""
        known: dict[object, Any] = {}
        return [self._value(spec, columns, places, known) for spec in self.specs]

    def _value(self, spec: OverSpec, rows: pa.RecordBatch, places: FramePlaces, known: dict[object, Any]) -> pa.Array:
        over, columns = spec.over, [rows.column(name) for name in spec.columns.columns]
        function = over.call.function
        if function in RANKINGS:
            return ranking(function, places, over.number or 1).cast(over.type)
        if function in NEIGHBOURS:
            return neighbour(over, columns, places)
        frame = self._frame(over.frame, rows, places)
        if function in PICKS:
            return picked(over, columns, places, frame)
        counted, pieces = counted_for(places, *frame, over.frame.excluded)
        return _aggregated(spec.columns, rows, places.row[counted], pieces, known.setdefault(over.frame, {}))

    def _frame(self, frame: Frame, columns: pa.RecordBatch, places: FramePlaces) -> tuple[Indices, Indices]:
        key = self.order[0] if self.order else None
        by = None if key is None else (columns.column(key.name), key.descending)
        return frame_of(frame, places, by)


class OverPartitionOperator(KeyedSliceOperator):
    """Every row with functions of those that are valid with it and equal it in the keys of its state."""

    name = "over"

    def __init__(self, schema: pa.Schema, kept: SortedState, functions: OrderedFunctions, grid: Hop) -> None:
        super().__init__(schema, (kept,), grid)
        self.functions = functions

    def answers(self, alive: Sequence[Alive], start: int, end: int) -> Iterator[Elements]:
        rows = alive[0].elements
        partitions = numbers_by(rows.columns, self.kept[0].key)
        pieces = sweep(partitions, rows.valid_from, rows.valid_to)
        ordered, ranks = self.functions.in_order(rows.columns, partitions)
        for row, piece in portions(ordered, pieces):
            places = FramePlaces(row, piece, ranks)
            yield self._joined(rows, pieces, places, self.functions.values(rows.columns, places))

    def _joined(self, rows: Elements, pieces: Sweep, places: FramePlaces, values: list[pa.Array]) -> Elements:
        """The rows with their values, over neighbouring pieces on which these are the same."""
        if len(places) == len(rows):
            # Every row lies on one piece.
            own = [gather(rows.columns.column(name), places.row) for name in self.functions.ties]
            batch = pa.RecordBatch.from_arrays([*own, *values], schema=self.schema)
            return Elements(batch, pieces.starts[places.piece], pieces.ends[places.piece])
        order = stable_order(places.row)  # the places of a row are in order of their pieces already
        row, piece = places.row[order], places.piece[order]
        other = (changes(gather(value, order)) for value in values)
        runs = NeighbourRuns(len(order), row[1:] != row[:-1], piece[1:] != piece[:-1] + 1, *other)
        at, last = runs.first, runs.end - 1
        own = [gather(rows.columns.column(name), row[at]) for name in self.functions.ties]
        batch = pa.RecordBatch.from_arrays([*own, *(gather(v, order[at]) for v in values)], schema=self.schema)
        return Elements(batch, pieces.starts[piece[at]], pieces.ends[piece[last]])


def _aggregated(
    spec: AggregateSpec, columns: pa.RecordBatch, row: Indices, pieces: Sweep, known: dict[object, Any]
) -> pa.Array:
    """An aggregate of every frame, of the rows that count."""
    none = np.empty(0, np.intp)
    names = list(dict.fromkeys(filter(None, (*spec.columns, spec.where)))) or columns.schema.names[:1]
    batch = pa.RecordBatch.from_arrays([gather(columns.column(name), row) for name in names], names=names)
    layout = SweptRows(pieces, np.zeros(len(row), np.intp), np.arange(len(row)), none, none)
    rows = InMemory(Elements(batch, pieces.first, pieces.last), layout, batch.slice(0, 0))
    return value_of(spec, rows, batch.schema, known)
