"""Joining the results of two boxes at the split: by mending what was cut there, leaving one half out, or cutting.

What covers the half tick of the split in one box covers it in the other, because both boxes have the same snapshot
there. `Coalesce` holds back what covers it until the other half has come, and gives both as one element. Equal tuples
are paired as a multiset. Where plans keep intervals, the old half knows its true end and is paired with exactly the
half that has the same one, so the mended elements are those of a run without a migration.

`CutAtSplit` is for two plans of which one gives results early and the other by slices of time: the halves would come at
different times. It gives the old box's results before the split at once. Nothing after the split can leave before the
migration ends, so until then it keeps both what the old box has given beyond the split and what the new box has given:
if the migration ends, the latter is right, and if it is cancelled, the former.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.migration.split import Split
from midstream.operators.elements import Elements, Indices, concatenate, concatenate_batches
from midstream.operators.ordering import group_rows
from midstream.operators.state.sorted_state import SortedState

Pairing = Callable[[Elements, Elements, bool], tuple[Indices, Indices]]


class Joint(Protocol):
    """Where the results of both boxes come together."""

    def old(self, batch: Elements) -> Elements | None:
        """Takes results of the old box and gives what can leave at once."""

    def new(self, batch: Elements) -> Elements | None:
        """Takes results of the new box and gives what can leave at once."""

    def release(self) -> Elements | None:
        """Gives what has become whole."""

    def flush(self) -> Elements | None:
        """Gives everything that is held back, as it is."""

    @property
    def held_from(self) -> int | None:
        """The earliest start of what is held back; None if nothing is."""

    def states(self) -> Iterator[SortedState]:
        """What is held back."""


class Coalesce:
    """Mends what the split has cut."""

    def __init__(self, schema: pa.Schema, split: Split, exact: bool, pairing: Pairing | None = None) -> None:
        self.split = split
        self.exact = exact
        self.pairing = pairing or pair
        self.halves = (
            SortedState("halves before the split", (), schema, None),
            SortedState("halves after the split", (), schema, None),
        )

    def old(self, batch: Elements) -> Elements | None:
        """Gives what ends before the split, keeps what covers it and drops what lies beyond."""
        crossing = (batch.valid_to > self.split.first) & (batch.valid_from <= self.split.first)
        self._hold(0, batch.where(crossing))
        return _some(batch.where(batch.valid_to <= self.split.first))

    def new(self, batch: Elements) -> Elements | None:
        """Gives what starts after the split and keeps what covers it."""
        crossing = batch.valid_from < self.split.first
        self._hold(1, batch.where(crossing))
        return _some(batch.where(~crossing))

    def release(self) -> Elements | None:
        """Gives the pairs of halves that have come together."""
        if not all(state.segments for state in self.halves):
            return None
        before, after = (concatenate([s.elements for s in state.segments]) for state in self.halves)
        here, there = self.pairing(before, after, self.exact)
        self._keep(0, before, here)
        self._keep(1, after, there)
        first = self.split.first
        starts = np.minimum(before.valid_from[here], first)
        whole = before.take(here).with_validity(starts, after.valid_to[there])
        return _some(whole.where(whole.valid_from < whole.valid_to))

    def flush(self) -> Elements | None:
        """Gives halves whose other half never came (floats can differ in their last digit), each on its side."""
        first = self.split.first
        before = [s.elements.clipped(BEGINNING, first) for s in self.halves[0].segments]
        after = [s.elements.clipped(first, INFINITY) for s in self.halves[1].segments]
        for state in self.halves:
            state.segments = []
        return _some(concatenate([*before, *after])) if before or after else None

    @property
    def held_from(self) -> int | None:
        """The earliest start of a half before the split."""
        return min((segment.earliest_from for segment in self.halves[0].segments), default=None)

    def states(self) -> Iterator[SortedState]:
        """The halves."""
        return iter(self.halves)

    def _hold(self, side: int, batch: Elements) -> None:
        if len(batch):
            self.halves[side].append(batch, np.zeros(len(batch), np.uint64))

    def _keep(self, side: int, elements: Elements, gone: Indices) -> None:
        left = np.ones(len(elements), bool)
        left[gone] = False
        self.halves[side].segments = []
        self._hold(side, elements.where(left))


class CutAtSplit:
    """Cuts results at the split and decides at the end whose half after it counts."""

    def __init__(self, schema: pa.Schema, split: Split) -> None:
        self.split = split
        self.beyond = SortedState("the old box's after the split", (), schema, None)
        self.held = SortedState("the new box's after the split", (), schema, None)

    def old(self, batch: Elements) -> Elements | None:
        """Gives what lies before the split and keeps the rest."""
        _keep_in(self.beyond, batch.clipped(self.split.first, INFINITY))
        return _some(batch.clipped(BEGINNING, self.split.first))

    def new(self, batch: Elements) -> Elements | None:
        """Keeps what lies after the split."""
        _keep_in(self.held, _renamed_elements(batch.clipped(self.split.first, INFINITY), self.held.schema))
        return None

    def release(self) -> Elements | None:
        """Nothing is mended."""
        return None

    def flush(self) -> Elements | None:
        """Gives what the new box has given."""
        return self._all_of(self.held)

    def forgo(self) -> Elements | None:
        """Gives what the old box has given beyond the split, instead of what the new one has."""
        return self._all_of(self.beyond)

    def _all_of(self, state: SortedState) -> Elements | None:
        parts = [segment.elements for segment in state.segments]
        self.beyond.segments, self.held.segments = [], []
        return concatenate(parts) if parts else None

    @property
    def held_from(self) -> int | None:
        """The earliest start of what the new box has given."""
        return min((segment.earliest_from for segment in self.held.segments), default=None)

    def states(self) -> Iterator[SortedState]:
        """What is kept of either box."""
        return iter((self.beyond, self.held))


class ReferencePoint:
    """Gives the old box's results whole and leaves out the new box's halves of them."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def old(self, batch: Elements) -> Elements | None:
        """Gives everything."""
        return batch

    def new(self, batch: Elements) -> Elements | None:
        """Gives what starts after the split."""
        return _some(batch.where(batch.valid_from >= self.split.first))

    def release(self) -> Elements | None:
        """Nothing is ever held back."""
        return None

    def flush(self) -> Elements | None:
        """Nothing is ever held back."""
        return None

    @property
    def held_from(self) -> int | None:
        """Nothing is ever held back."""
        return None

    def states(self) -> Iterator[SortedState]:
        """None."""
        return iter(())


