"""A segment: an immutable run of elements sorted by key hash, which knows its time range.

Because it is sorted, looking up a sorted batch is a merge-like binary search; because a partition group is a range of
hashes, moving a group is slicing; because it knows its latest end, it expires as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.algebra.partition import Partition
from midstream.operators.elements import Elements, Hashes, Indices, Key, Ticks, concatenate
from midstream.operators.group_hash import group_hash
from midstream.operators.hashing import POSITION_BITS, hash_columns, hash_order
from midstream.operators.state.narrowing import Narrowing
from midstream.operators.vectors import Numbers, numbers_of, storage_of

MANY = 2_000
"""From how many probes on it pays to look up the fewer of two sides, each value once."""

Bits = npt.NDArray[np.uint8]

REMEMBERED, SOUGHT, RARE = 1_000, 256, 0.25
"""From how many rows of a segment, and of hashes that are sought in it, on bits are worth it.

They are if fewer are sought than it has rows, and at most such a part of them is found.
"""

BITS = 8
"""How many bits a row has; so many in a byte, too."""

_LOW = np.uint64(POSITION_BITS)  # hashes are shortened: below there is nothing
_EACH = np.left_shift(np.uint8(1), np.arange(8, dtype=np.uint8))

HASH, FROM, TO = "#hash", "#from", "#to"


@dataclass(frozen=True, slots=True)
class Segment:
    """Elements sorted by hash, with bounds of their validity, their time bucket and the append that made them.

    `place` is where a store keeps the segment; None while it exists only in memory. `origin` is the stored segment of
    which it is a part; None if it is no part of another. Hashes that are `numbered` only number its elements. Of a
    stored segment it may be what is left `within` a range of hashes. What is `stored` for a wider state is `narrowed`.
    """

    stored: Elements
    hashes: Hashes
    bucket: int
    born: int
    earliest_from: int
    earliest_to: int
    latest_to: int
    place: str | None = None
    origin: str | None = None
    numbered: bool = False
    within: tuple[int, int] | None = None
    narrowed: Narrowing | None = None
    views: dict[int, Numbers | None] = field(default_factory=dict, compare=False, repr=False)
    sizes: list[int] = field(default_factory=list, compare=False, repr=False)
    bits: list[npt.NDArray[np.uint8]] = field(default_factory=list, compare=False, repr=False)
    """What tells most hashes that it does not have, once that was worth finding out."""

    @property
    def elements(self) -> Elements:
        """Its elements; what was stored for a wider state is looked through for them."""
        return self.stored if self.narrowed is None else self.narrowed.applied(self.stored)

    def run(self, start: int, end: int) -> Elements:
        """Those of its elements that lie between two positions."""
        stored = self.stored.slice(start, end - start)
        return stored if self.narrowed is None else self.narrowed.slice(start, end - start).applied(stored)

    def take(self, at: Indices) -> Elements:
        """Some of its elements, by position."""
        stored = self.stored.take(at)
        since, until = stored.valid_from, stored.valid_to
        return stored if self.narrowed is None else stored.with_validity(since, self.narrowed.ends(since, until, at))

    def validity(self, at: Indices) -> tuple[Ticks, Ticks]:
        """From when to when some elements are valid; what has ended before it began is none of them."""
        since, until = self.stored.valid_from.take(at), self.stored.valid_to.take(at)
        return since, until if self.narrowed is None else self.narrowed.ends(since, until, at)

    def view(self, column: int) -> Numbers | None:
        """A column's numbers where it has nothing but numbers, made once; None otherwise."""
        if column not in self.views:
            values = self.stored.columns.column(column)
            plain = values.null_count == 0 and storage_of(values.type) is not None
            self.views[column] = numbers_of(values) if plain else None
        return self.views[column]

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def bytes(self) -> int:
        """The size of its columns, hashes and times, worked out once."""
        if not self.sizes:
            self.sizes.append(int(self.stored.columns.nbytes) + 24 * len(self))
        return self.sizes[0]

    def part(self, start: int, end: int, within: tuple[int, int]) -> Segment:
        """What is between two positions: its elements with hashes `within` a range."""
        if end - start == len(self):
            return self
        if self.within is not None:
            within = max(within[0], self.within[0]), min(within[1], self.within[1])
        stored, hashes = self.stored.slice(start, end - start), self.hashes[start:end]
        kept = None if self.place is None else within
        narrowed = None if self.narrowed is None else self.narrowed.slice(start, end - start)
        part = replace(self, stored=stored, hashes=hashes, within=kept, narrowed=narrowed, views={}, sizes=[], bits=[])
        return replace(part, origin=self.origin or self.place)

    def to_batch(self) -> pa.RecordBatch:
        """The segment as one Arrow batch, ready for a file; nothing is copied."""
        elements = self.elements
        columns = elements.columns
        arrays = [pa.array(self.hashes), pa.array(elements.valid_from), pa.array(elements.valid_to)]
        names = [HASH, FROM, TO, *columns.schema.names]
        return pa.RecordBatch.from_arrays([*arrays, *columns.columns], names=names)


