"""A sorted state: the elements a sub-query's result holds, as segments by time bucket.

A batch appends one small segment per bucket it touches. Compaction merges segments of one bucket only, so that whole
segments expire: within a bucket in tiers, so that a row is merged a logarithmic number of times, and what overlaps
once the bucket has rested. Large segments are merged by ranges of hashes, one with each append, so that no batch waits
for more; where segments overlap tells what is left. What the state holds is named by its id, the key it is sorted by
stands apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar
from zlib import crc32

import numpy as np
import pyarrow as pa

from midstream.algebra.time import INFINITY
from midstream.operators.elements import Elements, Hashes, Indices, Key, Ticks, concatenate, empty_elements
from midstream.operators.hashing import hash_order
from midstream.operators.ordering import stable_order
from midstream.operators.state.crowds import Crowd, lowest_crowd, overlapping
from midstream.operators.state.narrowing import RowTests
from midstream.operators.state.segment import Grouping, Segment, make_segment, merge, numbered_segment, pairs

Kind = TypeVar("Kind", bound=Hashable)

TIER = 4
"""How many segments of like size are merged into one, and how much larger the next size is."""

BUCKETS = 4
"""Into how many buckets the longest validity is cut."""

SPAN = 1
"""How many buckets one appended segment may span."""

RESTED = 2
"""After how many appends elsewhere a bucket counts as closed."""

MERGE_ROWS = 65_536
"""How many rows one call of `compact` may move beyond four times what was just appended."""

PARTS = 4
"""Into how many ranges of hashes the rows of a bucket are cut, about two times: each segment costs every probe."""


@dataclass(slots=True)
class Allowance:
    """How many rows may still be merged, by states that share it: no batch waits for all that is due in all of them."""

    rows: int = 2**62
    left: int = 2**62

    def refill(self, rows: int) -> None:
        """Allows for what so many rows lead to that states take, in the long run, and for a third beyond."""
        self.rows = self.left = MERGE_ROWS // 8 + 4 * rows

    def covers(self, rows: int) -> bool:
        """Whether so many may be merged, which are then taken off; some always may."""
        if rows > self.left and self.left < self.rows:
            return False
        self.left -= rows
        return True


@dataclass(slots=True)
class SortedState:
    """Segments of one state; `longest` is the longest validity its elements can have (None: no bound)."""

    id: str
    key: Key
    schema: pa.Schema
    longest: int | None
    segments: list[Segment] = field(default_factory=list)
    appends: int = 0
    buckets: ClassVar[int] = BUCKETS
    """Into how many buckets the longest validity is cut."""
    least_split: ClassVar[int] = 2_048
    """How many rows an append must have to be worth more than one segment."""
    dead_share: ClassVar[float] = 0.5
    """The share of expired rows at which a closed segment is rewritten, unless it will soon be gone as a whole."""
    rested: ClassVar[int] = RESTED
    tier: ClassVar[int] = TIER
    rests: ClassVar[bool] = False
    """Whether nobody looks into it, as a rule."""
    allowance: Allowance = field(default_factory=Allowance)
    apart: dict[int, list[int]] = field(default_factory=dict)
    """The segments of closed buckets that are known not to overlap."""
    grouping: Grouping | None = None
    """Of which partition group its rows are, if it is sorted by group."""
    most_merged: int | None = None
    """How many bytes may be merged into one segment, where memory is bounded."""
    tests: RowTests | None = None
    """Which conditions its rows meet, where that is known."""

    @property
    def bucket_width(self) -> int | None:
        """The ticks a bucket spans; None if nothing ever expires."""
        return None if self.longest is None else max(1, self.longest // self.buckets)

    @property
    def rows(self) -> int:
        """How many elements are stored, expired ones included."""
        return sum(map(len, self.segments))

    @property
    def bytes(self) -> int:
        """The size of what is stored."""
        return sum(segment.bytes for segment in self.segments)

    def append(self, elements: Elements, hashes: Hashes) -> None:
        """Stores elements that are sorted by hash."""
        self._add(elements, hashes, None)

    def insert(self, elements: Elements, hashes: Hashes) -> None:
        """Stores elements in any order."""
        order, ordered = hash_order(hashes)
        self._add(elements, ordered, order)

    def expire(self, frontier: int) -> None:
        """Forgets segments of which nothing is valid at or after the frontier."""
        self.segments = [segment for segment in self.segments if segment.latest_to > frontier]

    def compact(self, frontier: int, appended: int = 0) -> None:
        """Merges what is due, as far as it is allowed for, and forgets what has ended."""
        self.expire(frontier)
        if len(self.segments) < 2 and self.longest is not None:
            return
        for due in self._due(frontier, MERGE_ROWS + TIER * appended):
            too_large = self.most_merged is not None and sum(part.bytes for part in due.parts) > self.most_merged
            urgent = len(due.parts) >= 4 * self.tier
            if not too_large and (self.allowance.covers(sum(map(len, due.parts))) or urgent):
                self._replace(due.segments, [self.merged(due.parts, frontier), *due.stays])

    def merged(self, segments: Sequence[Segment], frontier: int) -> Segment | None:
        """One segment of what still counts of some."""
        return merge(segments, frontier)

    def times(self, elements: Elements) -> Ticks:
        """The instants by which elements fall into buckets."""
        return elements.valid_from

    def alive(self, start: int, end: int = INFINITY, hashes: Hashes | None = None) -> Elements:
        """All elements that are valid somewhere in `[start, end)`, or those of some hashes, in no particular order."""
        parts = []
        for segment in self.segments:
            if segment.latest_to <= start or segment.earliest_from >= end:
                continue
            part = segment.elements if hashes is None else segment.take(pairs(hashes, segment.hashes)[1])
            if segment.earliest_to <= start or end != INFINITY:
                part = part.where((part.valid_to > start) & (part.valid_from < end))
            if len(part):
                parts.append(part)
        return concatenate(parts) if parts else empty_elements(self.schema)

    def replace_segments(self, segments: Sequence[Segment]) -> None:
        """Takes over the segments of another state of equal content."""
        self.segments = list(segments)
        self.appends = max([self.appends, *(segment.born for segment in segments)])

    def replace_segment(self, segment: Segment, rows: Indices) -> None:
        """Keeps only some rows of a segment, by position in order."""
        elements, hashes = segment.elements.without_hashes().take(rows), segment.hashes.take(rows)
        self._replace([segment], [make_segment(elements, hashes, segment.bucket, segment.born) if len(rows) else None])

    def reopen(self, segments: Sequence[Segment]) -> None:
        """Holds segments as a new state would that takes them over."""
        self.appends = 0
        self.replace_segments(segments)

    def _add(self, elements: Elements, hashes: Hashes, order: Indices | None) -> None:
        """Stores elements in an order, in which they have these hashes; they are moved once."""
        if len(elements) == 0:
            return
        self.appends += 1
        buckets, places = self._buckets(self.times(elements))
        ends = np.array([len(elements)])
        if places is not None:
            by_place = stable_order(places if order is None else places.take(order))
            order = by_place if order is None else order.take(by_place)
            hashes, ends = hashes.take(by_place), np.cumsum(np.bincount(places))
        if order is not None:
            elements = elements.take(order)
        start = 0
        for bucket, end in zip(buckets, ends.tolist(), strict=True):
            if start < end:
                part = elements.slice(start, end - start)
                self.segments.append(make_segment(part, hashes[start:end], bucket, self.appends))
            start = end

    def _buckets(self, times: Ticks) -> tuple[Sequence[int], Indices | None]:
        """The buckets of instants, and for each instant the number of its bucket, if there are several."""
        width = self.bucket_width
        if width is None:
            return [0], None
        shift = crc32(self.id.encode()) % width  # buckets of other states are closed with other batches
        first, last = (int(times.min()) + shift) // width, (int(times.max()) + shift) // width
        if last - first <= SPAN or len(times) < self.least_split:
            # More segments cost every probe; a few more expired rows cost almost nothing.
            return [last], None
        # A batch much longer than the window must not fall into a crowd of tiny segments.
        step = max(SPAN, (last - first) // min(2 * BUCKETS, len(times) // self.least_split) + 1)
        lowest, highest = first // step, last // step
        return range(step * lowest + step - 1, step * (highest + 1), step), (times + shift) // (step * width) - lowest

    def _due(self, frontier: int, most: int) -> list[Crowd]:
        """What is due to become one segment, in each bucket: about so many rows, unless more of them have one hash."""
        due: list[Crowd | None] = []
        turn = (self.appends + crc32(self.id.encode())) % self.tier == 0  # other states merge with other batches
        least = self.tier if turn else 2 * self.tier
        for segments in _alike(self.segments, [segment.bucket for segment in self.segments]).values():
            sizes = [len(segment.hashes) for segment in segments]
            if self.longest is None or max(s.born for s in segments) > self.appends - self.rested:
                tiers = _alike(segments, [-1 if 2 * size > most else size.bit_length() // 2 for size in sizes])
                large = tiers.pop(-1, [])
                due += [Crowd.of(_within(tier, most)) for tier in tiers.values() if len(tier) >= least]
                if len(large) >= 2 * self.tier:
                    due.append(lowest_crowd(large, self._range(segments, most), 2 * self.tier))
            elif len(segments) > 1 and sum(sizes) <= most and (_origins(segments) > 1 or len(segments) > TIER):
                due.append(Crowd.of(segments))
            elif len(segments) > 1 and (crowd := self._overlap(segments, most)):
                due.append(crowd)
            elif _origins(segments) == len(segments):
                due += [Crowd.of([one]) for one in segments if self._outlives_its_bucket(one, frontier)]
        return [crowd for crowd in due if crowd is not None]

    def _overlap(self, segments: Sequence[Segment], most: int) -> Crowd | None:
        """Where closed segments of a bucket overlap; if nowhere, that is remembered as long as they are the same."""
        bucket, these = segments[0].bucket, [id(segment) for segment in segments]
        if self.apart.get(bucket) == these:
            return None
        found = lowest_crowd(segments, self._range(segments, most)) if overlapping(segments) else None
        if found is None:
            if len(self.apart) > 2 * BUCKETS:
                self.apart.clear()  # buckets go
            self.apart[bucket] = these
        return found

    def _range(self, segments: Sequence[Segment], most: int) -> int:
        """How many rows of a bucket are merged at once, in a range of hashes: half of `most`, unless it has many."""
        rows = sum(map(len, segments))
        wanted = max(most, rows // PARTS) // 2
        if self.most_merged is None:
            return wanted
        return min(wanted, self.most_merged * rows // max(1, sum(segment.bytes for segment in segments)))

    def _outlives_its_bucket(self, segment: Segment, frontier: int) -> bool:
        """Whether much of a closed segment has expired, and some of it will not for longer than a bucket spans."""
        lasts = segment.latest_to > frontier + (self.bucket_width or 0)
        return lasts and _dead_share(segment, frontier) > self.dead_share

    def _replace(self, old: Sequence[Segment], new: Iterable[Segment | None]) -> None:
        gone = {id(segment) for segment in old}
        self.segments = [segment for segment in self.segments if id(segment) not in gone]
        self.segments += [segment for segment in new if segment is not None]


class RestingState(SortedState):
    """Rows that are kept for whoever may ask for them later: as they came, with hashes that say nothing of them.

    They are merged late: that segments are few matters to manifests alone.
    """

    rests = True
    tier = 16
    rested = least_split = 2**62

    def append(self, elements: Elements, hashes: Hashes) -> None:
        if len(elements):
            self.appends += 1
            width = self.bucket_width
            bucket = 0 if width is None else int(elements.valid_from[-1]) // width
            self.segments.append(numbered_segment(elements, bucket, self.appends))

    insert = append

    def compact(self, frontier: int, appended: int = 0) -> None:
        if len(self.segments) >= self.tier:
            super().compact(frontier, appended)

    def _due(self, frontier: int, most: int) -> list[Crowd]:
        alike = _alike(self.segments, [(s.bucket, len(s).bit_length() // 2) for s in self.segments]).values()
        return [Crowd.of(tier[: self.tier]) for tier in alike if len(tier) >= self.tier and len(tier[0]) < MERGE_ROWS]

    def merged(self, segments: Sequence[Segment], frontier: int) -> Segment | None:
        ordered = sorted(segments, key=lambda segment: segment.born)
        together = [segment.elements.without_hashes() for segment in ordered]
        return numbered_segment(concatenate(together), ordered[-1].bucket, ordered[-1].born)


def _origins(segments: Sequence[Segment]) -> int:
    """How many segments some are parts of."""
    return len({id(segment) if segment.origin is None else segment.origin for segment in segments})


def _within(segments: Sequence[Segment], most: int) -> list[Segment]:
    """The first of some segments that are so many rows together, two at least."""
    rows = np.cumsum([len(segment) for segment in segments])
    return list(segments[: max(2, int(rows.searchsorted(most, side="right")))])


def _alike(segments: Sequence[Segment], kinds: Iterable[Kind]) -> dict[Kind, list[Segment]]:
    """Segments by their kinds."""
    found: dict[Kind, list[Segment]] = defaultdict(list)
    for segment, kind in zip(segments, kinds, strict=True):
        found[kind].append(segment)
    return found


def _dead_share(segment: Segment, frontier: int) -> float:
    if segment.earliest_to > frontier or segment.narrowed is not None:
        return 0.0  # what is narrowed is not looked through again and again
    return float(np.count_nonzero(segment.elements.valid_to <= frontier)) / len(segment)


def unify(equal: Iterable[Sequence[tuple[int, int, SortedState]]]) -> None:
    """Lets equal states hold the same segments: those of the one that has forgotten least, where none is missed.

    Each comes with the instant from which on it is whole, and the one up to which its owner has forgotten.
    """
    for states in equal:
        whole_from, _, first = min(states, key=lambda known: known[0])
        for _, forgotten, other in states:
            if other is not first and whole_from <= forgotten:
                other.replace_segments(first.segments)
