"""One batch, from manifest to manifest: a step per stage, and what they report."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.manifest import Manifest, QueryEntry, ResultFile, SourceFile
from midstream.checkpoint.outputs import GIVEN_UP
from midstream.checkpoint.packs import SegmentEntry
from midstream.distribution.balancing import remembered
from midstream.job.attention import reads_of, waits_after
from midstream.job.fingerprints import Shapes
from midstream.job.local_plans import LOCAL, after, at_work, ended_locally, local_after
from midstream.job.migration_account import Account, extra
from midstream.job.plan_graph import PLANS, plans_of
from midstream.job.ports import Ports
from midstream.job.reaching import Reaches
from midstream.job.running_query import MigrationUnderWay, RunningQuery
from midstream.job.sharing_plan import Shares
from midstream.job.task.exchange import GROUP_BITS, default_routing
from midstream.job.task.fragment_task import FragmentWork, MigrationWork
from midstream.job.task.layout import Layout
from midstream.job.task.memory import Memory
from midstream.job.task.reports import FragmentReport, Report, require_all
from midstream.job.task.samples import LookRequest
from midstream.job.task.shared_task import SharedWork
from midstream.job.task.sides import NEW, Side, base_name
from midstream.job.task.step import StageStep
from midstream.migration.legality import keeps_intervals

TICKS = "#ticks"
"""The stream of a session's clock: it moves the registers of all streams whose time is a timestamp."""

SET_ASIDE = "set_aside"
"""Under what a manifest's counters tell of rows that were left out for one query, because its expressions failed."""

REMEMBERED = 100
"""How many migrations of a query manifests remember."""