def make_segment(elements: Elements, hashes: Hashes, bucket: int, born: int, numbered: bool = False) -> Segment:
    """A segment of elements that are sorted by hash already."""
    since, until, lasting = elements.valid_from, elements.valid_to, elements.lasting
    first = int(since.min())
    ends = (int(until.min()), int(until.max())) if lasting is None else (first + lasting, int(since.max()) + lasting)
    return Segment(elements, hashes, bucket, born, first, *ends, numbered=numbered)


def numbered_segment(elements: Elements, bucket: int, born: int) -> Segment:
    """A segment of elements in the order in which they are."""
    return make_segment(elements.without_hashes(), numbering(len(elements)), bucket, born, numbered=True)


def merge(segments: Sequence[Segment], alive_after: int) -> Segment | None:
    """One segment with all elements that are valid at or after an instant; none if nothing is left."""
    together = concatenate([s.elements.without_hashes() for s in segments])
    order, hashes = hash_order(np.concatenate([s.hashes for s in segments]))
    alive = together.valid_to.take(order) > alive_after
    if not alive.all():
        order, hashes = order[alive], hashes[alive]
    if len(order) == 0:
        return None
    newest = max(s.born for s in segments)
    return make_segment(together.take(order), hashes, max(s.bucket for s in segments), newest)


Match = tuple[Indices, Indices, Indices]


def matches(probes: Hashes, hashes: Hashes) -> Match | None:
    """Which probes occur among the hashes: their positions, the first position of each there, and the end of its run.

    Both arrays must be sorted; None if nothing occurs.
    """
    if len(hashes) == 0 or len(probes) == 0:
        return None
    if MANY < len(probes) >= len(hashes):
        return _matches_of_few(probes, hashes)
    low = hashes.searchsorted(probes)
    np.minimum(low, len(hashes) - 1, out=low)
    hit = (hashes.take(low) == probes).nonzero()[0]
    if len(hit) == 0:
        return None
    return hit, low.take(hit), hashes.searchsorted(probes.take(hit), side="right")


def _matches_of_few(probes: Hashes, hashes: Hashes) -> Match | None:
    """The same, by looking the hashes up among the probes: each different one once."""
    starts = np.append(True, hashes[1:] != hashes[:-1]).nonzero()[0]
    different = hashes.take(starts)
    first = probes.searchsorted(different)
    np.minimum(first, len(probes) - 1, out=first)
    occurring = (probes.take(first) == different).nonzero()[0]
    if len(occurring) == 0:
        return None
    first = first.take(occurring)
    counts = probes.searchsorted(different.take(occurring), side="right") - first
    low, high = starts.take(occurring), np.append(starts[1:], len(hashes)).take(occurring)
    ends = counts.cumsum()
    if ends[-1] == len(first):
        return first, low, high
    hit = np.arange(ends[-1]) + (first + counts - ends).repeat(counts)
    return hit, low.repeat(counts), high.repeat(counts)


