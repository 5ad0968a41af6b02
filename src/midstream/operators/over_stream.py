"""OVER a stream: every row with functions of the rows of its partition up to it, at its own time.

A slice has all rows of each of its instants, so a row and those that the order holds equal to it are in one slice. Rows
before the slice are kept while a later frame may reach them.

Where frames have no start, rows before the slice are kept as few that stand for all of them: equal to the partition's
last one, but what functions look at are the values so far. For sums, least, greatest and first values, those and the
new rows give what all rows would. A sum of floats is kept as several floats whose sum is exact, so that it does not
depend on where slices end. Such a row is known by having no end; of those of a partition only the latest count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.operators.elements import Elements, Indices, Mask, Ticks
from midstream.operators.frames import FramePlaces
from midstream.operators.ordering import groups_by, numbers_by
from midstream.operators.over import OrderedFunctions, OverSpec
from midstream.operators.row_window import OrderedRowsOperator
from midstream.operators.state.sorted_state import SortedState
from midstream.operators.vectors import gather


@dataclass(frozen=True, slots=True)
class OverReach:
    """How far back frames reach from a row: by rows, by groups of rows of one time, by ticks, and by values.

    The last are for IGNORE NULLS: columns, and how many of their values that are not null.
    """

    rows: int = 0
    groups: int = 0
    ticks: int = 0
    values: tuple[tuple[str, int], ...] = ()


class OverStreamOperator(OrderedRowsOperator):
    """Functions over frames that have a start."""

    name = "over a stream"

    def __init__(self, schema: pa.Schema, kept: SortedState, functions: OrderedFunctions, reach: OverReach) -> None:
        super().__init__(schema, kept, (), None)
        self.functions = functions
        self.reach = reach

    def look(self, rows: Elements, start: int, end: int) -> tuple[Elements, Indices]:
        places, values = self._evaluated(rows)
        here = places.row
        after, later = places.end - 1 - places.here, places.group[places.end - 1] - places.group
        needed = (after < self.reach.rows) | (later < self.reach.groups)
        needed |= rows.valid_from[here] >= end - self.reach.ticks
        for name, count in self.reach.values:
            known = rows.columns.column(name).is_valid().to_numpy(zero_copy_only=False)[here]
            so_far = np.cumsum(known)
            needed |= known & (so_far[places.end - 1] - so_far < count)
        return self._given(rows, places, values, start), here[~needed]

    def _evaluated(self, rows: Elements) -> tuple[FramePlaces, list[pa.Array]]:
        """The places of rows in their partitions, and the values of the functions there."""
        partitions = numbers_by(rows.columns, self.kept[0].key)
        row, ranks = self.functions.in_order(rows.columns, partitions)
        places = FramePlaces(row, partitions[row], ranks)
        return places, self.functions.values(rows.columns, places)

    def _given(self, rows: Elements, places: FramePlaces, values: list[pa.Array], start: int) -> Elements:
        """What is new of the rows, at its own time."""
        fresh = np.flatnonzero((rows.valid_from[places.row] >= start) & (rows.valid_to[places.row] != INFINITY))
        row = places.row[fresh]
        own = [gather(rows.columns.column(name), row) for name in self.functions.ties]
        batch = pa.RecordBatch.from_arrays([*own, *(gather(v, fresh) for v in values)], schema=self.schema)
        return Elements(batch, rows.valid_from[row], rows.valid_from[row] + 1)


class RunningOver(OverStreamOperator):
    """Functions over frames without a start."""

    def __init__(self, schema: pa.Schema, kept: SortedState, functions: OrderedFunctions) -> None:
        super().__init__(schema, kept, functions, OverReach())
        # What a partition's last row would have if its frame ended with it.
        self.so_far = replace(functions, specs=tuple(map(_so_far, functions.specs)))

    def look(self, rows: Elements, start: int, end: int) -> tuple[Elements, Indices]:
        carried = rows.valid_to == INFINITY
        fresh = ~carried & (rows.valid_from >= start)
        used = np.flatnonzero(fresh | self._latest(rows, np.flatnonzero(carried)))
        looked_at = rows.take(used)
        places, values = self._evaluated(looked_at)
        stays = np.zeros(len(rows), bool)
        if len(places):
            first = np.flatnonzero(places.here == places.start)
            last = places.end[first] - 1
            # A partition has new rows if its last one is: those that stand for others come first.
            new = fresh[used[places.row[last]]]
            stays[used[places.row[np.repeat(~new, last - first + 1)]]] = True
            self._carry(looked_at, places, values, first[new], last[new])
        return self._given(looked_at, places, values, start), np.flatnonzero(~stays)

    def _latest(self, rows: Elements, carried: Indices) -> Mask:
        """Which rows stand for all others of their partition."""
        found = np.zeros(len(rows), bool)
        if len(carried):
            groups = groups_by(rows.columns.take(pa.array(carried)), self.kept[0].key)[0]
            latest = np.full(int(groups.max()) + 1, BEGINNING)
            np.maximum.at(latest, groups, rows.valid_from[carried])
            found[carried] = rows.valid_from[carried] == latest[groups]
        return found

    def _carry(
        self, rows: Elements, places: FramePlaces, values: list[pa.Array], first: Indices, last: Indices
    ) -> None:
        """Makes the rows that stand for all rows so far, of partitions between these places."""
        if not len(first):
            return
        if self.so_far != self.functions:
            values = self.so_far.values(rows.columns, places)
        columns = {name: gather(rows.columns.column(name), places.row[last]) for name in rows.columns.schema.names}
        terms: dict[str, list[list[Any]]] = {}
        for spec, value in zip(self.so_far.specs, values, strict=True):
            (argument,) = spec.columns.columns
            if spec.over.call.function != "sum":
                columns[argument] = gather(value, last)
            elif pa.types.is_floating(spec.over.type):
                parts = gather(rows.columns.column(argument), places.row)
                terms[argument] = [_terms(parts.slice(a, b - a + 1)) for a, b in zip(first, last, strict=True)]
            else:
                terms[argument] = [[total] for total in gather(value, last)]
        self.again.append(_several(columns, terms, rows.valid_from[places.row[last]], rows.columns.schema))


def _so_far(spec: OverSpec) -> OverSpec:
    over = spec.over
    return spec if over.frame.end == 0 else replace(spec, over=replace(over, frame=replace(over.frame, end=0)))


def _terms(column: pa.Array) -> list[float]:
    """Few floats whose sum is exactly that of many; none if there is none."""
    numbers = column.drop_null().to_numpy(zero_copy_only=False)
    if not np.isfinite(numbers).all():
        return [float(numbers.sum())]
    summed, found = numbers.tolist(), list[float]()
    while rest := math.fsum([*summed, *(-term for term in found)]):
        found.append(rest)
    return found or summed[:1] and [0.0]


def _several(
    columns: dict[str, pa.Array], terms: dict[str, list[list[Any]]], times: Ticks, schema: pa.Schema
) -> Elements:
    """Rows as often as a sum has terms, one term in each."""
    counts = np.ones(len(times), np.intp)
    for lists in terms.values():
        counts = np.maximum(counts, [len(of_row) for of_row in lists])
    row = np.repeat(np.arange(len(times)), counts)
    arrays = []
    for field in schema:
        if field.name in terms:
            padded = [[*t, *[None] * (n - len(t))] for t, n in zip(terms[field.name], counts.tolist(), strict=True)]
            arrays.append(pa.array([term for of_row in padded for term in of_row], field.type))
        else:
            arrays.append(gather(columns[field.name], row))
    return Elements(pa.RecordBatch.from_arrays(arrays, schema=schema), times[row], np.full(len(row), INFINITY))
