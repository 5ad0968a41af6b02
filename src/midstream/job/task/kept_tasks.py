"""Tasks that stay alive between batches, where one process runs all of a job's batches.

A task is what its segments and its frontier make it, and segments never change. So a task that has been closed is the
same as one opened from a manifest that names the segments it closed with and the frontier it reached. Where the
manifest of a batch names anything else (an attempt failed, state was moved, a plan was migrated, the job was taken up
again), the task is dropped and another one is opened. A task is kept only once its step has ended well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from midstream.checkpoint.files import Files, SideBySide
from midstream.checkpoint.maps import Mapped
from midstream.checkpoint.opening import narrowed_segment, open_in
from midstream.checkpoint.packs import SegmentEntry, StateKey
from midstream.checkpoint.records import grouped
from midstream.job.task.reports import Report
from midstream.operators.state.segment import Segment
from midstream.operators.state.sorted_state import Allowance, SortedState, unify


class Keepable(Protocol):
    """A task that can go on in the next batch."""

    @property
    def key(self) -> tuple[tuple[str, int], ...]:
        """The fragments that it runs."""

    def rest(self) -> None:
        """Gets ready for the next batch."""


Kept = TypeVar("Kept", bound=Keepable)


class KeptTasks(Generic[Kept]):
    """The tasks of one stage in one slot, between two batches."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[tuple[str, int], ...], Kept] = {}

    def take(self) -> dict[tuple[tuple[str, int], ...], Kept]:
        """The tasks that were kept, which are then gone from here: a step that fails leaves none."""
        tasks, self._tasks = self._tasks, {}
        return tasks

    def keep(self, tasks: Iterable[Kept]) -> None:
        """Keeps closed tasks for the next batch."""
        self._tasks = {task.key: task for task in tasks}
        for task in self._tasks.values():
            task.rest()


