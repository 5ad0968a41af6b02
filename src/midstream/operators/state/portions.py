"""A state's content some at a time, without copying: what lies in mapped files stays there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from midstream.operators.elements import Elements, Hashes
from midstream.operators.state.segment import Segment, make_segment


def slices(elements: Elements, size: int, most: int) -> Iterator[Elements]:
    """Runs of elements that are so many bytes together, of about so many bytes at most."""
    rows = max(1, len(elements) * most // max(1, size))
    for start in range(0, len(elements), rows):
        yield elements.slice(start, min(rows, len(elements) - start))


def hash_bounds(segments: Sequence[Segment], most: int) -> Hashes:
    """The hashes at which to cut segments into ranges of about so many bytes each; none if they are fewer bytes."""
    count = sum(segment.bytes for segment in segments) // max(1, most) + 1
    if count < 2:
        return np.empty(0, np.uint64)
    rows = sum(map(len, segments))
    sample = np.sort(np.concatenate([s.hashes[:: max(1, rows // (64 * count))] for s in segments]))
    return np.unique(sample[[len(sample) * i // count for i in range(1, count)]])


def cut_at(segment: Segment, bounds: Hashes) -> list[int]:
    """The positions at which bounds cut a segment, with its beginning and its end."""
    return [0, *np.searchsorted(segment.hashes, bounds).tolist(), len(segment)]


def parts_by_hash(segments: Sequence[Segment], most: int) -> Iterator[list[Segment]]:
    """Segments cut at the same hashes, so that a tuple is in one part only, of about so many bytes each."""
    bounds = hash_bounds(segments, most)
    cuts = [cut_at(s, bounds) for s in segments]
    for i in range(len(bounds) + 1):
        parts = [(s, cut[i], cut[i + 1]) for s, cut in zip(segments, cuts, strict=True) if cut[i] < cut[i + 1]]
        yield [make_segment(s.elements.slice(a, b - a), s.hashes[a:b], s.bucket, s.born) for s, a, b in parts]