def pair(before: Elements, after: Elements, exact: bool) -> tuple[Indices, Indices]:
    """Positions of halves that belong together: equal tuples, each used once; with equal true ends if exact."""
    both = concatenate_batches([before.columns, _renamed(after.columns, before.columns.schema)])
    columns = list(both.columns)
    if exact:
        columns.append(pa.array(np.concatenate([before.valid_to, after.valid_to])))
    groups, _ = group_rows(columns)
    keys_before, keys_after = _numbered(groups[: len(before)]), _numbered(groups[len(before) :])
    _, here, there = np.intersect1d(keys_before, keys_after, assume_unique=True, return_indices=True)
    return here, there


def _numbered(groups: Indices) -> Indices:
    """For each row one number that tells its group and the how-manieth of it it is."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    first = np.concatenate([[0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1]) if len(groups) else order
    sizes = np.diff(np.append(first, len(groups)))
    rank = np.empty(len(groups), np.int64)
    rank[order] = np.arange(len(groups)) - np.repeat(first, sizes)
    return (groups.astype(np.int64) << 32) | rank


def _renamed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _renamed_elements(batch: Elements, schema: pa.Schema) -> Elements:
    return batch.with_columns(_renamed(batch.columns, schema)) if len(schema) else batch


def _keep_in(state: SortedState, batch: Elements) -> None:
    if len(batch):
        state.append(batch, np.zeros(len(batch), np.uint64))


def _some(batch: Elements) -> Elements | None:
    return batch if len(batch) else None
