"""Outer, semi and anti joins, per snapshot.

A tuple is padded, or kept by an anti join, exactly at the instants at which no partner is valid with it: over its
interval less the union of its pairs' intervals. A semi join keeps it over that union. States are sorted by hash, so
partners are found by merging them. A tuple with a partner that covers all of its interval in a slice, or with none at
all, needs no difference: intervals are swept only where a partner comes or goes within the slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.algebra.physical import OuterJoin
from midstream.operators.elements import Elements, Hashes, Indices, Mask, Ticks
from midstream.operators.expressions import Predicate
from midstream.operators.hashing import columns_equal, key_validity
from midstream.operators.join import PAIRS_AT_ONCE, chunks, output_of
from midstream.operators.slices import KeyedSliceOperator
from midstream.operators.state.alive import Alive, Stored
from midstream.operators.state.segment import expand, matches
from midstream.operators.state.sorted_state import SortedState
from midstream.operators.sweep import union
from midstream.operators.vectors import gather


@dataclass(frozen=True, slots=True)
class Side:
    """One input within a slice: its elements, and those that can have partners, by position in order of hash."""

    elements: Elements
    rows: Indices
    hashes: Hashes


@dataclass(frozen=True, slots=True)
class OuterPairs:
    """Partners by their positions on both sides, and when both are valid."""

    left: Indices
    right: Indices
    valid_from: Ticks
    valid_to: Ticks

    def where(self, kept: Mask) -> OuterPairs:
        """Some of the pairs."""
        if kept.all():
            return self
        return OuterPairs(self.left[kept], self.right[kept], self.valid_from[kept], self.valid_to[kept])


class Coverage:
    """When the elements of a side have partners, collected from pairs."""

    def __init__(self, side: Elements, most: int) -> None:
        self.side = side
        self.most = most
        """How many intervals are collected before they become a union."""
        self.whole = np.zeros(len(side), bool)
        """Which elements have a partner that is valid as long as they are."""
        self.parts: list[tuple[Indices, Ticks, Ticks]] = []

    def add(self, owner: Indices, valid_from: Ticks, valid_to: Ticks) -> None:
        """Takes in pairs by the element of this side that they belong to."""
        throughout = (valid_from == self.side.valid_from[owner]) & (valid_to == self.side.valid_to[owner])
        self.whole[owner[throughout]] = True
        rest = ~throughout & ~self.whole[owner]
        if rest.any():
            self.parts.append((owner[rest], valid_from[rest], valid_to[rest]))

        if sum(len(part[0]) for part in self.parts) > self.most:
            self.parts = [self._union()]
            self.most = max(self.most, 2 * len(self.parts[0][0]))

    def _partial(self) -> tuple[Indices, Ticks, Ticks]:
        """The pairs of elements that no single partner covers."""
        if not self.parts:
            none = np.empty(0, np.int64)
            return none, none, none
        owner, valid_from, valid_to = (np.concatenate(column) for column in zip(*self.parts, strict=True))
        open_ = ~self.whole[owner]
        return owner[open_], valid_from[open_], valid_to[open_]

    def covered(self) -> tuple[Indices, Ticks, Ticks]:
        """The elements, by position, over the union of their pairs' intervals."""
        return self._with(np.flatnonzero(self.whole), self._union())

    def _union(self) -> tuple[Indices, Ticks, Ticks]:
        """The union of the pairs' intervals for elements that no single partner covers."""
        return union(*self._partial())

    def uncovered(self) -> tuple[Indices, Ticks, Ticks]:
        """The elements, by position, over what their pairs' intervals leave of theirs."""
        owner, cover_from, cover_to = self._partial()
        changing = np.zeros(len(self.side), bool)
        changing[owner] = True
        rows = np.flatnonzero(changing)
        number = np.cumsum(changing) - 1
        intervals = np.arange(len(rows)), self.side.valid_from[rows], self.side.valid_to[rows]
        places, starts, ends = union(*intervals, (number[owner], cover_from, cover_to))
        return self._with(np.flatnonzero(~self.whole & ~changing), (rows[places], starts, ends))

    def _with(self, rows: Indices, swept: tuple[Indices, Ticks, Ticks]) -> tuple[Indices, Ticks, Ticks]:
        """Some elements over all of their intervals, and those that were swept."""
        whole = rows, self.side.valid_from[rows], self.side.valid_to[rows]
        owners, starts, ends = (np.concatenate(both) for both in zip(whole, swept, strict=True))
        return owners, starts, ends


