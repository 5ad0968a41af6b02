"""One batch, from manifest to manifest: a step per stage, and what they report."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.physical.routed import WindowName
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.file_entries import SourceFile
from midstream.checkpoint.manifest import Manifest, QueryEntry
from midstream.checkpoint.packs import SegmentEntry
from midstream.distribution.fragments import STAY, Fragment, Route
from midstream.distribution.routed.cutting import probed_windows
from midstream.distribution.spread_groups import SpreadGroup
from midstream.job.arriving.reaching import Reaches
from midstream.job.in_place import Arrivals, arrivals
from midstream.job.ports import Ports
from midstream.job.queries.fingerprints import Fingerprints
from midstream.job.queries.running_query import RunningQuery
from midstream.job.queries.sharing_plan import SharingPlan
from midstream.job.slots.doubling import Doubling
from midstream.job.task.exchange import GROUP_BITS, Delivery, default_routing
from midstream.job.task.layout import Layout
from midstream.job.task.memory import Memory
from midstream.job.task.reports import Report, require_all
from midstream.job.task.samples import SampleRequest
from midstream.job.task.sides import NEW, Side
from midstream.job.task.step import StageStep
from midstream.job.task.tracks import Track
from midstream.job.task.works import FragmentWork, MigrationWork, SharedWork
from midstream.migration.legality import keeps_intervals

TICKS = "#ticks"
"""The stream of a session's clock: it moves the registers of all streams whose time is a timestamp."""


@dataclass(frozen=True, slots=True)
class Part:
    """A plan at work: its name in reports and manifests, the name its state is stored under, and for which time."""

    name: str
    query: RunningQuery
    stored: str
    side: Side | None = None
    track: Track | None = None


