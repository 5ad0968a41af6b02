"""A fragment's task in a slot: open its state, go on from its frontier, take the batch, write what is new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from midstream.algebra.physical import Source
from midstream.algebra.physical.routed import WindowName
from midstream.algebra.time import INFINITY
from midstream.checkpoint.files import Files
from midstream.checkpoint.names import name_for
from midstream.checkpoint.packs import SegmentEntry, StateKey, open_states
from midstream.errors import JobError
from midstream.job.task.kept_tasks import HeldSegments
from midstream.job.task.marked_states import MARKED, unmarked
from midstream.job.task.memory import Memory
from midstream.job.task.memory_limits import bind, frontiers, mapped_states, write_packs
from midstream.job.task.output_buffer import ForwardBuffer, OutputBuffer, ResultsBuffer
from midstream.job.task.reports import FragmentReport
from midstream.job.task.samples import BoxWatch
from midstream.job.task.sides import base_name, left_out
from midstream.job.task.works import FragmentWork, MigrationWork
from midstream.migration.execution import Execution, SingleBox
from midstream.migration.in_part import move_by, way_decided
from midstream.migration.protocol import Figures, Migrating
from midstream.migration.registry import strategy_named
from midstream.migration.state_move import Portions
from midstream.operators.base import Work
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.operators.one_way_join import OneWayJoin
from midstream.operators.state.segment import Segment
from midstream.operators.state.sorted_state import SortedState
from midstream.scheduling.scheduler import Scheduler


class FragmentTask:
    """One fragment at work in one slot."""

    def __init__(
        self, work: FragmentWork, files: Files, slot: int, batch_id: int = 0, memory: Memory | None = None
    ) -> None:
        self.work = work
        self.files = files
        self.slot = slot
        self.batch_id = batch_id
        self.memory = memory or Memory()
        self.given = buffer_of(work, self.memory)
        self.flushed: list[str] = []
        self.entries = list(work.segments.get(slot, ()))
        self.rows_in = 0
        self.crossing = 0
        """Rows that both sides of a split have taken."""
        self.boxes = [self._box()]
        self.execution: Execution = SingleBox(self.boxes[0], self._give, partial(Scheduler, schedule=work.scheduling))
        self.migrating: Migrating | None = None
        self.written: dict[int, SegmentEntry] = {}
        """The entries of segments that closing wrote, by identity."""
        self.held = HeldSegments()
        self.figures = Figures()
        """What a migration that ended in this batch has cost in it."""
        old_side = work.side is not None and not work.side.new
        self.ahead = {s.stream.alias: left_out(s) for s in work.fragment.sources} if old_side else {}
        self.watches = [BoxWatch(self.boxes[0])]
        """Of the plan that runs, and of the one that it migrates to."""
        bind(self.boxes[0].operators, self.memory)
        read_windows(self.boxes[0], work.probed, files, slot)
        self.open()

    def _box(self) -> Box:
        return Box(self.work.fragment.plan, self.work.functions)

    def open(self) -> None:
        """Opens the states and goes on from where the last batch ended."""
        migration = self.work.migration
        if migration is None or migration.begins:
            self._fill(self.execution)
            self.execution.restore(self.work.restored_to)
        if migration is not None:
            self._open_migration(migration)

    @property
    def key(self) -> tuple[tuple[str, int], ...]:
        """What it runs."""
        return (self.work.name,)

    def goes_on(self, work: FragmentWork, memory: Memory) -> bool:
        """Whether a task opened for some work would be the same as this one, which is closed and kept."""
        return (
            _is_plain(work)
            and work.program is self.work.program
            and work.scheduling == self.work.scheduling
            and memory.bytes == self.memory.bytes
            and work.restored_to == max(self.work.restored_to, self.work.advance_to)
            and list(work.segments.get(self.slot, ())) == self.entries
        )

    def go_on(self, work: FragmentWork, files: Files, batch_id: int, memory: Memory) -> None:
        """Takes up another batch."""
        assert isinstance(self.execution, SingleBox)
        self.work, self.files, self.batch_id, self.memory = work, files, batch_id, memory
        self.given, self.flushed, self.rows_in = buffer_of(work, memory), [], 0
        self.watches[0].restart()
        self.execution.scheduler.restart()
        stored = self.held.by_state(self.entries)
        for name, state in _names(self.execution).items():
            state.reopen(stored.get(name, ()))
        self.execution.restore(work.restored_to)

    def rest(self) -> bool:
        """Gets ready for the next batch, if what ran is one box and nothing else."""
        if not _is_plain(self.work) or any(isinstance(operator, OneWayJoin) for operator in self.boxes[0].operators):
            return False
        known = {entry.place: entry for entry in self.entries}

        def entry_of(segment: Segment) -> SegmentEntry:
            return self.written[id(segment)] if segment.place is None else known[segment.place]

        self.held.hold(self.execution.states(), entry_of, self.files, self.memory.new_state)
        self.written = {}
        return True

    def _open_migration(self, migration: MigrationWork) -> None:
        assert isinstance(self.execution, SingleBox)
        self.boxes.append(Box(migration.target.plan, self.work.functions))
        bind(self.boxes[1].operators, self.memory)
        self.watches.append(BoxWatch(self.boxes[1]))
        strategy = way_decided(strategy_named(migration.strategy), dict(migration.decision))
        self.migrating = strategy.open(self.execution, self.boxes[1], dict(migration.decision))
        self.execution = self.migrating
        if migration.begins:
            move_by(self.migrating, Portions(self.memory.moved, self.spill))
            self.migrating.begin()
        else:
            self._fill(self.migrating)
            self.migrating.restore(self.work.restored_to)
        if migration.cancels:
            self.figures = self.migrating.figures
            self.execution, self.migrating = self.migrating.cancel(), None
        elif migration.finishes:
            self._finish_migration()

    def _finish_migration(self) -> None:
        assert self.migrating is not None
        self.figures = self.migrating.figures
        self.execution = self.migrating.finish()
        self.migrating = None

    def _fill(self, execution: Execution) -> None:
        names = self._named(execution)
        own = [entry for entry in self.entries if (entry.state, entry.key) in names]
        others = [entry for entry in self.entries if (entry.state, entry.key) not in names]
        back = unmarked(self.files, others, self.work.fragment.plan, self.work.functions)
        for entry in others:
            if not entry.state.startswith(MARKED):
                raise JobError(
                    f"the checkpoint holds a state of query {base_name(self.work.query)} that its plan does not have",
                    detail=f"{entry.state} by ({', '.join(entry.key)}); the plan is {self.work.plan.text}",
                    hint="use the plan and the version that made the checkpoint, or a new checkpoint",
                )
        stored = open_states(self.files, own, {name: state.schema for (name, _), state in names.items()})
        for name, state in names.items():
            state.replace_segments([*stored.get(name, ()), *back.get(name, ())])

    def _named(self, execution: Execution) -> dict[StateKey, SortedState]:
        """All states under the names they are stored by, with what the old side of a split has left out."""
        return {**_names(execution), **{(state.id, state.key): state for state in self.ahead.values()}}

    @property
    def names(self) -> tuple[str, ...]:
        """The query that it is part of."""
        return (self.work.query,)

    @property
    def sources(self) -> tuple[Source, ...]:
        """What it must be fed with: streams, and what other fragments give."""
        return self.execution.sources

    def _give(self, results: Elements) -> None:
        counted = self.work.counted(results)
        if len(counted):
            self.given.add(counted)

    def take(self, source: Source, elements: Elements) -> None:
        """Takes elements of a stream."""
        side, alias = self.work.side, source.stream.alias
        parts = [elements] if side is None else side.fed(elements)
        for part in parts:
            self.feed(alias, part)
        if side is not None and side.new:
            self.crossing += len(parts[0])
        if side is not None and alias in self.ahead:
            later = side.ahead(elements)
            self.ahead[alias].append(later, np.zeros(len(later), np.uint64))

    def receive(self, port: int, elements: Elements) -> None:
        """Takes elements that another fragment gave."""
        self.feed(self.work.received[port], elements)

    def feed(self, alias: str, elements: Elements) -> None:
        """Takes elements of a source."""
        if len(elements):
            self.rows_in += len(elements)
            self.execution.feed(alias, elements)

    def advance(self) -> None:
        """Learns how far the streams are, in several steps where one would look at too much state."""
        since, until = self.work.restored_to, self.work.advance_to
        if until > since:
            operators = [operator for box in self.boxes for operator in box.operators]
            for frontier in frontiers(operators, since, until, self.memory):
                self.execution.advance(frontier)
                self.spill()
        if self.work.advance_to == INFINITY and self.migrating is not None:
            self._finish_migration()

    def spill(self) -> None:
        """Moves new segments into files and maps them once they are many."""
        written = mapped_states(self.files, self._path, self._named(self.execution), self.memory)
        self.flushed += {entry.file for entry in written}
        self.entries = [*self.entries, *written]

    def _path(self) -> str:
        return name_for("state", self.batch_id, self.slot, self.work.fragment.number)

    def sent(self) -> Iterator[tuple[FragmentWork, Elements]]:
        """What goes on to other fragments, since the last time."""
        for output in self.given.take():
            yield self.work, output

    def closed(self) -> Iterator[tuple[FragmentWork, FragmentReport]]:
        """Writes new segments; says what there is now."""
        yield self.work, self.close()

    @property
    def results(self) -> dict[str, ResultsBuffer]:
        """What it gave, if that is a query's results."""
        return {self.work.query: self.given} if isinstance(self.given, ResultsBuffer) else {}

    def close(self) -> FragmentReport:
        """Writes new segments; says what there is now."""
        held = {name: list(state.segments) for name, state in self._named(self.execution).items()}
        written = write_packs(self.files, self._path, held, self.memory)
        new = (segment for segments in held.values() for segment in segments if segment.place is None)
        self.written = {id(segment): entry for segment, entry in zip(new, written, strict=True)}
        entries = self.entries = [*self._kept(held), *written]
        remove_unused(self.files, self.flushed, entries)
        work = Work()
        for box in self.boxes:
            work.add(box.work)
        figures = self.figures if self.migrating is None else self.migrating.figures
        return FragmentReport(
            entries=entries,
            rows_in=self.rows_in,
            rows_out=self.given.rows,
            state_rows=sum(entry.rows for entry in entries),
            state_bytes=sum(entry.bytes for entry in entries),
            work=work,
            passed=self.execution.passed,
            migrated=None if self.migrating is None else self.migrating.done,
            held_from=None if self.migrating is None else self.migrating.held_from,
            processed_twice=figures.processed_twice + self.crossing,
            extra_rows=max(figures.extra_rows, figures.peak_extra_rows) + sum(s.rows for s in self.ahead.values()),
            operators=self.watches[0].reports(),
            target_operators=[report for watch in self.watches[1:] for report in watch.reports()],
        )

    def _kept(self, held: Mapping[StateKey, Sequence[Segment]]) -> list[SegmentEntry]:
        """The entries of segments that lie in files already, under the names their states have now."""
        known = {entry.place: entry for entry in self.entries}
        return [
            replace(known[segment.place].counted(segment), state=state, key=key)
            for (state, key), segments in held.items()
            for segment in segments
            if segment.place is not None
        ]


