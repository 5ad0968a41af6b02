"""A state's content some at a time, without copying: what lies in mapped files stays there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from midstream.operators.elements import Elements, Hashes, Indices, concatenate
from midstream.operators.state.segment import Segment, make_segment, pairs


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


def taken(found: Sequence[tuple[Segment, Indices]], most: int) -> Iterator[Elements]:
    """Elements of segments by position: together, unless they are more than about so many bytes."""
    if sum(len(at) * s.bytes // len(s) for s, at in found) <= most:
        yield concatenate([s.take(at) for s, at in found])
        return
    for segment, at in found:
        step = max(1, len(segment) * most // segment.bytes)
        for start in range(0, len(at), step):
            yield segment.take(at[start : start + step])


def met(mine: Sequence[Segment], theirs: Sequence[Segment], most: int) -> Iterator[Elements]:
    """The elements that have a hash which others have too, of about so many bytes at a time.

    Of all elements only the hashes are looked at, and those of a range of them at a time.
    """
    bounds = hash_bounds([*mine, *theirs], most)
    here, there = ([(s.hashes, cut_at(s, bounds)) for s in segments] for segments in (mine, theirs))
    for i in range(len(bounds) + 1):
        own, others = ([hashes[cut[i] : cut[i + 1]] for hashes, cut in side] for side in (here, there))
        common = _common(own, others)
        found = [(s, cut[i] + pairs(common, some)[1]) for s, (_, cut), some in zip(mine, here, own, strict=True)]
        if found := [(segment, at) for segment, at in found if len(at)]:
            yield from taken(found, most)


def _common(mine: Sequence[Hashes], theirs: Sequence[Hashes]) -> Hashes:
    """The hashes that occur here and there, in order and each once; what is odd is theirs, as hashes are shortened."""
    hashes: Hashes = np.concatenate([*mine, *(some | np.uint64(1) for some in theirs)])
    hashes.sort()
    return hashes[:-1].compress(np.diff(hashes) == 1)
