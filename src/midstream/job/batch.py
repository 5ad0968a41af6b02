"""One batch, from manifest to manifest: a step per stage, and what they report."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.physical.routed import WindowName
from midstream.algebra.time import INFINITY
from midstream.checkpoint.manifest import Manifest, QueryEntry
from midstream.checkpoint.names import copy_name, is_rehearsal, replaced_name
from midstream.checkpoint.query_windows import BySlot
from midstream.distribution.fragments import STAY, Fragment, Route
from midstream.distribution.routed_cutting import probed_windows
from midstream.job.circumstances import Incoming, Position, SlotLayout
from midstream.job.lanes import Dealing, RunningLane
from midstream.job.queries.filling import Pace
from midstream.job.queries.fingerprints import Fingerprints
from midstream.job.queries.running_query import RunningQuery
from midstream.job.queries.sharing_plan import SharingPlan
from midstream.job.queries.succession import reached_behind_old
from midstream.job.task.exchange import Addressing, Layout
from midstream.job.task.in_place import Arrivals, arrivals
from midstream.job.task.intake import StreamReading
from midstream.job.task.memory import Memory
from midstream.job.task.reports import Report, SampleRequest, require_all
from midstream.job.task.step import StageStep
from midstream.job.task.works import NOT_APART, Apart, FragmentWork, MigrationWork, TaskWork

TICKS = "#ticks"
"""The stream of a session's clock: it moves the registers of all streams whose time is a timestamp."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How the steps of a batch run: within which memory, by which schedule, and what they report besides.

    For queries that are `watched`, slots sample rows as `samples` say and report what operators did. Rows that make the
    expressions of `sifted` queries fail are set aside.
    """

    memory: Memory = field(default_factory=Memory)
    scheduling: str = "dfs"
    samples: tuple[SampleRequest, ...] = ()
    watched: frozenset[str] = frozenset()
    sifted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ChangesBefore:
    """What was changed before a batch began.

    `ended` are records of migrations that were over by then: their states were moved, or they were cancelled;
    `arrived` are the queries with the former. `moved` is the record of a move to other slots. `recut` are the queries
    whose state was moved because streams arrive another way.
    """

    ended: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    arrived: frozenset[str] = frozenset()
    moved: dict[str, Any] | None = None
    recut: Mapping[str, RunningQuery] = field(default_factory=dict)


@dataclass
class Batch:
    """What a batch works with: where it stands, the queries, how rows arrive, how slots are laid out, how steps run."""

    position: Position
    queries: Mapping[str, RunningQuery]
    incoming: Incoming
    slots: SlotLayout
    options: RunOptions = field(default_factory=RunOptions)
    changes: ChangesBefore = field(default_factory=ChangesBefore)
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    started: float = 0.0
    reports: list[Report] = field(default_factory=list)
    job_seconds: float = 0.0

    @property
    def batch_id(self) -> int:
        """Its number."""
        return self.position.batch_id

    @property
    def before(self) -> Manifest | None:
        """The manifest before it; None: it is the first."""
        return self.position.before

    @cached_property
    def sharing(self) -> SharingPlan:
        """Who shares what, and what of it new queries start with."""
        frontiers = {name: self.advance_to(query) for name, query in self.queries.items()}
        changes, move = self.changes, self.slots.move
        # A query for which rows were set aside has less than others that keep the same windows.
        alone = self.options.sifted.union(
            self.position.set_aside, changes.arrived, changes.recut, () if move is None else move.queries
        )
        sooner, apart = frozenset(self.arrivals.sooner), self.slots.apart
        known = (self.batch_id, self.before, self.queries, frontiers, self.fingerprints, alone, sooner, apart)
        filled = self._being_filled
        return SharingPlan(*known, Pace.of(self.before, ()).among(len(filled)) if filled else Pace())

    @property
    def _being_filled(self) -> list[str]:
        if (before := self.before) is None:
            return []
        begun = {name for name, query in self.queries.items() if query.begins.paced and name not in before.queries}
        return [name for name in self.queries if name in begun or before.fills(name)]

    @property
    def begins(self) -> list[str]:
        """The queries that are new in it."""
        return [name for name in self.queries if self.sharing.is_fresh(name)]

    @cached_property
    def places_taken(self) -> Mapping[str, int]:
        """From which instants on others answer, by the queries whose places they take with this batch.

        Where one begins at once and lacks rows, the old one answers for these as far as it can, unless the new one
        has run beside it.
        """
        plan = self.sharing
        new = [n for n in self.begins if plan.records[n].whole_from_start or copy_name(n) in self.queries]
        return {replaced_name(name, self.batch_id): plan.start(name) for name in new}

    @property
    def registers(self) -> Mapping[str, int]:
        """What the streams had promised before this batch."""
        own = self.incoming.registers
        return self.position.registers if own is None else own

    def delivery(self, stream: str) -> Addressing:
        """To which slots arriving rows of a stream go."""
        return self.slots.delivery(stream, self.incoming)

    def advance_to(self, query: RunningQuery) -> int:
        """The frontier this batch advances a query to."""
        reached = query.reached(self.registers)
        if is_rehearsal(query.name):
            reached = reached_behind_old(self.before, query, reached)
        return max(self.position.advanced_to(query.name), reached)

    def take(self, reports: Sequence[Report], seconds: float) -> None:
        """Takes what the steps report, which took that long; what made one of them fail is raised."""
        self.reports, self.job_seconds = list(reports), seconds
        require_all(reports, self.stages, self.slots.count, self.batch_id)

    def only(self, names: Collection[str]) -> Batch:
        """A batch of some of the queries, to see whether these fail; it is not committed."""
        queries = {name: query for name, query in self.queries.items() if name in names}
        return replace(self, queries=queries, options=replace(self.options, samples=()), reports=[])

    @property
    def stages(self) -> int:
        """How many stages the plans at work need."""
        sooner = self.arrivals.sooner
        return max((part.query.staged.stages - (part.name in sooner) for part in self.lanes), default=1)

    def stage(self, plan: str, fragment: Fragment) -> int:
        """The stage in which a fragment of a plan runs."""
        return max(0, fragment.stage - (plan in self.arrivals.sooner))

    def arriving(self, port: int) -> list[tuple[int, Route]]:
        """The routes by which the rows of a stream arrive, and the port of each."""
        own = self.arrivals.routes.get(self.incoming.streams[port].name, STAY)
        return [(port, own), *((to, copy.route) for to, copy in self.arrivals.copies.items() if copy.stream == port)]

    @cached_property
    def arrivals(self) -> Arrivals:
        """How streams arrive: by their routes, and once more for fragments that read them in place."""
        # Rows that are set aside are reported once. What new queries start with is read where their streams are.
        in_place = {
            part.name: part.query.staged
            for part in self.lanes
            if part.query.staged.windows
            and part.lane is None
            and part.query.name not in self.options.sifted
            and not part.query.local
            and (self.before is None or part.query.name in self.before.queries)
        }
        incoming = self.incoming
        if not in_place or not self.slots.one_slot_each:
            return Arrivals(dict(incoming.routes))
        return arrivals(in_place, incoming.streams, incoming.routes)

    def steps(self, memory: Memory | None = None) -> list[StageStep]:
        """The steps of all stages; each slot may have another memory than the batch says."""
        parts = {part.name: part for part in self._at_work}
        fragments = [(name, fragment) for name, part in parts.items() for fragment in part.query.staged.fragments]
        ports = Ports.of(fragments, self.sharing)
        exchanged = Layout.of({port: parts[name].exchanged(number) for (name, number), port in ports.numbers.items()})
        return [
            StageStep(
                self.position.checkpoint,
                self.batch_id,
                stage,
                stage == self.stages - 1,
                self.slots.count,
                self.incoming.layout if stage == 0 else exchanged,
                exchanged,
                self.slots.routing,
                self._works(stage, ports),
                self._reading() if stage == 0 else None,
                self.slots.has_copies,
                memory or self.options.memory,
                self.slots.apart,
                self.slots.exchanged,
            )
            for stage in range(self.stages)
        ]

    def _reading(self) -> StreamReading:
        """How slots read the rows of streams."""
        incoming = self.incoming
        return StreamReading(
            incoming.streams,
            dict(self.registers),
            dict(incoming.reaches.by_stream),
            incoming.keys,
            self.options.samples,
            {port: self.delivery(s.name) for port, s in incoming.streams.items()} if self.slots.arriving else {},
            self.arrivals.copies,
            incoming.read,
        )

    def _works(self, stage: int, ports: Ports) -> tuple[TaskWork, ...]:
        return tuple(self.sharing.gathered([work for part in self._at_work for work in self._work(part, stage, ports)]))

    @cached_property
    def lanes(self) -> list[RunningLane]:
        """All lanes at work in this batch, also after it has moved migrations on."""
        keys = {name: route.key for name, route in self.incoming.routes.items() if route.key}
        dealing, queries = Dealing(self.slots.routing, self.slots.move, keys), self.queries.values()
        if self.slots.move is None and not any(query.migration for query in queries):
            return [RunningLane(query.name, query) for query in queries]
        return [lane for query in queries for lane in dealing.lanes(query)]

    @cached_property
    def _at_work(self) -> list[RunningLane]:
        """The lanes that are given rows: none of queries that have ended."""
        ended = self.sharing.ended()
        return [lane for lane in self.lanes if lane.query.name not in ended] if ended else self.lanes

    def _stored(self, part: RunningLane, fragment: int) -> BySlot:
        if self.before is None:
            return {}
        taken = self.sharing.taken
        named = taken.named(part.name, fragment) if taken.inputs else None
        return named or self.before.segments.get(part.name, {}).get(fragment, {})

    def _work(self, part: RunningLane, stage: int, ports: Ports) -> list[FragmentWork]:
        works = self._work_by(part, part.query, stage, ports)
        local = {slot: self._work_by(part, own, stage, ports) for slot, own in part.query.local.items()}
        if not local:
            return works
        return [replace(work, local={s: o[i] for s, o in local.items()}) for i, work in enumerate(works)]

    def _work_by(self, part: RunningLane, query: RunningQuery, stage: int, ports: Ports) -> list[FragmentWork]:
        """What fragments have to do by a plan, in all slots that run by it."""
        restored = query.frontiers(self.position.advanced_to(query.name))
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
                self.options.scheduling,
                self.sharing.start(query.name),
                part.name in self.options.watched and query.migration is None,
                (part.name, fragment.number) in ports.silent,
                self._apart(part, query, fragment),
            )
            for fragment in query.staged.fragments
            if self.stage(part.name, fragment) == stage
        ]

    def _apart(self, part: RunningLane, query: RunningQuery, fragment: Fragment) -> Apart:
        """What a fragment does because it runs apart from those of other queries."""
        found = Apart(
            self._migration(part, query, fragment.number),
            part.lane,
            query.name in self.options.sifted and query.migration is None,
            self._probed(part, fragment),
            self.arrivals.in_place.get((part.name, fragment.number)),
        )
        return NOT_APART if found == NOT_APART else found  # what most fragments have in common travels once

    def _probed(self, part: RunningLane, fragment: Fragment) -> Mapping[WindowName, BySlot]:
        """The windows that a fragment's one-way joins read, as the last batch left them."""
        kept = part.query.staged.windows
        return {name: self._stored(part, kept[name]) for name in probed_windows(fragment.plan)} if kept else {}

    def _migration(self, part: RunningLane, query: RunningQuery, fragment: int) -> MigrationWork | None:
        migration = query.migration
        if migration is None or migration.apart or part.marked or fragment not in migration.fragments(query):
            return None
        begins = migration.begun is None or migration.begun == self.batch_id
        return MigrationWork(
            migration.strategy,
            migration.target.staged.fragment(fragment),
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
    time = "integer" if query.plan.domain.is_integer else "timestamp"
    functions = ",".join(sorted(query.functions))
    return QueryEntry(query.cql, query.plan.text, query.emit_every, functions, time=time)


Place = tuple[str, int]
"""A fragment of a plan at work: the plan's name in this batch, and the fragment's number."""


@dataclass(slots=True)
class Ports:
    """The port of each fragment that is read by another, and those for which another's fragment sends."""

    numbers: dict[Place, int] = field(default_factory=dict)
    silent: set[Place] = field(default_factory=set)

    @staticmethod
    def of(fragments: Sequence[tuple[str, Fragment]], sharing: SharingPlan) -> Ports:
        """The ports of the plans at work; what was there before sends, so that a new query has nothing to add."""
        ports, known, used = Ports(), dict[object, int](), set[object]()
        by_plan = {name: sharing.exchanged(name) for name, fragment in fragments if fragment.reader is not None}
        for name, fragment in sorted(fragments, key=lambda pair: sharing.is_fresh(pair[0])):
            if fragment.reader is None:
                continue
            place = (name, fragment.number)
            key = by_plan[name].get(fragment.number, place)
            if (name, key) in used:  # a plan that has the same twice reads it by two ports
                key = place
            used.add((name, key))
            if key in known:
                ports.silent.add(place)
            ports.numbers[place] = known.setdefault(key, len(known))
        return ports
