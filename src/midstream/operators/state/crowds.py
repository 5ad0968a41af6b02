"""Where segments overlap: ranges of hashes in which several of them have rows.

Ranges are halves of halves of all hashes: what was merged of one ends where the next one begins, whoever looks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from midstream.operators.state.segment import Segment

HASHES = 2**64

Run = tuple[Segment, int, int]
"""A segment and the positions of some of its elements."""


class Crowd(NamedTuple):
    """Segments, the parts of them that are to become one, and what stays of them beside it."""

    segments: Sequence[Segment]
    parts: Sequence[Segment]
    stays: Sequence[Segment] = ()

    @staticmethod
    def of(segments: Sequence[Segment]) -> Crowd:
        """Segments that become one as they are."""
        return Crowd(segments, segments)


def overlapping(segments: Sequence[Segment]) -> bool:
    """Whether a hash may be in two of some segments."""
    return _overlapping([(segment, 0, len(segment)) for segment in segments])


def lowest_crowd(segments: Sequence[Segment], most: int, least: int = 2) -> Crowd | None:
    """The lowest range of about so many rows in which so many segments overlap; None if they do nowhere.

    Of more than two only those are taken that are of like size there.
    """
    return _lowest([(segment, 0, len(segment)) for segment in segments], (0, HASHES), most, least)


def _lowest(runs: list[Run], within: tuple[int, int], most: int, least: int) -> Crowd | None:
    if len(runs) < least:
        return None
    ranges = [(int(s.hashes[first]), int(s.hashes[end - 1])) for s, first, end in runs]
    if _rows(runs) > most and min(ranges)[0] < max(last for _, last in ranges):
        middle = sum(within) // 2
        cuts = [first + int(s.hashes[first:end].searchsorted(np.uint64(middle))) for s, first, end in runs]
        low = [(s, first, cut) for (s, first, _), cut in zip(runs, cuts, strict=True) if first < cut]
        high = [(s, cut, end) for (s, _, end), cut in zip(runs, cuts, strict=True) if cut < end]
        return _lowest(low, (within[0], middle), most, least) or _lowest(high, (middle, within[1]), most, least)
    runs = sorted(runs, key=lambda run: run[2] - run[1])
    while least > 2 and 2 * _rows(runs[-1:]) > _rows(runs):
        runs.pop()
    if len(runs) < least or not _overlapping(runs):
        return None
    below = [s.part(0, first, (0, within[0])) for s, first, _ in runs if first]
    above = [s.part(end, len(s), (within[1], HASHES)) for s, _, end in runs if end < len(s)]
    return Crowd([s for s, *_ in runs], [s.part(first, end, within) for s, first, end in runs], below + above)


def _rows(runs: Sequence[Run]) -> int:
    return sum(end - first for _, first, end in runs)


def _overlapping(runs: Sequence[Run]) -> bool:
    ranges = sorted((int(s.hashes[first]), int(s.hashes[end - 1])) for s, first, end in runs)
    return any(after[0] <= before[1] for before, after in pairwise(ranges))
