"""What a batch stands on: a manifest and a number, how rows arrive, how slots are laid out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.file_entries import FilesRead
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.records import DoubledMove
from midstream.distribution.fragments import STAY, Route, Routing, SpreadGroup
from midstream.errors import JobError
from midstream.job.lanes import copies_of
from midstream.job.task.exchange import GROUP_BITS, Addressing, Layout, default_routing
from midstream.job.task.ingest import Reach, Span, believed, merged, reach_of
from midstream.job.task.reports import Report


@dataclass(frozen=True, slots=True)
class Position:
    """A batch's checkpoint, who counts it, its number, and the manifest before it (None: it is the first)."""

    checkpoint: str
    query_id: str
    batch_id: int
    before: Manifest | None = None

    @property
    def registers(self) -> Mapping[str, int]:
        """What the streams had promised by the manifest before."""
        return {} if self.before is None else self.before.streams.registers

    def advanced_to(self, query: str) -> int:
        """The frontier a query had been advanced to by the last batch."""
        return BEGINNING if self.before is None else self.before.advanced_to.get(query, BEGINNING)

    @property
    def set_aside(self) -> frozenset[str]:
        """The queries for which rows of the last batch were set aside."""
        if self.before is None:
            return frozenset()
        known, last = self.before.accounts, self.before.batch_id
        return frozenset(name for name, a in known.items() if a.set_aside is not None and a.set_aside.batch == last)


def current_routing(manifest: Manifest | None, slots: int, bits: int = GROUP_BITS) -> Routing:
    """How groups are dealt to slots by a manifest, or at first, when their number is chosen."""
    if manifest is None or not manifest.slots.routing:
        return Routing(tuple(default_routing(slots, 2**bits)), slots)
    return Routing(tuple(manifest.slots.routing), manifest.slots.count, apart=manifest.slots.apart)


@dataclass(slots=True)
class Reaches:
    """How far ahead each stream is believed in a batch, and the streams that are doubted."""

    by_stream: dict[str, Reach] = field(default_factory=dict)
    doubted: frozenset[str] = frozenset()

    @staticmethod
    def of(streams: Iterable[StreamDeclaration], before: Manifest | None, clock: int | None) -> Reaches:
        """What is known before the batch; `clock` is in microseconds since 1970."""
        latest = {} if before is None else before.streams.latest
        doubted = () if before is None else before.streams.doubted
        reaches = {d.name: reach_of(d, latest.get(d.name, BEGINNING), clock) for d in streams}
        return Reaches(reaches, frozenset(doubted))

    def widened(self, reports: Sequence[Report]) -> bool:
        """Decides by what all slots report up to when rows are believed; true if that is more than before."""
        more = False
        for name, reach in self.by_stream.items():
            rows = sum(report.streams.rows.get(name, 0) for report in reports)
            if not reach.step or not rows:
                continue
            beyond = merged((span for report in reports for span in report.streams.beyond.get(name, ())), reach.step)
            within = rows - sum(report.streams.unusable.get(name, 0) for report in reports)
            latest = max(
                [reach.latest, *(report.streams.latest[name] for report in reports if name in report.streams.latest)]
            )
            until, doubted = believed(reach, latest, within, beyond, name in self.doubted)
            self.doubted = self.doubted | {name} if doubted else self.doubted - {name}
            if _includes(until, beyond):
                self.by_stream[name] = replace(reach, until=until)
                more = True
        return more


def _includes(until: int, beyond: Sequence[Span]) -> bool:
    return any(first <= until for first, _, _ in beyond)


