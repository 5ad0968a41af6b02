"""Groups of an aggregate whose rows do not fit into memory, read some at a time.

First only times are read, for the points at which a group changes: between them lie the pieces, on which all parts of
the rows are measured. A slice that has too many points is answered for in several, one after the other.

Equal values must meet where only different ones count, so these are taken by ranges of their hash instead, and the
intervals of a value become a union as they come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.operators.elements import Indices, Ticks, concatenate_batches, empty_batch
from midstream.operators.exact_numbers import Integers
from midstream.operators.hashing import hash_columns
from midstream.operators.ordering import NeighbourRuns, group_rows
from midstream.operators.parts import Argument, SweptPart, SweptParts, SweptRows, count_measure
from midstream.operators.state.alive import Stored
from midstream.operators.sweep import Sweep, pieces_between, positions, union
from midstream.operators.vectors import gather

POINT_BYTES = 128
"""What a point at which a group changes takes: its time, its group, and the measures of the piece after it."""

NONE = np.empty(0, np.intp)


@dataclass(frozen=True, slots=True)
class Values:
    """Values of groups, with the intervals in which they count."""

    groups: Indices
    values: pa.Array
    starts: Ticks
    ends: Ticks

    def with_others(self, other: Values) -> Values:
        """These and others."""
        numbers = ((self.groups, other.groups), (self.starts, other.starts), (self.ends, other.ends))
        groups, starts, ends = map(np.concatenate, numbers)
        return Values(groups, pa.concat_arrays([self.values, other.values]), starts, ends)

    def at(self, rows: Indices) -> Values:
        """Some of them."""
        return Values(self.groups[rows], gather(self.values, rows), self.starts[rows], self.ends[rows])

    def different(self) -> Values:
        """Each different value of a group once, over the union of its intervals."""
        pairs, examples = group_rows([pa.array(self.groups), self.values])
        pair, starts, ends = union(pairs, self.starts, self.ends)
        rows = examples[pair] if len(pair) else pair
        return Values(self.groups[rows], gather(self.values, rows), starts, ends)

    def part(self, pieces: Sweep) -> SweptPart:
        """The values as what an aggregate looks at, on some pieces."""
        first, last = positions(pieces, self.groups, self.starts), positions(pieces, self.groups, self.ends)
        covered = Sweep(pieces.groups, pieces.starts, pieces.ends, first, last)
        layout = SweptRows(covered, self.groups, np.arange(len(self.groups)), NONE, NONE)
        return SweptPart(self.values, np.ones(len(self.groups), bool), layout)


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Some rows of one input, with the numbers of their groups and their validity within a slice."""

    side: int
    columns: pa.RecordBatch
    groups: Indices
    starts: Ticks
    ends: Ticks

    def layout(self, pieces: Sweep, start: int, end: int) -> SweptRows:
        """How they are swept over the pieces of a slice; those valid throughout enter as one per group."""
        parts, groups, starts, ends = entries(self.groups, self.starts, self.ends, start, end)
        first, last = positions(pieces, groups, starts), positions(pieces, groups, ends)
        return SweptRows(Sweep(pieces.groups, pieces.starts, pieces.ends, first, last), self.groups, *parts)


def entries(
    groups: Indices, starts: Ticks, ends: Ticks, start: int, end: int, one_by_one: bool = False
) -> tuple[tuple[Indices, Indices, Indices], Indices, Ticks, Ticks]:
    """What is swept of a slice: rows one by one, and those valid throughout as one per group.

    First which rows are which, and the groups of the latter; then groups, starts and ends of what is swept.
    """
    throughout = (starts == start) & (ends == end) & (not one_by_one)
    whole, single = np.flatnonzero(throughout), np.flatnonzero(~throughout)
    merged = np.flatnonzero(np.bincount(groups[whole])) if len(whole) else NONE
    of_all = np.concatenate([groups[single], merged])
    first = np.concatenate([starts[single], np.full(len(merged), start)])
    return (single, whole, merged), of_all, first, np.concatenate([ends[single], np.full(len(merged), end)])


