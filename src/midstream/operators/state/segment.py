"""A segment: an immutable run of elements sorted by key hash, which knows its time range.

Because it is sorted, looking up a sorted batch is a merge-like binary search; because a partition group is a range of
hashes, moving a group is slicing; because it knows its latest end, it expires as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from midstream.operators.elements import Elements, Hashes, Indices, concatenate, rows_without_columns
from midstream.operators.sorting import hash_order

HASH, FROM, TO = "#hash", "#from", "#to"


@dataclass(frozen=True, slots=True)
class Segment:
    """Elements sorted by hash, with bounds of their validity, their time bucket and the append that made them.

    `place` is where a store keeps the segment; None while it exists only in memory.
    """

    elements: Elements
    hashes: Hashes
    bucket: int
    born: int
    earliest_from: int
    earliest_to: int
    latest_to: int
    place: str | None = None

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def bytes(self) -> int:
        """The size of its columns, hashes and times."""
        return int(self.elements.columns.nbytes) + 24 * len(self)

    def to_batch(self) -> pa.RecordBatch:
        """The segment as one Arrow batch, ready for a file; nothing is copied."""
        columns = self.elements.columns
        arrays = [pa.array(self.hashes), pa.array(self.elements.valid_from), pa.array(self.elements.valid_to)]
        names = [HASH, FROM, TO, *columns.schema.names]
        return pa.RecordBatch.from_arrays([*arrays, *columns.columns], names=names)


def make_segment(elements: Elements, hashes: Hashes, bucket: int, born: int, place: str | None = None) -> Segment:
    """A segment of elements that are sorted by hash already."""
    return Segment(
        elements,
        hashes,
        bucket,
        born,
        int(elements.valid_from.min()),
        int(elements.valid_to.min()),
        int(elements.valid_to.max()),
        place,
    )


def segment_from_batch(batch: pa.RecordBatch, bucket: int, born: int, place: str | None = None) -> Segment:
    """A segment as it was written by `to_batch`; memory-mapped columns stay where they are."""
    hashes = batch.column(0).to_numpy(zero_copy_only=True)
    valid_from, valid_to = (batch.column(i).to_numpy(zero_copy_only=True) for i in (1, 2))
    names = batch.schema.names[3:]
    columns = batch.select(names) if names else rows_without_columns(batch.num_rows)
    return make_segment(Elements(columns, valid_from, valid_to), hashes, bucket, born, place)


def sort_by_hash(elements: Elements, hashes: Hashes) -> tuple[Elements, Hashes]:
    """Elements and their shortened hashes in order of hash; the order of equal hashes stays."""
    order, ordered = hash_order(hashes)
    return elements.take(order), ordered


def merge(segments: list[Segment], alive_after: int) -> Segment | None:
    """One segment with all elements that are valid at or after an instant; none if nothing is left."""
    parts = [s.elements for s in segments]
    hashes = np.concatenate([s.hashes for s in segments])
    together = concatenate([replace(p, hashes=None, hashed=frozenset()) for p in parts])
    order = np.argsort(hashes, kind="stable")
    order = order[together.valid_to[order] > alive_after]
    if len(order) == 0:
        return None
    newest = max(s.born for s in segments)
    return make_segment(together.take(order), hashes[order], max(s.bucket for s in segments), newest)


def matches(probes: Hashes, hashes: Hashes) -> tuple[Indices, Indices, Indices]:
    """Which probes occur among the hashes: their positions, the first position of each there, and how often it occurs.

    Both arrays must be sorted.
    """
    if len(hashes) == 0 or len(probes) == 0:
        none = np.empty(0, np.intp)
        return none, none, none
    low = np.searchsorted(hashes, probes)
    np.minimum(low, len(hashes) - 1, out=low)
    hit = np.flatnonzero(hashes[low] == probes)
    low = low[hit]
    return hit, low, np.searchsorted(hashes, probes[hit], side="right") - low


def expand(hit: Indices, low: Indices, counts: Indices) -> tuple[Indices, Indices]:
    """All pairs (position in probes, position in hashes) of matches."""
    total = int(counts.sum())
    if total == len(hit):
        return hit, low
    ends = np.cumsum(counts)
    offsets = np.arange(total) - np.repeat(ends - counts, counts)
    return np.repeat(hit, counts), np.repeat(low, counts) + offsets


def pairs(probes: Hashes, hashes: Hashes) -> tuple[Indices, Indices]:
    """All pairs of positions with equal hash in two sorted arrays."""
    return expand(*matches(probes, hashes))