@dataclass(slots=True)
class HeldSegments:
    """The segments that a closed task holds, by place: mapped files, and some that are still in memory."""

    segments: dict[str, Segment] = field(default_factory=dict)
    in_memory: set[str] = field(default_factory=set)
    bytes: int = 0
    """What those in memory take."""

    def hold(
        self,
        states: Iterable[SortedState],
        entry_of: Callable[[Segment], SegmentEntry],
        files: Files,
        most_in_memory: int,
        in_memory: Collection[str] = (),
    ) -> None:
        """Holds what closed states hold; of more than so many bytes in memory the largest segments are mapped instead.

        Some had been taken over that were `in_memory`. Where there is much more than that, of a sudden, it becomes less
        from batch to batch: none of them waits for all of it.
        """
        found: dict[str, Segment] = {}
        entries: dict[str, tuple[SegmentEntry, SortedState]] = {}
        self.in_memory.update(in_memory)
        for state in states:
            for segment in state.segments:
                if segment.place is None and state.rests:
                    entry = entry_of(segment)
                    found[entry.place] = open_in(files, entry, state)
                elif segment.place is None or segment.within is not None:
                    entry = entry_of(segment)
                    if segment.place is None or segment.place in self.in_memory:
                        entries[entry.place] = (entry, state)
                        self.in_memory.add(entry.place)
                    origin = entry.origin if entry.is_part else None
                    narrowed = None if segment.narrowed is None else segment.narrowed.at(entry.stored_place)
                    known = replace(segment, place=entry.place, origin=origin, within=None, narrowed=narrowed)
                    found[entry.place] = known
                else:
                    found[segment.place] = segment
                    if segment.place in self.in_memory:
                        entries[segment.place] = (entry_of(segment), state)
        self.in_memory &= found.keys()
        before = self.bytes or sum(found[place].bytes for place in found.keys() & in_memory)
        self.bytes = sum(found[place].bytes for place in self.in_memory)
        most = max(most_in_memory, before - before // 16)
        for place in sorted(self.in_memory, key=lambda place: -found[place].bytes) if self.bytes > most else ():
            if self.bytes > most:
                self.bytes -= found[place].bytes
                found[place] = open_in(files, *entries[place])
                self.in_memory.remove(place)
        self.segments = found


@dataclass(slots=True)
class Collected:
    """The reports of steps, and the files that each of them has begun to write among those of the checkpoint."""

    files: Files
    reports: list[Report] = field(default_factory=list)
    _writing: list[tuple[Report, SideBySide]] = field(default_factory=list)
    _waiting: Lock = field(default_factory=Lock)

    def begin(self, report: Report, files: SideBySide) -> None:
        """A step begins to write."""
        self._writing.append((report, files))

    def wait(self) -> None:
        """Waits until all files are there; reports then tell what writing them took.

        Several threads may wait. Whoever fails first raises the failure; no file is being written any more then.
        """
        with self._waiting:
            failures: list[BaseException] = []
            while self._writing:
                report, files = self._writing.pop()
                try:
                    files.wait()
                except Exception as failure:
                    failures.append(failure)
                report.processor += files.processor
            if failures:
                raise failures[0]


class KeepsWindows(Protocol):
    """A task whose windows others may keep too."""

    def windows(self) -> Iterator[tuple[object, int, SortedState]]:
        """The windows that it keeps, by what they hold, with the frontier up to which they forgot."""

    def named_states(self) -> Iterable[tuple[StateKey, SortedState]]:
        """All that it remembers, by the names under which it is stored."""


@dataclass(slots=True)
class Pool:
    """What the tasks of a slot hold together: segments opened once, written once."""

    tasks: list[KeepsWindows] = field(default_factory=list)
    opened: dict[str, Segment] = field(default_factory=dict)
    entries: dict[str, SegmentEntry] = field(default_factory=dict)
    written: dict[int, SegmentEntry] = field(default_factory=dict)
    known: dict[str, Segment] = field(default_factory=dict)
    """Segments that tasks kept open since the last batch, by place."""
    wider: dict[str, Segment] = field(default_factory=dict)
    """Those of them that are narrowed, by the places of what they were narrowed from."""
    in_memory: set[str] = field(default_factory=set)
    """Those of them that are not mapped files."""
    packs: dict[str, Mapped] = field(default_factory=dict)
    whole: dict[str, pa.RecordBatch] = field(default_factory=dict)
    """The files that were opened, and the stored segments of which parts were."""
    allowance: Allowance = field(default_factory=Allowance)
    """How much they may merge together."""

    def hold(self, held: HeldSegments) -> None:
        """Knows the segments that a closed task holds."""
        self.known.update(held.segments)
        self.in_memory |= held.in_memory

    def open(self, files: Files, entry: SegmentEntry, state: SortedState) -> Segment:
        """The segment of an entry."""
        place = entry.place
        if (known := self.opened.get(place)) is None:
            known = self.known.get(place)
            if known is None and (stored := self._stored(entry)) is not None:
                known = narrowed_segment(stored, entry, state)
            elif known is None:
                known = open_in(files, entry, state, self.packs, self.whole if entry.is_part else None)
            self.opened[place], self.entries[place] = known, entry
        return known

    def _stored(self, entry: SegmentEntry) -> Segment | None:
        """What a task kept open of a segment that is to be narrowed."""
        if entry.narrowed is None:
            return None
        place = entry.stored_place
        if (stored := self.known.get(place)) is not None:
            return stored
        if not self.wider:
            self.wider.update({s.narrowed.place: s for s in self.known.values() if s.narrowed is not None})
        return self.wider.get(place)

    def unify(self) -> None:
        """Lets equal windows of tasks hold the same segments."""
        windows = (window for task in self.tasks for window in task.windows())
        unify(grouped((token, (frontier, frontier, state)) for token, frontier, state in windows).values())

    def entry(self, segment: Segment, name: StateKey) -> SegmentEntry:
        """Where a segment is, under the name of a state."""
        known = self.written[id(segment)] if segment.place is None else self.entries[segment.place].of(segment)
        return known if (known.state, known.key) == name else replace(known, state=name[0], key=name[1])