@dataclass(frozen=True, slots=True)
class Part:
    """A plan at work: its name in reports and manifests, the name its state is stored under, and for which time."""

    name: str
    query: RunningQuery
    stored: str
    side: Side | None = None


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
    looks: tuple[LookRequest, ...] = ()
    watched: frozenset[str] = frozenset()
    """What slots look at for queries that are watched, and these queries."""
    ended: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Migrations that were over before the batch began: their states were moved, or they were cancelled."""
    moved: dict[str, Any] | None = None
    """What is told of a move to other slots."""
    files_read: Mapping[str, Sequence[SourceFile]] = field(default_factory=dict)
    """The files of folders that are streams whose rows these are."""
    started: float = field(default_factory=time.time)
    reports: list[Report] = field(default_factory=list)
    job_seconds: float = 0.0
    shapes: Shapes = field(default_factory=Shapes)
    reaches: Reaches = field(default_factory=Reaches)
    group_bits: int = GROUP_BITS
    """How many bits of a key's hash are its partition group, on a new checkpoint."""
    by_group: bool = True
    """Whether states are sorted by partition group."""
    sifted: frozenset[str] = frozenset()
    """Queries for which rows that make their expressions fail are set aside."""
    _shares: Shares | None = None
    _at_work: list[Part] | None = None
    _given: dict[str, list[ResultFile]] | None = None

    @property
    def shares(self) -> Shares:
        """Who shares what, and what of it new queries start with."""
        if self._shares is None:
            frontiers = {name: self.advance_to(query) for name, query in self.queries.items()}
            self._shares = Shares(
                self.batch_id,
                self.before,
                self.queries,
                frontiers,
                self.shapes,
                # A query for which rows were set aside has less than others that keep the same windows.
                self.sifted | self._sifted_before() | frozenset(self.ended),
            )
        return self._shares

    def _sifted_before(self) -> frozenset[str]:
        """The queries for which rows of the last batch were set aside."""
        if self.before is None:
            return frozenset()
        told = self.before.counters.get(SET_ASIDE, {})
        return frozenset(name for name, last in told.items() if last["batch"] == self.before.batch_id)

    @property
    def registers(self) -> Mapping[str, int]:
        """What the streams had promised before this batch."""
        if self.registers_now is not None:
            return self.registers_now
        return {} if self.before is None else self.before.registers

    @property
    def routing(self) -> Sequence[int]:
        """The slot of each partition group."""
        known = () if self.before is None else self.before.routing
        return known or default_routing(self.slots, 2**self.group_bits)

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
        return replace(self, queries=queries, looks=(), reports=[], _shares=None, _at_work=None, _given=None)

    @property
    def stages(self) -> int:
        """How many stages the plans at work need."""
        return max((part.query.staged.stages for part in self.parts()), default=1)

    def steps(self) -> list[StageStep]:
        """The steps of all stages."""
        parts = self.parts()
        ports = Ports.of(
            [(part.name, fragment) for part in parts for fragment in part.query.staged.fragments], self.shares
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
                self.looks if stage == 0 else (),
                self.memory,
                dict(self.reaches.by_stream),
            )
            for stage in range(self.stages)
        ]

    def _works(self, parts: Sequence[Part], stage: int, ports: Ports) -> tuple[FragmentWork | SharedWork, ...]:
        return tuple(self.shares.gathered([work for part in parts for work in self._work(part, stage, ports)]))

    def parts(self) -> list[Part]:
        """All plans at work in this batch, also after it has moved migrations on."""
        if self._at_work is None:
            self._at_work = self._parts()
        return self._at_work

    def _parts(self) -> list[Part]:
        found = []
        for name, query in self.queries.items():
            migration = query.migration
            if migration is None or not migration.apart:
                found.append(Part(name, query, name))
            elif migration.done:
                found.append(Part(name, migration.target, name + NEW))
            else:
                split, target = migration.decision["split_after"], migration.target
                whole = keeps_intervals(query.plan.physical) and keeps_intervals(target.plan.physical)
                found.append(Part(name, query, name, Side(split, False, whole)))
                found.append(Part(name + NEW, target, name + NEW, Side(split, True, whole)))
        return found

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
                self.shares.start(query.name),
                part.name in self.watched and query.migration is None,
                (part.name, fragment.number) in ports.silent,
                query.name in self.sifted and query.migration is None,
            )
            for fragment in query.staged.fragments
            if fragment.stage == stage
        ]

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

    def manifest(self, offsets: str, settings: Mapping[str, Any]) -> Manifest:
        """What this batch leaves behind."""
        latest, registers = self._registers()
        before = self.before or Manifest(self.query_id, -1)
        results = {name: [*before.results.get(name, ()), *self._results(name)] for name in self.queries}
        return Manifest(
            query_id=self.query_id,
            batch_id=self.batch_id,
            offsets=offsets,
            epoch=before.epoch,
            queries={name: entry_of(after(query, self.slots)) for name, query in self.queries.items()},
            registers=registers,
            latest=latest,
            advanced_to={name: self.advance_to(query) for name, query in self.queries.items()},
            routing=list(self.routing),
            segments=self._segments(),
            results=results,
            released={name: self._released(query, registers) for name, query in self.queries.items()},
            dead_letters=[*before.dead_letters, *(f for r in self.reports for f in r.dead_letters)],
            migration={name: m for name, query in self.queries.items() if (m := self._migration_after(query))},
            counters={
                **settings,
                **self._counters(before.counters),
                **self.reaches.to_json(),
                **waits_after(before.counters, self.streams.values(), self.reports, reads_of(self.queries), registers),
            },
            listed={name: before.listed[name] for name in self.queries if name in before.listed},
            listed_dead_letters=before.listed_dead_letters,
            metrics=before.metrics,
            recent=before.recent,
            superseded=before.superseded,
            sources=self._sources(before),
            listed_sources=before.listed_sources,
        )

    def _sources(self, before: Manifest) -> dict[str, Sequence[SourceFile]]:
        read = {**dict.fromkeys(before.sources, ()), **self.files_read}
        return {stream: (*before.sources.get(stream, ()), *files) for stream, files in read.items()}

    def _registers(self) -> tuple[dict[str, int], dict[str, int]]:
        latest = dict(self.before.latest) if self.before else {}
        for report in self.reports:
            for stream, ticks in report.latest.items():
                latest[stream] = max(latest.get(stream, BEGINNING), ticks)
        registers = dict(self.registers)
        if self.registers_now is not None:  # that no stream was heard says nothing where none was read
            return latest, registers
        clock = latest.get(TICKS, BEGINNING)
        for declaration in self.streams.values():
            name = declaration.name
            seen = latest.get(name, BEGINNING)
            if not declaration.domain.is_integer:
                seen = max(seen, clock)
            if seen > BEGINNING:
                registers[name] = max(registers.get(name, BEGINNING), seen - declaration.lateness)
        self._raise_silent(latest, registers)
        return latest, registers

    def _raise_silent(self, latest: Mapping[str, int], registers: dict[str, int]) -> None:
        """Streams that had no rows in this batch say how far they are, so that nobody waits for them."""
        heard = {stream for report in self.reports for stream, count in report.rows.items() if count}
        for silent in self.streams.values():
            if not silent.on_demand or silent.name in heard:
                continue
            others = [d.name for d in self.streams.values() if d is not silent and _comparable(silent, d)]
            newest = max((latest.get(name, BEGINNING) for name in others), default=BEGINNING)
            if newest > BEGINNING:
                registers[silent.name] = max(registers.get(silent.name, BEGINNING), newest - silent.skew)

    def _released(self, query: RunningQuery, registers: Mapping[str, int]) -> int:
        before = BEGINNING if self.before is None else self.before.released.get(query.name, BEGINNING)
        plans = at_work(query, self.slots)
        return max(before, min(self._reached(own, registers, slots) for own, slots in plans))

    def _reached(self, query: RunningQuery, registers: Mapping[str, int], slots: Collection[int] | None) -> int:
        """How far the results of a plan are complete in the slots that run by it."""
        # What must wait was worked through up to the last registers only; the rest is complete up to the new ones.
        migration = query.migration
        if migration is not None and migration.apart:
            first = migration.decision["split_after"] + 1
            old, new = (self._complete(q, registers) for q in (query, migration.target))
            return new if migration.done else old if old < first else max(first, new)
        if migration is not None:
            return self._complete_while_migrating(query, migration.target, registers, slots)
        return self._complete(query, registers)

    def _complete_while_migrating(
        self,
        query: RunningQuery,
        target: RunningQuery,
        registers: Mapping[str, int],
        slots: Collection[int] | None,
    ) -> int:
        """How far the results of two plans in one box are complete."""
        roots = self._roots(query, slots)
        if query.waits or target.waits:
            return min([self.advance_to(query), *(part.passed for part in roots)])
        held = [part.held_from for part in roots if part.held_from is not None]
        return min([query.reached(registers), *held])

    def _complete(self, query: RunningQuery, registers: Mapping[str, int]) -> int:
        """How far a plan's results are complete."""
        return query.passed(self.advance_to(query)) if query.waits else query.reached(registers)

    def _migration_after(self, query: RunningQuery, slot: int | None = None) -> dict[str, Any] | None:
        """What the manifest says of a query's migration, or of that of a slot by itself; None if there is none."""
        migration = query.migration
        if migration is None or migration.done or migration.cancelling:
            return None
        if migration.apart:
            first = migration.decision["split_after"] + 1
            done = all(q.passed(self.advance_to(query)) >= first for q in (query, migration.target))
        else:
            done = all(part.migrated is not False for part in self._roots(query, None if slot is None else (slot,)))
        begun = self.batch_id if migration.begun is None else migration.begun
        account = self._account(query, migration, slot).to_json()
        return {**migration.to_json(), "begun": begun, "done": done, "account": account}

    def _account(self, query: RunningQuery, migration: MigrationUnderWay, slot: int | None = None) -> Account:
        """What a migration has cost by the end of this batch, in all slots or in the one that migrates."""
        known = migration.account or Account.opened(self.advanced_to(query.name), self.started)
        reports: dict[tuple[str, int], list[FragmentReport]] = {}
        for report in self.reports:
            for place, part in report.fragments.items():
                if base_name(place[0]) == query.name and slot in (None, report.slot):
                    reports.setdefault(place, []).append(part)
        return known.after(self.advance_to(query), time.time(), self._heard(query), *extra(reports, query.name + NEW))

    def _heard(self, query: RunningQuery) -> bool:
        """Whether results leave with this batch."""
        since = BEGINNING if self.before is None else self.before.released.get(query.name, BEGINNING)
        until = self._released(query, self._registers()[1])
        waiting = () if self.before is None else self.before.results.get(query.name, ())
        files = [*waiting, *self._results(query.name)]
        return any(file.first_from < until and file.last_from >= since for file in files)

    def _roots(self, query: RunningQuery, slots: Collection[int] | None) -> list[FragmentReport]:
        root = (query.name, query.staged.root.number)
        return [
            report.fragments[root]
            for report in self.reports
            if root in report.fragments and (slots is None or report.slot in slots)
        ]

    def _segments(self) -> dict[str, dict[int, dict[int, list[SegmentEntry]]]]:
        found: dict[str, dict[int, dict[int, list[SegmentEntry]]]] = {part.name: {} for part in self.parts()}
        for report in self.reports:
            for (name, fragment), part in report.fragments.items():
                if name in found and part.entries:
                    found[name].setdefault(fragment, {})[report.slot] = part.entries
        return found

    def _results(self, query: str) -> list[ResultFile]:
        if self._given is None:
            self._given = {}
            for report in sorted(self.reports, key=lambda r: r.slot):
                for name, file in report.results.items():
                    self._given.setdefault(base_name(name), []).append(file)
        return self._given.get(query, [])

    def _counters(self, before: Mapping[str, Any]) -> dict[str, Any]:
        counted: dict[str, Any] = {}
        for kind in ("rows", "late", "unusable"):
            total = dict(before.get(kind, {}))
            for report in self.reports:
                for stream, count in getattr(report, kind).items():
                    total[stream] = total.get(stream, 0) + count
            counted[kind] = total
        if GIVEN_UP in before:
            counted[GIVEN_UP] = before[GIVEN_UP]
        counted[SET_ASIDE] = self._set_aside(before.get(SET_ASIDE, {}))
        counted["results"] = {
            name: before.get("results", {}).get(name, 0) + sum(f.rows for f in self._results(name))
            for name in self.queries
        }
        counted["history"] = {
            name: [
                *before.get("history", {}).get(name, ()),
                *self.shares.started(name),
                *self._finished_migration(query),
            ][-REMEMBERED:]
            for name, query in self.queries.items()
        }
        counted["sharing"] = self.shares.to_json()
        counted[PLANS] = plans_of(self.queries, self.reports)
        counted[LOCAL] = local_after(self.queries, self.slots, self._migration_after)
        now = [0] * len(self.routing)
        for report in self.reports:
            for group, count in report.groups.items():
                now[group] += count
        counted["groups"] = remembered(before.get("groups", ()), now)
        counted["moves"] = [*before.get("moves", ()), *([self.moved] if self.moved else [])][-REMEMBERED:]
        return counted

    def _set_aside(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """How many rows have been set aside for each query, and in which batch the last ones."""
        found = dict(before)
        for report in self.reports:
            for name, rows in report.set_aside.items():
                found[name] = {"batch": self.batch_id, "rows": found.get(name, {}).get("rows", 0) + rows}
        return found

    def _finished_migration(self, query: RunningQuery) -> list[dict[str, Any]]:
        """The migration that this batch ends, if any."""
        ended = [*self.ended.get(query.name, ()), *ended_locally(query, self.batch_id, self._account)]
        migration = query.migration
        if migration is None or not (migration.done or migration.cancelling):
            return ended
        status = "cancelled" if migration.cancelling else "done"
        return [*ended, migration.record(query.plan.text, self.batch_id, status, self._account(query, migration))]


def finished(registers: Mapping[str, int], streams: Mapping[int, StreamDeclaration]) -> dict[str, int]:
    """Registers that promise that nothing more will come."""
    return {**registers, **{declaration.name: INFINITY for declaration in streams.values()}}


def _comparable(silent: StreamDeclaration, other: StreamDeclaration) -> bool:
    """Whether the newest time of a stream says how far a silent one is."""
    if silent.timestamps != "external":
        return other.timestamps != "external" or other.name == TICKS
    return other.name != TICKS and other.domain.agrees_with(silent.domain)


def entry_of(query: RunningQuery) -> QueryEntry:
    """A query as manifests tell of it."""
    time = "integer" if query.plan.query.domain.is_integer else "timestamp"
    functions = ",".join(sorted(query.functions))
    return QueryEntry(query.cql, query.plan.text, query.emit_every, functions, time=time)
