"""What of some states lies within a slice of time, range of hashes by range of hashes.

Rows that must be looked at together have equal hashes in all states of an operator, so every range of hashes can be
answered for by itself. What is held in memory is then a range of what is alive, not all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from midstream.operators.elements import Elements, Hashes, concatenate, empty_elements
from midstream.operators.state.portions import cut_at, hash_bounds
from midstream.operators.state.segment import Segment
from midstream.operators.state.sorted_state import SortedState

NONE = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class Alive:
    """Elements of a state, clipped to a slice, and the hashes they are stored by; runs in order of hash."""

    elements: Elements
    hashes: Hashes

    def __len__(self) -> int:
        return len(self.hashes)


def alive_by_range(
    states: Sequence[SortedState], start: int, end: int, most: int | None = None
) -> Iterator[list[Alive]]:
    """What each state holds of a range of hashes within `[start, end)`, of about `most` bytes together at a time."""
    reached = [[s for s in state.segments if s.latest_to > start and s.earliest_from < end] for state in states]
    everything = [segment for segments in reached for segment in segments]
    bounds = NONE if most is None or not _one_order(states) else hash_bounds(everything, most)
    cuts = {id(segment): cut_at(segment, bounds) for segment in everything}
    for i in range(len(bounds) + 1):
        found = []
        for state, segments in zip(states, reached, strict=True):
            parts = [_within(s, cuts[id(s)][i], cuts[id(s)][i + 1], start, end) for s in segments]
            found.append(_together([part for part in parts if len(part)], state))
        if any(map(len, found)):
            yield found


def _one_order(states: Sequence[SortedState]) -> bool:
    """Whether equal keys have equal hashes in all states."""
    first = states[0].grouping
    return all(state.grouping is None if first is None else first.same_order(state.grouping) for state in states[1:])


def _within(segment: Segment, first: int, last: int, start: int, end: int) -> Alive:
    """The elements at some positions that reach into a slice, clipped to it."""
    elements, hashes = segment.elements.slice(first, last - first), segment.hashes[first:last]
    reaching = (elements.valid_to > start) & (elements.valid_from < end)
    if not reaching.all():
        rows = np.flatnonzero(reaching)
        elements, hashes = elements.take(rows), hashes.take(rows)
    validity = np.maximum(elements.valid_from, start), np.minimum(elements.valid_to, end)
    return Alive(elements.with_validity(*validity).without_hashes(), hashes)


def _together(parts: Sequence[Alive], state: SortedState) -> Alive:
    if not parts:
        return Alive(empty_elements(state.schema), NONE)
    return Alive(concatenate([p.elements for p in parts]), np.concatenate([p.hashes for p in parts]))
