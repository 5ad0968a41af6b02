"""Packs: the new segments of all states of a slot in one file.

Each segment is an Arrow stream of its own at a multiple of 64 bytes, so that it is read where it lies in the mapped
file: its columns are the file's pages. Its entry knows its place, its checksum and its time range, so that opening it
reads nothing but the schema. What an entry says is checked before anything is read by it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from operator import attrgetter

import numpy as np
import pyarrow as pa

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.files import Data, Files
from midstream.checkpoint.packed import packed
from midstream.operators.elements import Hashes, Key
from midstream.operators.state.segment import Segment

ALIGNMENT = 64
ALL_HASHES = 2**64
LEAST_PACKED = 256
"""From how many rows on fewer bytes are worth the way to them."""

MAGIC = b"midstream pack 1".ljust(ALIGNMENT, b"\0")
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"

StateKey = tuple[str, Key]
"""A state's id and the key it is sorted by."""


@dataclass(frozen=True, slots=True)
class HashRange:
    """Which hashes of a stored segment an entry stands for: those in `[start, end)`.

    If the segment was stored for a wider state its rows end so many ticks `sooner` than they say (`narrowing.py`).
    """

    start: int
    end: int
    whole: int
    """How many rows the stored segment has."""
    sooner: int | None = None

    @property
    def numbers(self) -> tuple[int, ...]:
        """What it says."""
        return (self.start, self.end, self.whole, *(() if self.sooner is None else (self.sooner,)))


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """Where a segment is, and what is known of it without opening it."""

    state: str
    key: Key
    file: str
    offset: int
    length: int
    rows: int
    bytes: int
    bucket: int
    born: int
    earliest_from: int
    earliest_to: int
    latest_to: int
    checksum: int
    hashes: HashRange | None = None
    """The part of the stored segment that it is; None: all of it, as it is."""
    texts: dict[str, str] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What it is called and written as, made once, however many batches and manifests name it."""

    @property
    def text(self) -> str:
        """All that it says besides its state and its file, as JSON."""
        if "text" not in self.texts:
            part = () if self.hashes is None else self.hashes.numbers
            self.texts["text"] = ",".join(map(str, (*_numbers(self), *part)))
        return self.texts["text"]

    @property
    def place(self) -> str:
        """What its segment says of where it is kept."""
        if "place" not in self.texts:
            narrowed = "" if self.narrowed is None else f" {self.narrowed} sooner, as {self.state} by {self.key}"
            self.texts["place"] = f"{self.stored_place}{narrowed}"
        return self.texts["place"]

    @property
    def stored_place(self) -> str:
        """Where what it stands for is kept, also for a wider state."""
        return f"{self.origin}[{self.hash_from}:{self.hash_to}]" if self.is_part else self.origin

    @property
    def origin(self) -> str:
        """Where the whole segment is kept, of which it may be a part."""
        return f"{self.file}@{self.offset}"

    @property
    def is_part(self) -> bool:
        """Whether it stands for some hashes of the stored segment only."""
        return self.hashes is not None and (self.hashes.start, self.hashes.end) != (0, ALL_HASHES)

    @property
    def narrowed(self) -> int | None:
        """By how many ticks its rows end sooner than they do as they are stored, for a wider state; None: for this."""
        return None if self.hashes is None else self.hashes.sooner

    def narrowed_by(self, sooner: int, state: str, key: Key, bucket: int) -> SegmentEntry:
        """The same for a narrower state: nobody knows when the first of its rows ends."""
        known = HashRange(self.hash_from, self.hash_to, self.stored_rows, (self.narrowed or 0) + sooner)
        place, size = (self.file, self.offset, self.length), (self.rows, self.bytes)
        times = bucket, self.born, self.earliest_from, BEGINNING, self.latest_to - sooner
        return SegmentEntry(state, key, *place, *size, *times, self.checksum, known)

    @property
    def hash_from(self) -> int:
        """The first hash that it may hold."""
        return 0 if self.hashes is None else self.hashes.start

    @property
    def hash_to(self) -> int:
        """The first hash after those that it may hold."""
        return ALL_HASHES if self.hashes is None else self.hashes.end

    @property
    def stored_rows(self) -> int:
        """How many rows the stored segment has."""
        return self.rows if self.hashes is None else self.hashes.whole or self.rows

    def part(self, hash_from: int, hash_to: int) -> SegmentEntry:
        """The elements with hashes in `[hash_from, hash_to)`: a partition group moves by naming its part elsewhere.

        How many these are is guessed from the length of the range, until the part is opened.
        """
        hash_from, hash_to = max(self.hash_from, hash_from), min(self.hash_to, hash_to)
        if (hash_from, hash_to) == (self.hash_from, self.hash_to):
            return self
        share = max(0, hash_to - hash_from) / (self.hash_to - self.hash_from)
        rows, size = round(share * self.rows), round(share * self.bytes)
        return replace(self, rows=rows, bytes=size, hashes=self._range(hash_from, hash_to))

    def _range(self, hash_from: int, hash_to: int) -> HashRange:
        return HashRange(hash_from, hash_to, self.stored_rows, self.narrowed)

    def rows_among(self, hashes: Hashes) -> tuple[int, int]:
        """From where to where its rows lie among those of the stored segment."""
        if not self.is_part:
            return 0, len(hashes)
        start = int(np.searchsorted(hashes, np.uint64(self.hash_from)))
        end = int(np.searchsorted(hashes, np.uint64(self.hash_to))) if self.hash_to < ALL_HASHES else len(hashes)
        return start, max(start, end)

    def with_next(self, part: SegmentEntry) -> SegmentEntry:
        """What it and the part of the same segment that begins where it ends are together."""
        rows, size = self.rows + part.rows, self.bytes + part.bytes
        if self.hash_from == 0 and part.hash_to == ALL_HASHES and self.narrowed is None:
            return replace(self, rows=self.stored_rows, bytes=size, hashes=None)
        return replace(self, rows=rows, bytes=size, hashes=self._range(self.hash_from, part.hash_to))

    def of(self, segment: Segment) -> SegmentEntry:
        """The entry with what its segment turned out to hold; of what is left of it, if only some of its hashes are."""
        entry = self if segment.within is None else self.part(*segment.within)
        if entry.hashes is None or len(segment) == entry.rows:
            return entry
        hashes = replace(entry.hashes, whole=entry.stored_rows)
        return replace(entry, rows=len(segment), bytes=segment.bytes, hashes=hashes)


NUMBERS = tuple(f.name for f in fields(SegmentEntry) if f.type == "int")
_numbers = attrgetter(*NUMBERS)


Stored = Mapping[int, Mapping[int, Sequence[SegmentEntry]]]
"""Segments by stage, or fragment, and slot."""


def entries_in(stored: Stored) -> Iterator[SegmentEntry]:
    """All segments in all slots."""
    return (entry for slots in stored.values() for entries in slots.values() for entry in entries)


def within(entries: Iterable[SegmentEntry], hash_from: int, hash_to: int) -> list[SegmentEntry]:
    """The parts of segments with hashes in a range, of those that reach into it."""
    parts = (entry.part(hash_from, hash_to) for entry in entries)
    return [part for part in parts if part.hash_from < part.hash_to]


def joined(entries: Iterable[SegmentEntry]) -> list[SegmentEntry]:
    """Replaces parts of a stored segment that lie side by side by one entry, as when groups come back to a slot.

    Parts with a gap between them stay apart: what was in the gap may since have been merged into another segment.
    """
    found: dict[tuple[str, Key, str], list[SegmentEntry]] = {}
    for entry in entries:
        found.setdefault((entry.state, entry.key, entry.origin), []).append(entry)
    return [entry for parts in found.values() for entry in (parts if len(parts) == 1 else _side_by_side(parts))]


def _side_by_side(parts: Iterable[SegmentEntry]) -> Iterator[SegmentEntry]:
    first, *rest = sorted(parts, key=lambda part: part.hash_from)
    for part in rest:
        if first.hash_to == part.hash_from:
            first = first.with_next(part)
        else:
            yield first
            first = part
    yield first


def write_pack(files: Files, path: str, states: Mapping[StateKey, Sequence[Segment]]) -> list[SegmentEntry]:
    """Writes the segments that are not kept anywhere yet into one file; no file if there are none."""
    entries: list[SegmentEntry] = []
    pieces: list[Data] = [MAGIC]
    offset = len(MAGIC)
    for (state, key), segment in _new(states):
        content = _stream(segment)
        entries.append(_entry(segment, state, key, path, offset, content))
        end = offset + entries[-1].length
        offset = end + -end % ALIGNMENT
        pieces += [*content, bytes(offset - end)]
    if entries:
        files.write_atomic(path, pieces, point="pack", sync=False)
    return entries


def kept_entries(entries: Iterable[SegmentEntry], states: Mapping[StateKey, Sequence[Segment]]) -> list[SegmentEntry]:
    """Of the entries that were opened, those whose segments the states still hold, or what is left of them."""
    held: dict[tuple[str, Key, str | None], list[Segment]] = {}
    for (state, key), segments in states.items():
        for segment in segments:
            held.setdefault((state, key, segment.place), []).append(segment)
    return [entry.of(one) for entry in entries for one in held.get((entry.state, entry.key, entry.place), ())]


def _new(states: Mapping[StateKey, Sequence[Segment]]) -> Iterator[tuple[StateKey, Segment]]:
    for state, segments in states.items():
        for segment in segments:
            if segment.place is None:
                yield state, segment


def _stream(segment: Segment) -> list[Data]:
    """A segment as an Arrow stream, in pieces."""
    batch = packed(segment) if segment.numbered and len(segment) >= LEAST_PACKED else segment.to_batch()
    if any(kind.num_fields or pa.types.is_dictionary(kind) for kind in batch.schema.types):  # dictionaries come apart
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return [sink.getvalue()]
    return [batch.schema.serialize(), batch.serialize(), END_OF_STREAM]


def _entry(segment: Segment, state: str, key: Key, path: str, offset: int, content: Sequence[Data]) -> SegmentEntry:
    return SegmentEntry(
        state,
        key,
        path,
        offset,
        sum(map(len, content)),
        len(segment),
        segment.bytes,
        segment.bucket,
        segment.born,
        segment.earliest_from,
        segment.earliest_to,
        segment.latest_to,
        reduce(lambda checksum, piece: zlib.crc32(piece, checksum), content, 0),
    )
