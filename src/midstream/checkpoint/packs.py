"""Packs: the new segments of all states of a slot in one file.

Each segment is an Arrow stream of its own at a multiple of 64 bytes, so that it is read where it lies in the mapped
file: its columns are the file's pages. Its entry knows its place, its checksum and its time range, so that opening it
reads nothing but the schema. What an entry says is checked before anything is read by it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from functools import partial
from operator import attrgetter
from typing import Protocol

import numpy as np
import pyarrow as pa

from midstream.checkpoint.failures import MissingFile
from midstream.checkpoint.files import Data, Files
from midstream.checkpoint.maps import Mapped
from midstream.checkpoint.packed import is_packed, packed, rows_of, unpacked
from midstream.errors import InternalError, JobError
from midstream.operators.elements import Elements, Hashes, Key, rows_without_columns
from midstream.operators.state.narrowing import Conditions, Narrowing
from midstream.operators.state.segment import FROM, HASH, TO, Segment
from midstream.operators.state.sorted_state import SortedState

ALIGNMENT = 64
ALL_HASHES = 2**64
LEAST_PACKED = 256
"""From how many rows on fewer bytes are worth the way to them."""

MAGIC = b"midstream pack 1".ljust(ALIGNMENT, b"\0")
_TIMES = (HASH, FROM, TO)

StateKey = tuple[str, Key]
"""A state's id and the key it is sorted by."""


@dataclass(frozen=True, slots=True)
class HashRange:
    """Which hashes of a stored segment an entry stands for: those in `[start, end)`."""

    start: int
    end: int
    whole: int
    """How many rows the stored segment has."""


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
    """The part of the stored segment that it is; None: all of it."""
    narrowed: int | None = None
    """By how many ticks its rows end sooner than they do as they are stored, for a wider state; None: for this one."""
    texts: dict[str, str] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What it is called and written as, made once, however many batches and manifests name it."""

    @property
    def text(self) -> str:
        """All that it says besides its state and its file, as JSON."""
        if "text" not in self.texts:
            part = () if self.hashes is None else astuple(self.hashes)
            sooner = () if self.narrowed is None else (self.narrowed,)
            self.texts["text"] = ",".join(map(str, (*_numbers(self), *part, *sooner)))
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
        return self.hashes is not None

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
        return replace(self, rows=rows, bytes=size, hashes=HashRange(hash_from, hash_to, self.stored_rows))

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
        if self.hash_from == 0 and part.hash_to == ALL_HASHES:
            return replace(self, rows=self.stored_rows, bytes=size, hashes=None)
        return replace(self, rows=rows, bytes=size, hashes=HashRange(self.hash_from, part.hash_to, self.stored_rows))

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
        gap = -content.size % ALIGNMENT
        pieces += [content, bytes(gap)]
        offset += content.size + gap
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


def open_states(
    files: Files, entries: Iterable[SegmentEntry], states: Mapping[str, Stated] | None = None
) -> dict[StateKey, list[Segment]]:
    """All segments by state, in the order of their entries, without parts that turn out to be empty.

    `states` are those that they are of, by id.
    """
    found: dict[StateKey, list[Segment]] = {}
    packs: dict[str, Mapped] = {}
    whole: dict[str, pa.RecordBatch] = {}
    for entry in entries:
        segment = open_segment(files, entry, states.get(entry.state) if states else None, packs, whole)
        if len(segment):
            found.setdefault((entry.state, entry.key), []).append(segment)
    return found


def open_segment(
    files: Files,
    entry: SegmentEntry,
    state: Stated | None = None,
    packs: dict[str, Mapped] | None = None,
    whole: dict[str, pa.RecordBatch] | None = None,
) -> Segment:
    """The segment an entry names, mapped, of a state, whose columns it must have; without, as it is stored.

    `packs` are the files just opened, `whole` the stored segments of which several parts are opened.
    """
    whole = {} if whole is None else whole
    if entry.origin not in whole:
        whole[entry.origin] = _batch(_content(files, entry, {} if packs is None else packs), files, entry)
    batch = _part(whole[entry.origin], entry)
    hashes, valid_from, valid_to = (batch.column(i).to_numpy(zero_copy_only=True) for i in range(3))
    stored = Segment(
        Elements(_payload(batch, files, entry, state), valid_from, valid_to),
        hashes,
        entry.bucket,
        entry.born,
        entry.earliest_from,
        entry.earliest_to,
        entry.latest_to,
        entry.place,
        entry.origin if entry.is_part else None,
    )
    return stored if entry.narrowed is None or state is None else narrowed_segment(stored, entry, state)


def narrowed_segment(stored: Segment, entry: SegmentEntry, state: Stated) -> Segment:
    """The segment of an entry that names what is stored for a wider state."""
    if state.conditions is None or entry.narrowed is None:
        raise InternalError(f"what is stored cannot be narrowed to the state {entry.state}")
    rows = stored.stored
    return replace(
        stored,
        stored=rows.arranged(state.schema),
        bucket=entry.bucket,
        born=entry.born,
        earliest_from=entry.earliest_from,
        earliest_to=entry.earliest_to,
        latest_to=entry.latest_to,
        place=entry.place,
        origin=entry.origin if entry.is_part else None,
        narrowed=Narrowing.of(entry.narrowed, state.conditions, rows.columns),
        views={},
        sizes=[],
        bits=stored.bits,
    )


def _part(batch: pa.RecordBatch, entry: SegmentEntry) -> pa.RecordBatch:
    """The rows of an entry, of those of the stored segment."""
    if is_packed(batch):
        return unpacked(batch, entry.rows_among)
    if not entry.is_part:
        return batch
    start, end = entry.rows_among(batch.column(0).to_numpy(zero_copy_only=True))
    return batch.slice(start, end - start)


def open_in(
    files: Files,
    entry: SegmentEntry,
    state: SortedState,
    packs: dict[str, Mapped] | None = None,
    whole: dict[str, pa.RecordBatch] | None = None,
) -> Segment:
    """The segment of an entry for a state; one of a state that rests is opened when somebody looks into it."""
    if state.rests and not entry.is_part:
        return ClosedSegment(entry, partial(open_segment, files, entry, state))
    return open_segment(files, entry, state, packs, whole)


class Stated(Protocol):
    """What has to be known of a state to open its segments."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""

    @property
    def conditions(self) -> Conditions | None:
        """Which conditions its rows meet, where that is known."""