class OuterJoinOperator(KeyedSliceOperator):
    """Left, right and full outer joins, anti joins, and semi joins whose condition is more than equal keys."""

    at_once = PAIRS_AT_ONCE

    def __init__(
        self, node: OuterJoin, sides: tuple[SortedState, SortedState], residual: Predicate | None = None
    ) -> None:
        super().__init__(node.schema, sides, node.grid)
        self.kind, self.nulls_equal, self.residual = node.kind, node.nulls_equal, residual
        self.name, schemas = f"{node.kind} join", [side.schema for side in sides]
        self.both = pa.schema([field for schema in schemas for field in schema])
        self.output = output_of(node.schema, *schemas) if node.kind not in ("semi", "anti") else None

    def answers(self, alive: Sequence[Alive], start: int, end: int) -> Iterator[Elements]:
        left, right = (self._side(port, part) for port, part in enumerate(alive))
        coverages = Coverage(left.elements, self.at_once), Coverage(right.elements, self.at_once)
        for pairs in self._pairs(left, right, coverages[0]):
            coverages[0].add(pairs.left, pairs.valid_from, pairs.valid_to)
            if self.kind in ("right", "full"):
                coverages[1].add(pairs.right, pairs.valid_from, pairs.valid_to)
            if self.output is not None:
                yield self._paired(left.elements, right.elements, pairs)
        yield from self._alone(coverages[0], 0)
        yield from self._alone(coverages[1], 1)

    def answers_in_parts(self, stored: Sequence[Stored], start: int, end: int) -> Iterator[Elements]:
        """Pairs of blocks, each of the left with all of the right; where it is asked for, the other way round again."""
        assert self.most is not None
        ports = (0, 1) if self.kind in ("right", "full") else (0,)
        for port, own in ((number, side) for number in ports for side in self._sides(number, stored)):
            coverage = Coverage(own.elements, self.at_once)
            for other in self._sides(1 - port, stored):
                left, right = (own, other) if port == 0 else (other, own)
                for pairs in self._pairs(left, right, coverage):
                    coverage.add(pairs.left if port == 0 else pairs.right, pairs.valid_from, pairs.valid_to)
                    if self.output is not None and port == 0:
                        yield self._paired(left.elements, right.elements, pairs)
            yield from self._alone(coverage, port)

    def _sides(self, port: int, stored: Sequence[Stored]) -> Iterator[Side]:
        """An input, block by block."""
        assert self.most is not None
        return (self._side(port, alive) for alive in stored[port].some(self.most // 2))

    def _alone(self, coverage: Coverage, port: int) -> Iterator[Elements]:
        """What a side gives by itself, once all its pairs are known."""
        if port == 0 and self.kind == "semi":
            yield self._padded(coverage.side, *coverage.covered())
        if self.kind in (("left", "full", "anti"), ("right", "full"))[port]:
            yield self._padded(coverage.side, *coverage.uncovered())

    def _side(self, port: int, alive: Alive) -> Side:
        columns, key = alive.elements.columns, self.kept[port].key
        valid = None if self.nulls_equal else key_validity([columns.column(name) for name in key])
        rows = np.arange(len(alive)) if valid is None else np.flatnonzero(valid)
        hashes = alive.hashes if valid is None else alive.hashes.take(rows)
        if port == 1 and self.output is None:
            lengths = alive.elements.valid_to - alive.elements.valid_from
            order = np.lexsort((-lengths.take(rows), hashes))
        else:
            order = np.argsort(hashes, kind="stable")
        return Side(alive.elements, rows.take(order), hashes.take(order))

    def _pairs(self, left: Side, right: Side, coverage: Coverage) -> Iterator[OuterPairs]:
        """Pairs that overlap in time and meet the condition, of a bounded number of candidates at a time.

        Where only the coverage of the left side is asked for, those it is already known for are left out.
        """
        found = matches(left.hashes, right.hashes)
        if found is None:
            return
        hit, low, high = found
        if self.output is None:
            # The partner that is valid longest comes first, and mostly makes the others needless.
            yield from self._expanded(left, right, hit, low, low + 1)
            more = (high - low > 1) & ~coverage.whole[left.rows.take(hit)]
            hit, low, high = hit[more], low[more] + 1, high[more]
        yield from self._expanded(left, right, hit, low, high)

    def _expanded(self, left: Side, right: Side, hit: Indices, low: Indices, high: Indices) -> Iterator[OuterPairs]:
        for first, last in chunks(high - low, self.at_once):
            here, there, _ = expand(hit[first:last], low[first:last], high[first:last])
            self.work.matched += len(here)
            pairs = _overlapping(left.elements, right.elements, left.rows.take(here), right.rows.take(there))
            yield self._verified(left.elements.columns, right.elements.columns, pairs)

    def _verified(self, left: pa.RecordBatch, right: pa.RecordBatch, pairs: OuterPairs) -> OuterPairs:
        """The pairs whose keys are equal, not just their hashes, and that meet the rest of the condition."""
        if self.kept[0].key and len(pairs.left):
            here = [gather(left.column(name), pairs.left) for name in self.kept[0].key]
            there = [gather(right.column(name), pairs.right) for name in self.kept[1].key]
            pairs = pairs.where(columns_equal(here, there, self.nulls_equal))
        if self.residual is not None and len(pairs.left):
            columns = [gather(column, pairs.left) for column in left.columns]
            columns += [gather(column, pairs.right) for column in right.columns]
            pairs = pairs.where(self.residual(pa.RecordBatch.from_arrays(columns, schema=self.both)))
        return pairs

    def _paired(self, left: Elements, right: Elements, pairs: OuterPairs) -> Elements:
        assert self.output is not None
        columns = [
            gather(left.columns.column(i), pairs.left) if here else gather(right.columns.column(i), pairs.right)
            for here, i in self.output.places
        ]
        return Elements(pa.RecordBatch.from_arrays(columns, schema=self.schema), pairs.valid_from, pairs.valid_to)

    def _padded(self, side: Elements, rows: Indices, valid_from: Ticks, valid_to: Ticks) -> Elements:
        names = set(side.columns.schema.names)
        arrays = [
            gather(side.columns.column(f.name), rows) if f.name in names else pa.nulls(len(rows), f.type)
            for f in self.schema
        ]
        return Elements(pa.RecordBatch.from_arrays(arrays, schema=self.schema), valid_from, valid_to)


def _overlapping(left: Elements, right: Elements, here: Indices, there: Indices) -> OuterPairs:
    """The pairs that are valid together at some instant."""
    valid_from = np.maximum(left.valid_from.take(here), right.valid_from.take(there))
    valid_to = np.minimum(left.valid_to.take(here), right.valid_to.take(there))
    return OuterPairs(here, there, valid_from, valid_to).where(valid_from < valid_to)