@dataclass(slots=True)
class Batch:
    """What a batch works with: the manifest before it (None: the first), the queries, and how rows arrive."""

    checkpoint: str
    query_id: str
    batch_id: int
    before: Manifest | None
    queries: Mapping[str, RunningQuery]
    streams: Mapping[int, StreamDeclaration]
    arriving: Layout
    slots: int
    memory: Memory = field(default_factory=Memory)
    registers_now: Mapping[str, int] | None = None
    """Registers to work with instead of the last manifest's, in a batch without rows, which leaves them as they are."""
    scheduling: str = "dfs"
    samples: tuple[SampleRequest, ...] = ()
    watched: frozenset[str] = frozenset()
    """What slots look at for queries that are watched, and these queries."""
    ended: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Migrations that were over before the batch began: their states were moved, or they were cancelled."""
    moved: dict[str, Any] | None = None
    """The record of a move to other slots."""
    files_read: Mapping[str, Sequence[SourceFile]] = field(default_factory=dict)
    """The files of folders that are streams whose rows these are."""
    started: float = field(default_factory=time.time)
    reports: list[Report] = field(default_factory=list)
    job_seconds: float = 0.0
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    reaches: Reaches = field(default_factory=Reaches)
    group_bits: int = GROUP_BITS
    """How many bits of a key's hash are its partition group, on a new checkpoint."""
    by_group: bool = True
    """Whether states are sorted by partition group."""
    sifted: frozenset[str] = frozenset()
    """Queries for which rows that make their expressions fail are set aside."""
    routes: Mapping[str, Route] = field(default_factory=dict)
    """How streams arrive; one that is not named may arrive anywhere."""
    spread: tuple[SpreadGroup, ...] = ()
    """The partition groups that several slots share, and those that are to, but rest."""
    recut: Mapping[str, RunningQuery] = field(default_factory=dict)
    """The queries whose state was moved before the batch because streams arrive another way."""
    doubling: Doubling | None = None
    """The move under way of groups whose rows go to two slots."""
    copies: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """The slots besides the owner's to which arriving rows of some groups go."""
    _sharing: SharingPlan | None = None
    _arrivals: Arrivals | None = None
    _at_work: list[Part] | None = None

    @property
    def sharing(self) -> SharingPlan:
        """Who shares what, and what of it new queries start with."""
        if self._sharing is None:
            frontiers = {name: self.advance_to(query) for name, query in self.queries.items()}
            self._sharing = SharingPlan(
                self.batch_id,
                self.before,
                self.queries,
                frontiers,
                self.fingerprints,
                # A query for which rows were set aside has less than others that keep the same windows.
                self.sifted
                | self._sifted_before()
                | frozenset(self.ended)
                | frozenset(self.recut)
                | frozenset(() if self.doubling is None else self.doubling.queries),
            )
        return self._sharing

    def _sifted_before(self) -> frozenset[str]:
        """The queries for which rows of the last batch were set aside."""
        if self.before is None:
            return frozenset()
        known, last = self.before.accounts, self.before.batch_id
        return frozenset(name for name, a in known.items() if a.set_aside is not None and a.set_aside.batch == last)

    @property
    def registers(self) -> Mapping[str, int]:
        """What the streams had promised before this batch."""
        if self.registers_now is not None:
            return self.registers_now
        return {} if self.before is None else self.before.streams.registers

    @property
    def routing(self) -> Sequence[int]:
        """The slot of each partition group."""
        known = () if self.before is None else self.before.slots.routing
        return known or default_routing(self.slots, 2**self.group_bits)

    @property
    def shares_groups(self) -> bool:
        """Whether several slots share a partition group."""
        return any(group.active for group in self.spread)

    def delivery(self, stream: str) -> Delivery:
        """To which slots arriving rows of a stream go; those that may go anywhere go to one."""
        route = self.routes.get(stream)
        owners, shared = tuple(self.routing), [group for group in self.spread if group.active]
        if not shared:
            return Delivery(owners, self.copies if route is not None and route.key else {})
        copies = {group.group: group.slots[1:] for group in shared if stream in group.copied}
        spread = {group.group: group.slots for group in shared if stream == group.spread}
        return Delivery(owners, copies, spread, self._spread_by(stream) if spread else ())

    def _spread_by(self, stream: str) -> tuple[pa.Field, ...]:
        """The columns as they travel by whose hash rows of a stream are spread: all that can be hashed."""
        port = next(port for port, declaration in self.streams.items() if declaration.name == stream)
        columns = zip(self.arriving.schemas[port], self.arriving.places[port], strict=True)
        return tuple(self.arriving.columns[place] for f, place in columns if not pa.types.is_nested(f.type))

    def advanced_to(self, query: str) -> int:
        """The frontier a query had been advanced to by the last batch."""
        return BEGINNING if self.before is None else self.before.advanced_to.get(query, BEGINNING)

    def advance_to(self, query: RunningQuery) -> int:
        """The frontier this batch advances a query to."""
        return max(self.advanced_to(query.name), query.reached(self.registers))

    def take(self, reports: Sequence[Report], seconds: float) -> None:
        """Takes what the steps report, which took that long; what made one of them fail is raised."""
        self.reports, self.job_seconds = list(reports), seconds
        require_all(reports, self.stages, self.slots, self.batch_id)

    def only(self, names: Collection[str]) -> Batch:
        """A batch of some of the queries, to see whether these fail; it is not committed."""
        queries = {name: query for name, query in self.queries.items() if name in names}
        return replace(self, queries=queries, samples=(), reports=[], _sharing=None, _arrivals=None, _at_work=None)

    @property
    def stages(self) -> int:
        """How many stages the plans at work need."""
        return max((self.arrivals.stages(part.name, part.query.staged) for part in self.parts()), default=1)

    @property
    def arrivals(self) -> Arrivals:
        """How streams arrive: by their routes, and once more for fragments that read them in place."""
        if self._arrivals is None:
            # Sides of a split keep rows for later where these arrive, and rows that are set aside are reported once.
            in_place = {
                part.name: part.query.staged
                for part in self.parts()
                if part.side is None and part.query.name not in self.sifted and not part.query.local
            }
            several = bool(self.copies) or bool(self.spread)
            self._arrivals = arrivals(
                {} if several or self.doubling is not None else in_place, self.streams, self.routes
            )
        return self._arrivals

    def steps(self) -> list[StageStep]:
        """The steps of all stages."""
        parts = self.parts()
        ports = Ports.of(
            [(part.name, fragment) for part in parts for fragment in part.query.staged.fragments], self.sharing
        )
        plans = {part.name: part.query.staged for part in parts}
        exchanged = Layout.of({port: plans[name].fragment(n).plan.schema for (name, n), port in ports.numbers.items()})
        return [
            StageStep(
                self.checkpoint,
                self.batch_id,
                stage,
                stage == self.stages - 1,
                self.streams,
                dict(self.registers),
                self.arriving if stage == 0 else exchanged,
                exchanged,
                tuple(self.routing),
                self._works(parts, stage, ports),
                self.samples if stage == 0 else (),
                self.memory,
                dict(self.reaches.by_stream),
                self.slots,
                bool(self.copies) or self.shares_groups,
                {port: key for port, s in self.streams.items() if (key := self.routes.get(s.name, STAY).key)},
                {port: self.delivery(stream.name) for port, stream in self.streams.items()}
                if self.shares_groups
                else {},
                self.arrivals.copies if stage == 0 else {},
            )
            for stage in range(self.stages)
        ]

    def _works(self, parts: Sequence[Part], stage: int, ports: Ports) -> tuple[FragmentWork | SharedWork, ...]:
        return tuple(self.sharing.gathered([work for part in parts for work in self._work(part, stage, ports)]))

    def parts(self) -> list[Part]:
        """All plans at work in this batch, also after it has moved migrations on."""
        if self._at_work is None:
            self._at_work = self._parts()
        return self._at_work

    def _parts(self) -> list[Part]:
        found = []
        for name, query in self.queries.items():
            migration = query.migration
            if self.doubling is not None and name in self.doubling.queries:
                found += self._tracks(self.doubling, query)
            elif migration is None or not migration.apart:
                found.append(Part(name, query, name))
            elif migration.done:
                found.append(Part(name, migration.target, name + NEW))
            else:
                split, target = migration.decision["split_after"], migration.target
                whole = keeps_intervals(query.plan.physical) and keeps_intervals(target.plan.physical)
                found.append(Part(name, query, name, Side(split, False, whole)))
                found.append(Part(name + NEW, target, name + NEW, Side(split, True, whole)))
        return found

    def _tracks(self, doubling: Doubling, query: RunningQuery) -> list[Part]:
        """A query of which groups move, in the tracks by which it runs."""
        keys = {name: route.key for name, route in self.routes.items() if route.key}
        whole = all(keeps_intervals(own.plan.physical) for own in (query, *query.local.values()))
        tracks = doubling.tracks(query.name, keys, whole)
        return [Part(query.name + suffix, query, query.name + suffix, track=track) for suffix, track in tracks]

    def _stored(self, part: Part, fragment: int) -> Mapping[int, Sequence[SegmentEntry]]:
        return {} if self.before is None else self.before.segments.get(part.stored, {}).get(fragment, {})

    def _work(self, part: Part, stage: int, ports: Ports) -> list[FragmentWork]:
        works = self._work_by(part, part.query, stage, ports)
        local = {slot: self._work_by(part, own, stage, ports) for slot, own in part.query.local.items()}
        return [replace(work, local={s: o[i] for s, o in local.items()}) for i, work in enumerate(works)]

    def _work_by(self, part: Part, query: RunningQuery, stage: int, ports: Ports) -> list[FragmentWork]:
        """What fragments have to do by a plan, in all slots that run by it."""
        restored = query.frontiers(self.advanced_to(query.name))
        advanced = query.frontiers(self.advance_to(query))
        return [
            FragmentWork(
                part.name,
                query.program(fragment),
                restored[fragment.number],
                advanced[fragment.number],
                self._stored(part, fragment.number),
                ports.numbers.get((part.name, fragment.number), -2),
                {ports.numbers[part.name, r.fragment]: r.stream.alias for r in fragment.received},
                self._migration(query, fragment.number),
                part.side,
                self.scheduling,
                self.sharing.start(query.name),
                part.name in self.watched and query.migration is None,
                (part.name, fragment.number) in ports.silent,
                query.name in self.sifted and query.migration is None,
                self._probed(part, fragment),
                part.track,
                arrives=self.arrivals.in_place.get((part.name, fragment.number)),
            )
            for fragment in query.staged.fragments
            if self.arrivals.stage(part.name, fragment) == stage
        ]

    def _probed(self, part: Part, fragment: Fragment) -> Mapping[WindowName, Mapping[int, Sequence[SegmentEntry]]]:
        """The windows that a fragment's one-way joins read, as the last batch left them."""
        kept = part.query.staged.windows
        return {name: self._stored(part, kept[name]) for name in probed_windows(fragment.plan)} if kept else {}

    def _migration(self, query: RunningQuery, fragment: int) -> MigrationWork | None:
        migration = query.migration
        if migration is None or migration.apart or fragment != query.staged.root.number:
            return None
        begins = migration.begun is None or migration.begun == self.batch_id
        return MigrationWork(
            migration.strategy,
            migration.target.staged.root,
            migration.decision,
            begins,
            migration.done,
            migration.cancelling,
        )


def finished(registers: Mapping[str, int], streams: Mapping[int, StreamDeclaration]) -> dict[str, int]:
    """Registers that promise that nothing more will come."""
    return {**registers, **{declaration.name: INFINITY for declaration in streams.values()}}


def entry_of(query: RunningQuery) -> QueryEntry:
    """A query as manifests tell of it."""
    time = "integer" if query.plan.query.domain.is_integer else "timestamp"
    functions = ",".join(sorted(query.functions))
    return QueryEntry(query.cql, query.plan.text, query.emit_every, functions, time=time)