def _is_plain(work: FragmentWork) -> bool:
    """Whether work is a plan's alone: no migration, no part of a query's groups or time, no windows of others."""
    return work.migration is None and work.side is None and work.track is None and not work.probed


def read_windows(
    box: Box, windows: Mapping[WindowName, Mapping[int, Sequence[SegmentEntry]]], files: Files, slot: int
) -> None:
    """Lets one-way joins read the windows that other fragments keep in the slot."""
    opened: dict[WindowName, list[Segment]] = {}
    for operator in box.operators:
        if isinstance(operator, OneWayJoin) and operator.probed in windows:
            name, state = operator.probed, operator.window
            if name not in opened:
                stored = open_states(files, windows[name].get(slot, ()), {state.id: state.schema})
                opened[name] = stored.get((state.id, state.key), [])
            state.replace_segments(opened[name])


def buffer_of(work: FragmentWork, memory: Memory) -> OutputBuffer:
    """Takes what a fragment gives."""
    return ResultsBuffer(memory.given, work.plan) if work.fragment.reader is None else ForwardBuffer(memory.given)


def remove_unused(files: Files, written: Sequence[str], entries: Sequence[SegmentEntry]) -> None:
    """Removes packs of this very step whose segments have all been merged into others."""
    used = {entry.file for entry in entries}
    for path in written:
        if path not in used:
            files.delete(path)


def _names(execution: Execution) -> dict[StateKey, SortedState]:
    """The states under the names they are stored by: what they hold, or during a migration also for whom."""
    if isinstance(execution, SingleBox):
        return {(state.id, state.key): state for state in execution.states()}
    return {(name, state.key): state for name, state in execution.named_states()}
