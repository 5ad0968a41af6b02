"""What a batch that was run leaves behind: the next manifest, from the one before it and what the slots report."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.file_entries import File, FileLog, FilesRead, ResultFile, SourceFile
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import query_of, replaced_name
from midstream.checkpoint.packs import Stored
from midstream.checkpoint.records import (
    Asked,
    MigrationProgress,
    Outputs,
    PlansAtWork,
    QueryAccount,
    SetAside,
    Settings,
    SlotPlan,
    Slots,
    Streams,
    grouped,
    remembered,
    summed,
)
from midstream.distribution.fragments import Routing, SpreadGroup, key_classes
from midstream.job.actions import Decided
from midstream.job.batch import TICKS, Batch, entry_of
from midstream.job.lanes import TO_TARGET, Filled, regrouped
from midstream.job.outputs.progress import counted_by_stream, reads_of, silences, unexpected, waits
from midstream.job.queries.plan_graph import plans_of
from midstream.job.queries.running_query import MigrationUnderWay, RunningQuery, extra
from midstream.job.slots.doubled_moves import doubled_after
from midstream.job.slots.pacing import resting
from midstream.job.task.reports import FragmentReport
from midstream.migration.history import Account

FilesOf = Mapping[str, Sequence[SourceFile]]
REMEMBERED = 100
"""How many migrations of a query, and moves of partition groups, manifests remember."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the next manifest says besides what the batch did: the job's settings, and what was asked of it.

    `numbers` are those of the source's batch and of our own; `decided` is what those who watch queries and slots say.
    Several slots are to share the groups that are `spread`; queries that are `merging` are cut for that.
    """

    settings: Settings = field(default_factory=Settings)
    asked: Asked = field(default_factory=Asked)
    wanted: Routing | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)
    decided: Decided = field(default_factory=Decided)
    spread: Sequence[SpreadGroup] = ()
    merging: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """A batch whose reports are in."""

    batch: Batch

    @property
    def before(self) -> Manifest:
        """The manifest before the batch; an empty one before the first."""
        return self.batch.before or Manifest(self.batch.position.query_id, -1)

    def manifest(self, offsets: str, terms: Terms) -> Manifest:
        """What the batch leaves behind."""
        batch, before, queries = self.batch, self.before, self.batch.queries
        return Manifest(
            query_id=batch.position.query_id,
            batch_id=batch.batch_id,
            offsets=offsets,
            epoch=before.epoch,
            settings=terms.settings,
            streams=self._streams(terms.numbers),
            slots=self._slots(terms),
            queries={name: entry_of(query.after(self.batch.slots.count)) for name, query in queries.items()},
            accounts=self._accounts(terms),
            advanced_to={name: batch.advance_to(query) for name, query in queries.items()},
            released={name: self._released(query) for name, query in queries.items()},
            segments=self._segments(),
            outputs=self._outputs(),
            asked=terms.asked,
        )

    def _plans_after(self, query: RunningQuery) -> PlansAtWork:
        """By which plans the query goes on besides its own."""
        local = query.after(self.batch.slots.count).local.items()
        plans = {slot: SlotPlan(own.plan.text, self._migration_after(own, (slot,))) for slot, own in local}
        return PlansAtWork(self._migration_after(query, range(self.batch.slots.count)), plans)

    def _streams(self, numbers: Mapping[str, int]) -> Streams:
        batch, before, read = self.batch, self.before.streams, self.batch.incoming.files or FilesRead()
        names = sorted(d.name for d in batch.incoming.streams.values() if not d.name.startswith("#"))
        changed = {name for name in read.moved if before.folders.get(name) != read.folders[name]}
        moved = {name: FileLog(files) for name, files in read.moved.items() if name in changed}
        rows = counted_by_stream(batch.reports, "rows")
        silent = silences(before.silent, names, {name: rows.get(name, 0) for name in names})
        held = waits(reads_of(batch.queries), self.registers, silent)
        return Streams(
            **numbers,
            registers=self.registers,
            latest=self.latest,
            rows=counted_by_stream(batch.reports, "rows", before.rows),
            late=counted_by_stream(batch.reports, "late", before.late),
            unusable=counted_by_stream(batch.reports, "unusable", before.unusable),
            silent=silent,
            waits=unexpected(held, batch.incoming.streams.values()),
            doubted=sorted(batch.incoming.reaches.doubted),
            nulls=self._nulls(before.nulls),
            files=self._read({**before.files, **moved}, read.files),
            folders={**before.folders, **read.folders},
            positions={**before.positions, **read.positions},
            lags=read.lags,
            order=[batch.incoming.streams[port].name for port in sorted(batch.incoming.streams)],
        )

    def _read(self, before: Mapping[str, FileLog[SourceFile]], now: FilesOf) -> dict[str, FileLog[SourceFile]]:
        """The files that were read by now; of those of the batch, between which times their rows count."""
        latest, since = self.latest.get, self.batch.registers.get
        read = {n: [replace(f, latest=latest(n), register=since(n)) for f in files] for n, files in now.items()}
        return {**before, **{n: _grown(before.get(n, FileLog()), files) for n, files in read.items()}}

    def _nulls(self, before: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """The columns of streams in which some row had no value by now."""
        found = {stream: set(columns) for stream, columns in before.items()}
        for report in self.batch.reports:
            for stream, columns in report.streams.nulls.items():
                found.setdefault(stream, set()).update(columns)
        return {stream: sorted(columns) for stream, columns in found.items() if columns}

    @cached_property
    def latest(self) -> Mapping[str, int]:
        """The newest time of each stream."""
        latest = dict(self.before.streams.latest)
        for report in self.batch.reports:
            for stream, ticks in report.streams.latest.items():
                latest[stream] = max(latest.get(stream, BEGINNING), ticks)
        return latest

    @cached_property
    def registers(self) -> Mapping[str, int]:
        """What streams promise after the batch: nothing more before these times.

        A stream does not promise what files that wait already break: their rows are still to come.
        """
        registers = dict(self.batch.registers)
        if not self.batch.incoming.has_rows:  # that no stream was heard says nothing where none was read
            return registers
        clock = self.latest.get(TICKS, BEGINNING)
        for declaration in self.batch.incoming.streams.values():
            name = declaration.name
            seen = self.latest.get(name, BEGINNING)
            if not declaration.domain.is_integer:
                seen = max(seen, clock)
            if seen > BEGINNING:
                registers[name] = max(registers.get(name, BEGINNING), seen - declaration.lateness)
        self._raise_silent(registers)
        for name, earliest in (self.batch.incoming.files or FilesRead()).waiting.items():
            if name in registers:
                before = self.batch.registers.get(name, BEGINNING)
                registers[name] = max(before, min(registers[name], earliest))
        return registers

    def _raise_silent(self, registers: dict[str, int]) -> None:
        """Streams that had no rows in this batch say how far they are, so that nobody waits for them.

        One whose rows bring their times is judged by how far the others were before the batch: rows that belong
        together come in different batches, by files for instance, and having none while the others have their first of
        a time is no silence yet. What is stamped on arrival cannot come late, and is as far as the others are.
        """
        declared = list(self.batch.incoming.streams.values())
        heard = {stream for report in self.batch.reports for stream, count in report.streams.rows.items() if count}
        for silent in declared:
            if not silent.on_demand or silent.name in heard:
                continue
            others = [d.name for d in declared if d is not silent and _comparable(silent, d)]
            reached = self.before.streams.latest if silent.timestamps == "external" else self.latest
            newest = max((reached.get(name, BEGINNING) for name in others), default=BEGINNING)
            if newest > BEGINNING:
                registers[silent.name] = max(registers.get(silent.name, BEGINNING), newest - silent.skew)

    def _slots(self, terms: Terms) -> Slots:
        batch, before, moved, decided = self.batch, self.before.slots, self.batch.changes.moved, terms.decided
        now = np.zeros(len(batch.slots.routing), np.int64)
        for counts in (report.traffic.groups.counts for report in batch.reports):
            now[: len(counts)] += counts
        return Slots(
            routing=batch.slots.routing,
            count=batch.slots.count,
            loads=remembered(before.loads, now),
            wanted=terms.wanted,
            moves=[*before.moves, *([moved] if moved else [])][-REMEMBERED:],
            decisions=before.decisions if decided.slot_decisions is None else decided.slot_decisions,
            deciding=before.deciding if decided.slot_decisions is None else decided.deciding,
            spread=terms.spread,
            shared=tuple(batch.slots.shared),
            merging={name: sorted(classes) for name, classes in terms.merging.items()},
            doubled=None if batch.slots.move is None else doubled_after(batch, batch.slots.move),
            apart=dict(sorted(batch.slots.apart.items())),
            class_loads=self._class_loads(),
        )

    def _class_loads(self) -> dict[str, tuple[float, ...]]:
        """What exchanges of each key class have carried lately, by partition group; classes that are gone have none."""
        batch, before = self.batch, self.before.slots.class_loads
        if not before and not any(report.traffic.exchanged for report in batch.reports):
            return {}
        queries = [own for query in batch.queries.values() for own in (query, query.after_batch)]
        found = {}
        for name in sorted({name for query in queries for name in key_classes(query.staged)}):
            sent = summed(pair for report in batch.reports for pair in report.traffic.of_class(name).items())
            now = [sent.get(group, 0) for group in range(len(batch.slots.routing))]
            found[name] = tuple(remembered(before.get(name, ()), now))
        return {name: loads for name, loads in found.items() if any(loads)}

    def _accounts(self, terms: Terms) -> dict[str, QueryAccount]:
        batch = self.batch
        graphs, sharing = plans_of(batch.queries, batch.reports), batch.sharing.remembered()
        return {
            name: QueryAccount(
                identity=self.before.account(name).identity,
                results=self.before.account(name).results,
                removed=self.before.account(name).removed,
                history=self._history(query),
                graph=graphs[name],
                sharing=sharing[name],
                knowledge=terms.decided.knowledge.get(name),
                set_aside=self._set_aside(name),
                plans=self._plans_after(query),
            )
            for name, query in batch.queries.items()
        }

    def _history(self, query: RunningQuery) -> list[Mapping[str, Any]]:
        old = self.batch.queries.get(replaced_name(query.name, self.batch.batch_id))
        begun = self.batch.sharing.started(query.name, INFINITY if old is None else self._released(old))
        return [*self.before.account(query.name).history, *begun, *self._finished_migrations(query)][-REMEMBERED:]

    def _set_aside(self, query: str) -> SetAside | None:
        before = self.before.account(query).set_aside
        rows = sum(report.set_aside.get(query, 0) for report in self.batch.reports)
        return SetAside(self.batch.batch_id, rows + (before.rows if before else 0)) if rows else before

    def _outputs(self) -> Outputs:
        before, queries = self.before.outputs, self.batch.queries
        logs = {name: before.results.get(name, FileLog()) for name in queries}
        return replace(
            before,
            results={name: _grown(log, self._new_results.get(name, ())) for name, log in logs.items()},
            dead_letters=_grown(before.dead_letters, (f for r in self.batch.reports for f in r.dead_letters)),
        )

    @cached_property
    def _new_results(self) -> dict[str, list[ResultFile]]:
        """The new result files by query."""
        reports = sorted(self.batch.reports, key=lambda report: report.slot)
        return grouped((query_of(name), file) for report in reports for name, file in report.results.items())

    def _segments(self) -> dict[str, Stored]:
        found: dict[str, Filled] = {lane.name: {} for lane in self.batch.lanes}
        for report in self.batch.reports:
            for (name, fragment), part in report.fragments.items():
                if name in found and part.entries:
                    found[name].setdefault(fragment, {})[report.slot] = part.entries
        segments: dict[str, Stored] = {**found, **self.batch.sharing.rest}
        for name, query in self.batch.queries.items():
            if query.migration is None:
                continue
            segments |= resting(self.before, query)
            if query.migration.apart and self._goes_over(query, query.migration):
                segments = regrouped(segments, name, TO_TARGET)
        return segments

    def _released(self, query: RunningQuery) -> int:
        plans = (self._reached(own, slots) for own, slots in query.at_work(self.batch.slots.count))
        reached = min(self.batch.places_taken.get(query.name, INFINITY), *plans)
        return max(self.before.released.get(query.name, BEGINNING), reached)

    def _reached(self, query: RunningQuery, slots: Collection[int]) -> int:
        """How far the results of a plan are complete in the slots that run by it."""
        # What must wait was worked through up to the last registers only; the rest is complete up to the new ones.
        migration = query.migration
        if migration is not None and migration.replays:
            return self._complete(query)
        if migration is not None and migration.apart:
            first = migration.split_at
            old, new = (self._complete(q) for q in (query, migration.target))
            return new if migration.done else old if old < first else max(first, new)
        if migration is not None:
            return self._complete_while_migrating(query, migration.target, slots)
        return self._complete(query)

    def _complete_while_migrating(self, query: RunningQuery, target: RunningQuery, slots: Collection[int]) -> int:
        """How far the results of two plans in one box are complete."""
        roots = self._parts(query, slots, query.staged.root.number)
        if query.waits or target.waits:
            return min([self.batch.advance_to(query), *(part.passed for part in roots)])
        return min([query.reached(self.registers), *(p.held_from for p in roots if p.held_from is not None)])

    def _complete(self, query: RunningQuery) -> int:
        """How far a plan's results are complete."""
        return query.passed(self.batch.advance_to(query)) if query.waits else query.reached(self.registers)

    def _migration_after(self, query: RunningQuery, slots: Collection[int]) -> MigrationProgress | None:
        """What the manifest says of a query's migration in some slots; None if there is none."""
        migration = query.migration
        if migration is None or migration.done or migration.cancelling:
            return None
        if migration.apart:
            done = self._goes_over(query, migration)
        else:
            done = all(part.migrated is not False for part in self._parts(query, slots))
            done = done and not self._leaves_by_its_plan(query)
        begun = self.batch.batch_id if migration.begun is None else migration.begun
        return replace(migration.progress, begun=begun, done=done, account=self._account(query, migration, slots))

    def _goes_over(self, query: RunningQuery, migration: MigrationUnderWay) -> bool:
        """Whether the plan that a query has side by side with another has nothing left to answer for."""
        if migration.done or migration.replays:
            return False  # what is moved bit by bit ends between two batches
        plans = (query, migration.target)
        return all(plan.passed(self.batch.advance_to(query)) >= migration.split_at for plan in plans)

    def _account(self, query: RunningQuery, migration: MigrationUnderWay, slots: Collection[int]) -> Account:
        """What a migration has cost by the end of this batch, in the slots that migrate."""
        batch = self.batch
        known = migration.account or Account.opened(batch.position.advanced_to(query.name), batch.started)
        here = (report for report in batch.reports if report.slot in slots)
        parts = (part for report in here for part in report.fragments.items())
        reports = grouped((place, part) for place, part in parts if query_of(place[0]) == query.name)
        return known.after(
            batch.advance_to(query), batch.started + batch.job_seconds, self._heard(query), *extra(reports, query.name)
        )

    def _heard(self, query: RunningQuery) -> bool:
        """Whether results leave with this batch."""
        since, until = self.before.released.get(query.name, BEGINNING), self._released(query)
        known = self.before.outputs.results.get(query.name, FileLog())
        files = _grown(known, self._new_results.get(query.name, ())).newer
        return any(file.first_from < until and file.last_from >= since for file in files)

    def _parts(self, query: RunningQuery, slots: Collection[int], number: int | None = None) -> list[FragmentReport]:
        """What fragments, or the one of a number, report from some slots, in all lanes that migrate with the query."""
        names = {lane.name for lane in self.batch.lanes if lane.query.name == query.name and not lane.marked}
        return [
            part
            for report in self.batch.reports
            if report.slot in slots
            for (name, fragment), part in report.fragments.items()
            if name in names and number in (None, fragment)
        ]

    def _leaves_by_its_plan(self, query: RunningQuery) -> bool:
        """Whether groups leave by the query's old plan, which it then needs for another batch."""
        lanes = (lane for lane in self.batch.lanes if lane.query.name == query.name)
        return self.batch.advance_to(query) < INFINITY and any(lane.marked for lane in lanes)

    def _finished_migrations(self, query: RunningQuery) -> list[dict[str, Any]]:
        """The migrations that this batch ends."""
        ended = [*self.batch.changes.ended.get(query.name, ())]
        for own, slots in query.at_work(self.batch.slots.count):
            migration = own.migration
            if migration is not None and (migration.done or migration.cancelling):
                account = self._account(own, migration, slots)
                record = migration.record(own.plan.text, self.batch.batch_id, migration.outcome, account)
                ended.append(record if own is query else {**record, "slots": list(slots)})
        return ended


def _grown(log: FileLog[File], files: Iterable[File]) -> FileLog[File]:
    """Files, with some that are newer."""
    return FileLog(tuple(chain(log.newer, files)), log.lists)


def _comparable(silent: StreamDeclaration, other: StreamDeclaration) -> bool:
    """Whether the newest time of a stream says how far a silent one is."""
    if silent.timestamps != "external":
        return other.timestamps != "external" or other.name == TICKS
    return other.name != TICKS and other.domain.agrees_with(silent.domain)
