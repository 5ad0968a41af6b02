"""Segments opened by their entries: mapped where they lie in packs, and verified before anything is read."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

import pyarrow as pa

from midstream.checkpoint.failures import MissingFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.maps import Mapped
from midstream.checkpoint.packed import is_packed, rows_of, unpacked
from midstream.checkpoint.packs import SegmentEntry, StateKey
from midstream.errors import InternalError, JobError
from midstream.operators.elements import Elements, Hashes, rows_without_columns
from midstream.operators.state.narrowing import Narrowing, RowTests
from midstream.operators.state.segment import FROM, HASH, TO, Segment
from midstream.operators.state.sorted_state import SortedState

_TIMES = (HASH, FROM, TO)
_REPAIR = "restore the file from a copy of the checkpoint, or start with a new checkpoint"


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
    stored = Segment(Elements(_payload(batch, files, entry, state), valid_from, valid_to), hashes, *_told(entry))
    return stored if entry.narrowed is None or state is None else narrowed_segment(stored, entry, state)


def _part(batch: pa.RecordBatch, entry: SegmentEntry) -> pa.RecordBatch:
    """The rows of an entry, of those of the stored segment."""
    if is_packed(batch):
        return unpacked(batch, entry.rows_among)
    if not entry.is_part:
        return batch
    start, end = entry.rows_among(batch.column(0).to_numpy(zero_copy_only=True))
    return batch.slice(start, end - start)


def narrowed_segment(stored: Segment, entry: SegmentEntry, state: Stated) -> Segment:
    """The segment of an entry that names what is stored for a wider state, or as it was narrowed for another one."""
    if state.tests is None or entry.narrowed is None:
        raise InternalError(f"what is stored cannot be narrowed to the state {entry.state}")
    rows = stored.stored if stored.narrowed is None else stored.stored.with_columns(stored.narrowed.stored)
    return Segment(
        rows.arranged(state.schema),
        stored.hashes,
        *_told(entry),
        narrowed=Narrowing(entry.narrowed, state.tests, rows.columns, entry.stored_place),
        sizes=stored.sizes,
        bits=stored.bits,
    )


def _told(entry: SegmentEntry) -> tuple[int, int, int, int, int, str, str | None]:
    """What an entry says of its segment: its bucket, what made it, its times, where it is, and of what it is a part."""
    times = entry.earliest_from, entry.earliest_to, entry.latest_to
    return entry.bucket, entry.born, *times, entry.place, entry.origin if entry.is_part else None


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
    def tests(self) -> RowTests | None:
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
