"""Duplicate elimination, per snapshot and without waiting.

A tuple's coverage, the union of the intervals in which it has been given out, only grows. A batch gives what it adds to
the coverage: its intervals less those already covered. The state is kept by version: whenever a tuple comes, its whole
coverage (from the frontier on) is stored anew, so the newest segment that knows a tuple says all there is to say, and
an older one is not asked.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from midstream.operators.base import Operator
from midstream.operators.elements import Elements, Hashes, Indices, Mask, concatenate, empty_elements
from midstream.operators.hashing import columns_equal, hash_columns
from midstream.operators.ordering import group_rows
from midstream.operators.sorting import hash_order
from midstream.operators.state.segment import Segment, make_segment, pairs
from midstream.operators.state.sorted_state import SortedState
from midstream.operators.sweep import join_neighbours, sweep


class CoverageState(SortedState):
    """A sorted state whose newest segment is right about every tuple it knows."""

    def latest(self, columns: pa.RecordBatch, hashes: Hashes, frontier: int) -> tuple[Indices, Elements | None]:
        """For sorted, distinct tuples: which of them (by position) cover what, from the newest version of each."""
        asked = np.arange(len(hashes))
        owners, found = [], []
        for segment in sorted(self.segments, key=lambda s: -s.born):
            if segment.latest_to <= frontier or len(asked) == 0:
                continue
            here, there = pairs(hashes[asked], segment.hashes)
            if len(here) == 0:
                continue
            rows = asked[here]
            stored = segment.elements.columns.take(pa.array(there))
            same = (
                columns_equal(columns.take(pa.array(rows)).columns, stored.columns, True)
                if columns.num_columns
                else None
            )
            if same is not None and not same.all():
                here, there, rows = here[same], there[same], rows[same]
            alive = segment.elements.valid_to[there] > frontier
            owners.append(rows[alive])
            found.append(segment.elements.take(there[alive]))
            answered = np.zeros(len(asked), bool)
            answered[here] = True
            asked = asked[~answered]
        if not owners:
            return np.empty(0, np.intp), None
        return np.concatenate(owners), concatenate(found)

    def current(self, frontier: int) -> Elements:
        """The coverage of every tuple from the frontier on."""
        whole = _merge_versions(self.segments, frontier) if self.segments else None
        return empty_elements(self.schema) if whole is None else whole.elements

    def compact(self, frontier: int, appended: int = 0) -> None:
        """Merges in tiers, keeping only the newest version of each tuple."""
        by_age = sorted(self.segments, key=lambda s: -s.born)
        run: list[Segment] = []
        size = 0
        for segment in by_age:
            # Only neighbours in age may merge, or an old version could come to look new.
            if len(run) >= 4 and (len(segment) > 2 * size or self.too_large([*run, segment])):
                break
            run.append(segment)
            size += len(segment)
        if len(run) < 4:
            return
        merged = _merge_versions(run, frontier)
        kept = [s for s in self.segments if all(s is not r for r in run)]
        self.segments = kept if merged is None else [*kept, merged]


def _merge_versions(segments: list[Segment], frontier: int) -> Segment | None:
    together = concatenate([s.elements for s in segments])
    hashes = np.concatenate([s.hashes for s in segments])
    born = np.repeat([s.born for s in segments], [len(s) for s in segments])
    groups, _ = (
        group_rows(together.columns.columns) if together.columns.num_columns else (np.zeros(len(born), np.intp), 0)
    )
    newest = np.zeros(int(groups.max()) + 1, np.int64)
    np.maximum.at(newest, groups, born)
    keep = np.flatnonzero((born == newest[groups]) & (together.valid_to > frontier))
    if len(keep) == 0:
        return None
    order = keep[np.argsort(hashes[keep], kind="stable")]
    return make_segment(together.take(order), hashes[order], 0, max(s.born for s in segments))


class Deduplicate(Operator):
    """Keeps one copy of each tuple per snapshot."""

    name = "distinct"

    def __init__(self, schema: pa.Schema, coverage: CoverageState) -> None:
        super().__init__(schema)
        self.coverage = coverage

    @property
    def states(self) -> tuple[SortedState, ...]:
        return (self.coverage,)

    def process(self, port: int, batch: Elements) -> Elements | None:
        self.work.taken += len(batch)
        if len(batch) == 0:
            return None
        tuples, groups, hashes = self._tuples(batch)
        owners, known = self.coverage.latest(tuples, hashes, self.frontier)
        fresh, coverage = _split(batch, groups, owners, known)
        self._remember(tuples, hashes, coverage)
        self.work.probed += len(batch)
        self.work.matched += len(owners)
        rows, starts, ends = fresh
        self.work.given += len(rows)
        if len(rows) == 0:
            return None
        columns = tuples.take(pa.array(rows)) if tuples.num_columns else tuples.slice(0, len(rows))
        return Elements(columns, starts, ends)

    def _tuples(self, batch: Elements) -> tuple[pa.RecordBatch, Indices, Hashes]:
        """The different tuples of a batch in order of hash, and for each element the number of its tuple."""
        columns = batch.columns
        if columns.num_columns == 0:
            return columns.slice(0, 1), np.zeros(len(batch), np.intp), np.zeros(1, np.uint64)
        groups, rows = group_rows(columns.columns)
        tuples = columns.take(pa.array(rows))
        hashes = hash_columns(tuples.columns)
        order, ordered = hash_order(hashes)
        number = np.empty(len(order), np.intp)
        number[order] = np.arange(len(order))
        return tuples.take(pa.array(order)), number[groups], ordered

    def _remember(self, tuples: pa.RecordBatch, hashes: Hashes, coverage: tuple[Indices, ...]) -> None:
        rows, starts, ends = coverage
        alive = ends > self.frontier
        rows, starts, ends = rows[alive], starts[alive], ends[alive]
        if len(rows) == 0:
            return
        self.coverage.appends += 1
        columns = tuples.take(pa.array(rows)) if tuples.num_columns else tuples
        segment = make_segment(Elements(columns, starts, ends), hashes[rows], 0, self.coverage.appends)
        self.coverage.segments.append(segment)
        self.coverage.compact(self.frontier, len(rows))
        self.work.inserted += len(rows)


def _split(
    batch: Elements, groups: Indices, owners: Indices, known: Elements | None
) -> tuple[tuple[Indices, ...], tuple[Indices, ...]]:
    """What the batch adds, and each tuple's whole coverage after it."""
    if known is None:
        pieces = sweep(groups, batch.valid_from, batch.valid_to)
        covered = pieces.steps() > 0
        fresh: Mask = covered
    else:
        pieces = sweep(
            np.concatenate([groups, owners]),
            np.concatenate([batch.valid_from, known.valid_from]),
            np.concatenate([batch.valid_to, known.valid_to]),
        )
        before = pieces.steps(np.repeat(np.array([0, 1], np.int64), [len(groups), len(owners)]))
        covered = pieces.steps() > 0
        fresh = covered & (before == 0)
    given = join_neighbours(pieces.groups[fresh], pieces.starts[fresh], pieces.ends[fresh])
    whole = join_neighbours(pieces.groups[covered], pieces.starts[covered], pieces.ends[covered])
    return given, whole