@dataclass(frozen=True, slots=True)
class Incoming:
    """The streams of a batch by port, laid out as `layout`; a stream that `routes` does not name may arrive anywhere.

    `read` are the columns of streams that queries read, where there are others: these come with rows that are buried,
    and with the rest as it suits a cluster. `reaches` says up to which times
    rows are believed. `files` are those of folders that are streams. A batch without
    rows works with `registers` instead of the last manifest's, and leaves them as they are.
    """

    streams: Mapping[int, StreamDeclaration]
    layout: Layout
    files: FilesRead | None = None
    registers: Mapping[str, int] | None = None
    routes: Mapping[str, Route] = field(default_factory=dict)
    reaches: Reaches = field(default_factory=Reaches)
    read: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def has_rows(self) -> bool:
        """Whether rows come; a batch of the job's own has none."""
        return self.registers is None

    @property
    def keys(self) -> dict[int, tuple[str, ...]]:
        """The columns by which rows of each port arrive, where they do by a key."""
        return {port: key for port, s in self.streams.items() if (key := self.routes.get(s.name, STAY).key)}

    def spread_by(self, port: int) -> tuple[str, ...]:
        """Columns by which rows that may go anywhere are spread; stamped ones of a batch all have the same time."""
        stream = self.streams[port]
        return (stream.time,) if stream.timestamps == "external" else tuple(f.name for f, _ in self._hashable(port))

    def hashable(self, stream: str) -> tuple[pa.Field, ...]:
        """The columns of a stream that are read, as they travel, without those that cannot be hashed."""
        port = next(port for port, declaration in self.streams.items() if declaration.name == stream)
        return tuple(self.layout.columns[place] for _, place in self._hashable(port))

    def _hashable(self, port: int) -> Iterator[tuple[pa.Field, int]]:
        read = self.read.get(self.streams[port].name, self.layout.schemas[port].names)
        columns = zip(self.layout.schemas[port], self.layout.places[port], strict=True)
        return ((f, place) for f, place in columns if f.name in read and not pa.types.is_nested(f.type))


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """How many slots there are, and which of them owns each partition group.

    Several slots share the groups that are `spread`, except those that rest. `move` is the one under way of groups
    whose rows go to two slots. Of key classes that are dealt `apart`, other slots own groups.
    """

    count: int
    routing: tuple[int, ...]
    spread: tuple[SpreadGroup, ...] = ()
    move: DoubledMove | None = None
    apart: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def copies(self) -> dict[int, tuple[int, ...]]:
        """The slots besides the owner's to which arriving rows of groups that move go."""
        return {} if self.move is None else copies_of(self.routing, self.move)

    @property
    def dealing(self) -> Routing:
        """How groups of all key classes are dealt."""
        return Routing(self.routing, self.count, apart=self.apart)

    @property
    def shared(self) -> list[SpreadGroup]:
        """The partition groups that several slots share in this batch."""
        return [group for group in self.spread if group.active]

    @property
    def arriving(self) -> list[SpreadGroup]:
        """The groups that several slots share of what arrives."""
        return [group for group in self.shared if not group.key_class]

    @property
    def exchanged(self) -> dict[tuple[str, str], Addressing]:
        """Where rows between stages go whose groups several slots share, by key class and the key they travel by."""
        shared = [group for group in self.shared if group.key_class]
        keys = {(group.key_class, key) for group in shared for key in (group.spread, *group.copied)}
        return {
            (name, key): self._shared((g for g in shared if g.key_class == name), key, self.dealing.table(name))
            for name, key in sorted(keys)
        }

    @property
    def has_copies(self) -> bool:
        """Whether rows come to slots that other slots account for."""
        return bool(self.copies) or bool(self.arriving)

    @property
    def one_slot_each(self) -> bool:
        """Whether every group is in one slot alone, and stays so."""
        return not self.copies and not self.spread and self.move is None

    def delivery(self, stream: str, incoming: Incoming) -> Addressing:
        """To which slots arriving rows of a stream go; those that may go anywhere go to one."""
        route, shared = incoming.routes.get(stream), self.arriving
        if not shared:
            return Addressing(self.routing, self.copies if route is not None and route.key else {})
        found = self._shared(shared, stream, self.routing)
        return replace(found, by=incoming.hashable(stream)) if found.spread else found

    def _shared(self, groups: Iterable[SpreadGroup], name: str, owners: tuple[int, ...]) -> Addressing:
        """Where rows of a stream, or that travel by a key, go that several slots share."""
        groups = list(groups)
        copies = {group.group: group.slots[1:] for group in groups if name in group.copied}
        return Addressing(owners, copies, {group.group: group.slots for group in groups if name == group.spread})


def is_finished(manifest: Manifest | None) -> bool:
    """Whether all streams were declared to have ended."""
    return manifest is not None and manifest.settings.finished


def require_unfinished(manifest: Manifest | None, uri: str) -> None:
    """Fails if the job takes in nothing more."""
    if is_finished(manifest):
        raise JobError(
            f"the job in {uri} has been finished: its streams were declared to have ended",
            detail="rows that arrived since are not read",
            hint="use a new checkpoint",
        )