class LargeGroups:
    """Few groups with many rows of one or more inputs; about `most` bytes of them are in memory at once."""

    def __init__(self, stored: Sequence[Stored], keys: Sequence[str], most: int) -> None:
        self.stored = stored
        self.keys = tuple(keys)
        self.most = most
        self.examples = empty_batch(stored[0].state.schema)

    def slices(self) -> Iterator[LargeSlice]:
        """The slice of time, cut where it has too many points."""
        start, end = self.stored[0].start, self.stored[0].end
        while start < end:
            pieces, until = self._pieces(start, end)
            if len(pieces):
                yield LargeSlice(self, pieces, start, until)
            start = until

    def read(self, start: int, end: int) -> Iterator[GroupRows]:
        """All rows within a part of the slice, some at a time; columns are called as those of the first input."""
        schema = self.stored[0].state.schema
        for side, stored in enumerate(self.stored):
            for alive in stored.within(start, end).some(self.most):
                rows = alive.elements
                columns = rows.columns if side == 0 else pa.RecordBatch.from_arrays(rows.columns.columns, schema=schema)
                yield GroupRows(side, columns, self._numbers(columns), rows.valid_from, rows.valid_to)

    def _numbers(self, columns: pa.RecordBatch) -> Indices:
        """The number of each row's group; one that has none yet gets the next."""
        known = self.examples.num_rows
        if not self.keys:
            self.examples = columns.slice(0, 1)
            return np.zeros(columns.num_rows, np.intp)
        both = [pa.concat_arrays([self.examples.column(k), columns.column(k)]) for k in self.keys]
        groups, first = group_rows(both)
        new = first[known:] - known
        if len(new):
            self.examples = concatenate_batches([self.examples, columns.take(pa.array(new))])
        return groups[known:]

    def _pieces(self, start: int, end: int) -> tuple[Sweep, int]:
        """The pieces from `start` on, as many as fit, and where they end."""
        groups, times = NONE, np.empty(0, np.int64)
        for rows in self.read(start, end):
            groups = np.concatenate([groups, rows.groups, rows.groups])
            times = np.concatenate([times, np.minimum(rows.starts, end), np.minimum(rows.ends, end)])
            groups, times = _different(groups, times)
            if len(times) * POINT_BYTES > self.most:
                middle = int(np.sort(times)[len(times) // 2])
                # A slice has at least the points of one instant.
                later = times[times > start]
                end = max(middle, int(later.min())) if len(later) else end
                groups, times = _different(groups, np.minimum(times, end))
        return pieces_between(groups, times), end


def _different(groups: Indices, times: Ticks) -> tuple[Indices, Ticks]:
    """Each point once."""
    pieces = np.lexsort((times, groups))
    groups, times = groups[pieces], times[pieces]
    new = NeighbourRuns(len(groups), groups[1:] != groups[:-1], times[1:] != times[:-1]).first
    return groups[new], times[new]


class LargeSlice:
    """Rows of large groups within a slice of time, on whose pieces all of them are measured."""

    def __init__(self, large: LargeGroups, pieces: Sweep, start: int, end: int) -> None:
        self.large = large
        self.pieces = pieces
        self.start = start
        self.end = end
        self.stored = [stored.within(start, end) for stored in large.stored]

    @property
    def examples(self) -> pa.RecordBatch:
        """A row of each group."""
        return self.large.examples

    def read(self) -> Iterator[GroupRows]:
        """The rows, some at a time."""
        return self.large.read(self.start, self.end)

    def counts(self) -> Iterator[tuple[int, Integers]]:
        """How many rows there are on every piece, some rows of an input at a time, with the input's number."""
        for rows in self.read():
            measure = count_measure(np.ones(len(rows.groups), bool))
            yield rows.side, rows.layout(self.pieces, self.start, self.end).sweep(measure)

    def parts(self, argument: Argument, known: dict[object, Any]) -> SweptParts:
        """What an aggregate looks at."""
        read = self._different if argument.distinct else self._all
        rows = sum(stored.rows() for stored in self.stored)
        return SweptParts(argument, rows, lambda: read(argument), known, several=True)

    def _all(self, argument: Argument) -> Iterator[SweptPart]:
        for rows in self.read():
            yield argument.part(rows.columns, rows.layout(self.pieces, self.start, self.end))

    def _different(self, argument: Argument) -> Iterator[SweptPart]:
        ranges = sum(stored.size() for stored in self.stored) // self.large.most + 1
        for number in range(ranges):
            none = np.empty(0, np.int64)
            found = Values(NONE, pa.array([], argument.kind), none, none)
            for rows in self.read():
                values = Values(rows.groups, rows.columns.column(argument.column), rows.starts, rows.ends)
                values = values.at(np.flatnonzero(argument.present(rows.columns)))
                hashes = hash_columns([values.values]) >> np.uint64(20)
                found = found.with_others(values.at(np.flatnonzero(hashes % np.uint64(ranges) == number))).different()
            yield found.part(self.pieces)
