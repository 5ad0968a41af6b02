"""What of some states lies within a slice of time, range of hashes by range of hashes.

Rows that must be looked at together have equal hashes in all states of an operator, so every range of hashes can be
answered for by itself. What is held in memory is then a range of what is alive, not all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from midstream.operators.elements import Elements, Hashes, Mask, concatenate, empty_elements
from midstream.operators.state.portions import cut_at, hash_bounds
from midstream.operators.state.segment import Segment
from midstream.operators.state.sorted_state import SortedState

NONE = np.empty(0, np.uint64)

Run = tuple[Segment, int, int]
"""A segment and the positions of some of its elements."""


@dataclass(frozen=True, slots=True)
class Alive:
    """Elements of a state, clipped to a slice, and the hashes they are stored by; runs in order of hash."""

    elements: Elements
    hashes: Hashes

    def __len__(self) -> int:
        return len(self.hashes)


@dataclass(frozen=True, slots=True)
class Stored:
    """What a state holds of a range of hashes within `[start, end)`: runs of segments, read when they are asked for."""

    state: SortedState
    runs: Sequence[Run]
    start: int
    end: int

    def estimate(self) -> int:
        """No fewer bytes than it has."""
        return sum(segment.bytes * (last - first) // len(segment) for segment, first, last in self.runs)

    def size(self) -> int:
        """How many bytes it has."""
        rows = sum(last - first for _, first, last in self.runs)
        return self.estimate() * self.rows() // max(1, rows)

    def rows(self) -> int:
        """How many elements it has."""
        return sum(int(np.count_nonzero(self._reaching(run[0].run(*run[1:])))) for run in self.runs)

    def within(self, start: int, end: int) -> Stored:
        """The same within a part of the slice."""
        return Stored(self.state, self.runs, start, end)

    def alive(self, clipped: bool = True) -> Alive:
        """All of it; clipped to the slice, or as it is stored."""
        return _together([part for run in self.runs if len(part := self._read(run, clipped))], self.state)

    def some(self, most: int) -> Iterator[Alive]:
        """All of it, about so many bytes at a time."""
        together: list[Alive] = []
        size = 0
        for run in self.runs:
            for part in self._pieces(run, most):
                share = run[0].bytes * len(part) // len(run[0])
                if together and size + share > most:
                    yield _together(together, self.state)
                    together, size = [], 0
                together.append(part)
                size += share
        if together:
            yield _together(together, self.state)

    def _pieces(self, run: Run, most: int) -> Iterator[Alive]:
        segment, first, last = run
        step = max(1, len(segment) * most // max(1, segment.bytes))
        for at in range(first, last, step):
            part = self._read((segment, at, min(at + step, last)))
            if len(part):
                yield part

    def _reaching(self, elements: Elements) -> Mask:
        reaching: Mask = (elements.valid_to > self.start) & (elements.valid_from < self.end)
        return reaching

    def _read(self, run: Run, clipped: bool = True) -> Alive:
        """The elements of a run that reach into the slice."""
        segment, first, last = run
        elements, hashes = segment.run(first, last), segment.hashes[first:last]
        reaching = self._reaching(elements)
        if not reaching.all():
            rows = np.flatnonzero(reaching)
            elements, hashes = elements.take(rows), hashes.take(rows)
        if not clipped:
            return Alive(elements.without_hashes(), hashes)
        validity = np.maximum(elements.valid_from, self.start), np.minimum(elements.valid_to, self.end)
        return Alive(elements.with_validity(*validity).without_hashes(), hashes)


def stored_by_range(
    states: Sequence[SortedState], start: int, end: int, most: int | None = None
) -> Iterator[list[Stored]]:
    """What each state holds of a range of hashes within `[start, end)`; of about `most` bytes together at a time.

    A range that has a single hash may be larger.
    """
    reached = [[s for s in state.segments if s.latest_to > start and s.earliest_from < end] for state in states]
    everything = [segment for segments in reached for segment in segments]
    bounds = NONE if most is None or not _one_order(states) else hash_bounds(everything, most)
    cuts = {id(segment): cut_at(segment, bounds) for segment in everything}
    for i in range(len(bounds) + 1):
        found = []
        for state, segments in zip(states, reached, strict=True):
            runs = [(s, cuts[id(s)][i], cuts[id(s)][i + 1]) for s in segments]
            found.append(Stored(state, [run for run in runs if run[1] < run[2]], start, end))
        if any(stored.runs for stored in found):
            yield found


def _one_order(states: Sequence[SortedState]) -> bool:
    """Whether equal keys have equal hashes in all states."""
    first = states[0].grouping
    return all(state.grouping is None if first is None else first.same_order(state.grouping) for state in states[1:])


def _together(parts: Sequence[Alive], state: SortedState) -> Alive:
    if not parts:
        return Alive(empty_elements(state.schema), NONE)
    return Alive(concatenate([p.elements for p in parts]), np.concatenate([p.hashes for p in parts]))