class ClosedSegment(Segment):
    """A stored segment that is opened anew, and let go again, whenever somebody looks into it."""

    __slots__ = ("_opened",)
    _opened: Callable[[], Segment]

    def __init__(self, entry: SegmentEntry, opened: Callable[[], Segment]) -> None:
        known = {name: getattr(entry, name) for name in ("bucket", "born", "earliest_from", "earliest_to", "latest_to")}
        fixed: dict[str, object] = {"origin": None, "within": None, "narrowed": None, "views": {}, "bits": []}
        own = {"place": entry.place, "sizes": [entry.bytes, entry.rows], "_opened": opened}
        for name, value in {**known, **fixed, **own}.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return self.sizes[1]

    @property
    def stored(self) -> Elements:
        """Its elements."""
        return self._opened().stored

    @property
    def hashes(self) -> Hashes:
        """Their hashes."""
        return self._opened().hashes


def _new(states: Mapping[StateKey, Sequence[Segment]]) -> Iterator[tuple[StateKey, Segment]]:
    for state, segments in states.items():
        for segment in segments:
            if segment.place is None:
                yield state, segment


def _stream(segment: Segment) -> pa.Buffer:
    batch = packed(segment) if segment.numbered and len(segment) >= LEAST_PACKED else segment.to_batch()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _entry(segment: Segment, state: str, key: Key, path: str, offset: int, content: pa.Buffer) -> SegmentEntry:
    return SegmentEntry(
        state,
        key,
        path,
        offset,
        content.size,
        len(segment),
        segment.bytes,
        segment.bucket,
        segment.born,
        segment.earliest_from,
        segment.earliest_to,
        segment.latest_to,
        zlib.crc32(content),
    )


def _content(files: Files, entry: SegmentEntry, packs: dict[str, Mapped]) -> pa.Buffer:
    try:
        mapped = packs.get(entry.file) or packs.setdefault(entry.file, files.mapped(entry.file))
    except MissingFile as error:
        raise MissingFile(
            f"the state file {files.full(entry.file)} is missing", detail=_of(entry), hint=_REPAIR
        ) from error
    end, size = entry.offset + entry.length, mapped.content.size
    if end > size:
        raise _damaged(files, entry, f"it is {size} bytes long, a segment ends at {end}")
    content = mapped.content.slice(entry.offset, entry.length)
    if entry.offset not in mapped.verified:
        if zlib.crc32(content) != entry.checksum:
            raise _damaged(files, entry, f"the checksum of the segment at {entry.offset} does not agree")
        mapped.verified.add(entry.offset)
    return content


def _batch(content: pa.Buffer, files: Files, entry: SegmentEntry) -> pa.RecordBatch:
    try:
        batch = pa.ipc.open_stream(content).read_next_batch()
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise _damaged(files, entry, f"the segment at {entry.offset} cannot be read: {error}") from error
    told = is_packed(batch) or tuple(batch.schema.names[:3]) == _TIMES
    if rows_of(batch) != entry.stored_rows or not told:
        raise _damaged(files, entry, f"the segment at {entry.offset} is not the one the manifest speaks of")
    return batch


def _payload(batch: pa.RecordBatch, files: Files, entry: SegmentEntry, state: Stated | None) -> pa.RecordBatch:
    stored, schema = batch.schema, None if state is None or entry.narrowed is not None else state.schema
    if len(stored) == len(_TIMES):
        return rows_without_columns(batch.num_rows)
    fields = [stored.field(i) for i in range(3, len(stored))]
    if schema is not None:
        _agree(fields, files, entry, schema)
    return pa.RecordBatch.from_arrays(batch.columns[3:], schema=pa.schema(fields) if schema is None else schema)


def _agree(fields: Sequence[pa.Field], files: Files, entry: SegmentEntry, schema: pa.Schema) -> None:
    if [(f.name, f.type) for f in fields] == [(f.name, f.type) for f in schema]:
        return
    here, there = (", ".join(f"{f.name} {f.type}" for f in side) for side in (fields, schema))
    raise JobError(
        f"the state file {files.full(entry.file)} holds other columns than the plan expects",
        detail=f"{_of(entry)}: it holds {here}; the plan expects {there}",
    )


def _damaged(files: Files, entry: SegmentEntry, why: str) -> JobError:
    return JobError(f"the state file {files.full(entry.file)} is damaged", detail=f"{why}; {_of(entry)}", hint=_REPAIR)


def _of(entry: SegmentEntry) -> str:
    return f"it holds part of the state {entry.state} by ({', '.join(entry.key)})"


_REPAIR = "restore the file from a copy of the checkpoint, or start with a new checkpoint"