class Sought:
    """Hashes in order, looked for in one segment after the other, most of which have few of them.

    A long segment remembers a bit of each of its hashes: those whose bit is not set need not be looked for.
    """

    def __init__(self, hashes: Hashes) -> None:
        self.hashes = hashes

    def within(self, segment: Segment) -> Match | None:
        """Which of them occur in a segment, as `matches` tells."""
        hashes, count = segment.hashes, len(self.hashes)
        if len(hashes) < REMEMBERED or count < SOUGHT:
            return matches(self.hashes, hashes)
        first, end = int(self.hashes.searchsorted(hashes[0])), int(self.hashes.searchsorted(hashes[-1], side="right"))
        if 2 * (end - first) < count:  # it has a range of all hashes
            found = matches(self.hashes[first:end], hashes)
            return None if found is None else (found[0] + first, *found[1:])
        if segment.bits:
            byte, bit = self._places
            seen = segment.bits[0].take(byte & np.int64(len(segment.bits[0]) - 1)) & bit
            kept = (seen != 0).nonzero()[0]
            if 2 * len(kept) < count:
                found = matches(self.hashes.take(kept), hashes)
                return None if found is None else (kept.take(found[0]), *found[1:])
            segment.bits.clear()
        found = matches(self.hashes, hashes)
        if count < len(hashes) and (found is None or len(found[0]) < RARE * count):
            segment.bits.append(_bits(hashes))
        return found

    @cached_property
    def _places(self) -> tuple[Indices, Bits]:
        """In which byte and at which bit of it each is looked up."""
        low = (self.hashes >> _LOW).view(np.int64)
        return low >> 3, _EACH.take(low & 7)


def _bits(hashes: Hashes) -> Bits:
    size = 1 << (BITS * len(hashes) - 1).bit_length()
    cells = np.zeros(size, np.bool_)
    cells[(hashes >> _LOW) & np.uint64(size - 1)] = True
    return np.packbits(cells, bitorder="little")


def expand(hit: Indices, low: Indices, high: Indices) -> tuple[Indices, Indices, Indices]:
    """All pairs (position in probes, position in hashes) of matches, and how many each match has."""
    counts = high - low
    total = int(counts.sum())
    if total == len(hit) and bool((counts == 1).all()):
        return hit, low, counts
    ends = counts.cumsum()
    offsets = np.arange(total) - (ends - counts - low).repeat(counts)
    return hit.repeat(counts), offsets, counts


def pairs(probes: Hashes, hashes: Hashes) -> tuple[Indices, Indices]:
    """All pairs of positions with equal hash in two sorted arrays."""
    found = matches(probes, hashes)
    if found is None:
        none = np.empty(0, np.intp)
        return none, none
    here, there, _ = expand(*found)
    return here, there


@dataclass(frozen=True, slots=True)
class Grouping:
    """The columns that say of which partition group a row is, and how many bits of their hash do."""

    key: Key
    bits: int

    @staticmethod
    def of(partition: Partition | None, names: Sequence[str]) -> Grouping | None:
        """The grouping of rows with some columns; None if these do not say the group."""
        if partition is None:
            return None
        key = min((key for key in partition.keys if set(key) <= set(names)), default=None)
        return None if key is None else Grouping(key, partition.bits)

    def same_order(self, other: Grouping | None) -> bool:
        """Whether states of equal rows in equal slots have one order."""
        return other is not None and self.bits == other.bits


def numbering(rows: int) -> Hashes:
    """Hashes that only number rows, evenly: a part of all hashes is as large a part of the rows."""
    return np.arange(rows, dtype=np.uint64) * np.uint64((2**64 - 1) // max(1, rows))


def key_hashes(rows: pa.RecordBatch, key: Key, grouping: Grouping | None) -> Hashes:
    """What a state of these rows is sorted by: the hash of a key, behind the bits of the group if it has groups."""
    plain = hash_columns([rows.column(name) for name in key]) if key else np.zeros(rows.num_rows, np.uint64)
    if grouping is None:
        return plain
    placed = group_hash([rows.column(name) for name in grouping.key])
    below = np.uint64(64 - grouping.bits)
    placed >>= below
    placed <<= below
    plain >>= np.uint64(grouping.bits)
    plain |= placed
    return plain


def known_hashes(batch: Elements, key: Key, grouping: Grouping | None) -> Hashes:
    """The same for elements, which may know the hash of that key already."""
    if batch.hashes is not None and key in batch.hashed:
        return batch.hashes
    return key_hashes(batch.columns, key, grouping)
