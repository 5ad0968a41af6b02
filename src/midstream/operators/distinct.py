"""Duplicate elimination, per snapshot and without waiting.

A tuple's coverage, the union of the intervals in which it has been given out, only grows. A batch gives what it adds to
the coverage: its intervals less those already covered. Just that is stored, by time as in any sorted state, so that a
batch meets no more of the coverage than it can overlap. What is stored is a union: intervals of a tuple that touch, or
lie over each other, mean the same as one, and become one when segments are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from midstream.operators.base import Operator
from midstream.operators.elements import Elements, Hashes, Indices, Ticks, concatenate, rows_without_columns
from midstream.operators.hashing import columns_equal, hash_order
from midstream.operators.join import Pairs, gather_stored
from midstream.operators.ordering import group_rows, groups_by
from midstream.operators.state.segment import Segment, expand, key_hashes, make_segment, matches
from midstream.operators.state.sorted_state import SortedState
from midstream.operators.sweep import union
from midstream.operators.vectors import gather

NOTHING = np.empty(0, np.int64)


class Covered(NamedTuple):
    """What is covered: whose it is, by position, from when and until when."""

    owners: Indices
    valid_from: Ticks
    valid_to: Ticks


class CoverageState(SortedState):
    """A sorted state in which the intervals of a tuple are a union."""

    buckets = 2
    least_split = 16_384

    def within(self, tuples: pa.RecordBatch, hashes: Hashes, start: int, end: int) -> Covered:
        """What covers some tuples, which are in order of hash and distinct, where that reaches into `[start, end)`."""
        segments, here, there = [], [], []
        for segment in self.segments:
            if segment.latest_to <= start or segment.earliest_from >= end:
                continue
            found = matches(hashes, segment.hashes)
            if found is not None:
                owners, places, _ = expand(*found)
                segments.append(segment)
                here.append(owners)
                there.append(places)
        if not segments:
            return Covered(NOTHING, NOTHING, NOTHING)
        cuts = np.cumsum([len(places) for places in there]).tolist()
        pairs = Pairs(np.concatenate(here), np.concatenate(there), segments, cuts)
        valid_from = np.concatenate([s.elements.valid_from.take(at) for s, at in pairs.parts()])
        valid_to = np.concatenate([s.elements.valid_to.take(at) for s, at in pairs.parts()])
        near = (valid_to > start) & (valid_from < end)
        if not near.all():
            kept = near.nonzero()[0]
            pairs, valid_from, valid_to = pairs.where(kept), valid_from[kept], valid_to[kept]
        known = Covered(pairs.here, valid_from, valid_to)
        if len(pairs.here) == 0 or tuples.num_columns == 0:
            return known
        asked = [gather(column, pairs.here) for column in tuples.columns]
        same = columns_equal(asked, [gather_stored(pairs, i) for i in range(tuples.num_columns)], True)
        return known if same.all() else Covered(*(part[same] for part in known))

    def current(self, frontier: int) -> Elements:
        """The coverage of every tuple from the frontier on; no two intervals of a tuple touch."""
        stored = self.alive(frontier)
        if len(stored) == 0:
            return stored
        groups, examples = groups_by(stored.columns, self.schema.names)
        rows, starts, ends = union(groups, stored.valid_from, stored.valid_to)
        return stored.take(examples[rows]).with_validity(starts, ends)

    def merged(self, segments: Sequence[Segment], frontier: int) -> Segment | None:
        """One segment of what still counts, in which intervals of a tuple that follow each other are one."""
        # What came later mostly goes on where the earlier ended, so order of age is order of time.
        by_age = sorted(segments, key=lambda segment: segment.born)
        together = concatenate([s.elements.without_hashes() for s in by_age])
        hashes = np.concatenate([s.hashes for s in by_age])
        order = np.argsort(hashes, kind="stable")
        order = order[together.valid_to[order] > frontier]
        if len(order) == 0:
            return None
        runs = _runs(together, hashes, order)
        first = order[runs]
        ends = np.maximum.reduceat(together.valid_to[order], runs)
        elements = together.take(first).with_validity(together.valid_from[first], ends)
        return make_segment(elements, hashes[first], max(s.bucket for s in segments), by_age[-1].born)

    def times(self, elements: Elements) -> Ticks:
        """The ends: what a batch adds reaches about as far, wherever it starts, and so expires together."""
        return elements.valid_to


def _runs(elements: Elements, hashes: Hashes, order: Indices) -> Indices:
    """Where, in an order by hash, an element does not go on with the one before it."""
    before, after = order[:-1], order[1:]
    joins = hashes[after] == hashes[before]
    joins &= elements.valid_from[after] <= elements.valid_to[before]
    joins &= elements.valid_from[after] >= elements.valid_from[before]
    at = np.flatnonzero(joins)
    if len(at) and elements.columns.num_columns:
        columns = elements.columns
        one, other = (columns.take(pa.array(rows[at])).columns for rows in (before, after))
        joins[at] = columns_equal(one, other, True)
    return np.append(0, np.flatnonzero(~joins) + 1)


class DeduplicateOperator(Operator):
    """Keeps one copy of each tuple per snapshot."""

    name = "distinct"

    def __init__(self, schema: pa.Schema, coverage: CoverageState) -> None:
        super().__init__(schema)
        self.coverage, self.states = coverage, (coverage,)

    def process(self, port: int, batch: Elements) -> Elements | None:
        self.work.taken += len(batch)
        if len(batch) == 0:
            return None
        tuples, groups, hashes = self._tuples(batch)
        known = self.coverage.within(tuples, hashes, int(batch.valid_from.min()), int(batch.valid_to.max()))
        rows, starts, ends = union(groups, batch.valid_from, batch.valid_to, known)
        self.work.probed += len(batch)
        self.work.matched += len(known.owners)
        self.work.given += len(rows)
        if len(rows) == 0:
            return None
        columns = tuples.take(pa.array(rows)) if tuples.num_columns else rows_without_columns(len(rows))
        fresh = Elements(columns, starts, ends)
        self._remember(fresh, hashes[rows])
        return fresh

    def _tuples(self, batch: Elements) -> tuple[pa.RecordBatch, Indices, Hashes]:
        """The different tuples of a batch in order of hash, and for each element the number of its tuple."""
        columns = batch.columns
        if columns.num_columns == 0:
            return columns.slice(0, 1), np.zeros(len(batch), np.intp), np.zeros(1, np.uint64)
        groups, rows = group_rows(columns.columns)
        tuples = columns.take(pa.array(rows))
        hashes = key_hashes(tuples, self.coverage.key, self.coverage.grouping)
        order, ordered = hash_order(hashes)
        number = np.empty(len(order), np.intp)
        number[order] = np.arange(len(order))
        return tuples.take(pa.array(order)), number[groups], ordered

    def _remember(self, fresh: Elements, hashes: Hashes) -> None:
        alive = fresh.valid_to > self.frontier
        if not alive.all():
            fresh, hashes = fresh.where(alive), hashes[alive]
        self.coverage.append(fresh, hashes)
        self.coverage.compact(self.frontier, len(fresh))
        self.work.inserted += len(fresh)
