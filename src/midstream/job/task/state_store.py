"""The segments of a task in a slot: opened by their entries, moved into files when they are many, written and named.

Tasks of a slot have a pool in common, so that what several hold is opened once and written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from midstream.checkpoint.files import Files
from midstream.checkpoint.names import name_for
from midstream.checkpoint.packs import SegmentEntry, StateKey, open_segment
from midstream.job.task.kept_tasks import HeldSegments
from midstream.job.task.memory import Memory
from midstream.job.task.memory_limits import write_packs
from midstream.job.task.pool import Pool
from midstream.operators.state.segment import Segment
from midstream.operators.state.sorted_state import SortedState

NamedState = tuple[StateKey, SortedState]
"""A state with the name that it is stored by."""


@dataclass(slots=True)
class StateStore:
    """Where a task's states are: in files of the batch `batch_id`, named after the slot and a fragment's `number`."""

    slot: int
    files: Files
    pool: Pool
    batch_id: int
    memory: Memory
    number: int = 0
    flushed: list[str] = field(default_factory=list)
    """The files that were written before the task was closed."""
    held: HeldSegments = field(default_factory=HeldSegments)
    """What a closed task holds for the next batch."""

    def take_up(self, files: Files, pool: Pool, batch_id: int, memory: Memory) -> None:
        """Goes on with another batch."""
        pool.known.update(self.held.segments)
        self.files, self.pool, self.batch_id, self.memory, self.flushed = files, pool, batch_id, memory, []

    def open(self, entries: Sequence[SegmentEntry], state: SortedState) -> list[Segment]:
        """The segments of a state, without those that turn out to be empty."""
        segments = (self.pool.open(self.files, entry, state) for entry in entries)
        return [segment for segment in segments if len(segment)]

    def spill(self, states: Sequence[NamedState]) -> None:
        """Moves new segments into files and maps them once they are many."""
        new = {id(s): (s, state) for _, state in states for s in state.segments if s.place is None}
        if sum(segment.bytes for segment, _ in new.values()) <= self.memory.new_state:
            return
        self.flushed += self.write(states)
        mapped: dict[int, Segment] = {}
        for number, (_, state) in new.items():
            entry = self.pool.written.pop(number)
            mapped[number] = self.pool.opened[entry.place] = open_segment(self.files, entry, state.schema)
            self.pool.entries[entry.place] = entry
        for _, state in states:
            if any(id(segment) in mapped for segment in state.segments):
                state.segments = [mapped.get(id(segment), segment) for segment in state.segments]

    def write(self, states: Iterable[NamedState]) -> list[str]:
        """Writes the segments that nobody has written yet; gives the names of the packs."""
        new: dict[int, tuple[StateKey, Segment]] = {}
        for name, state in states:
            for segment in state.segments:
                if segment.place is None and id(segment) not in self.pool.written:
                    new.setdefault(id(segment), (name, segment))
        held: dict[StateKey, list[Segment]] = {}
        for name, segment in new.values():
            held.setdefault(name, []).append(segment)
        path = partial(name_for, "state", self.batch_id, self.slot, self.number)
        entries = write_packs(self.files, path, held, self.memory)
        ordered = [segment for segments in held.values() for segment in segments]
        self.pool.written.update({id(s): e for s, e in zip(ordered, entries, strict=True)})
        return sorted({entry.file for entry in entries})

    def remove_merged(self, states: Iterable[NamedState]) -> None:
        """Removes the files written before the task was closed of which states no longer hold anything.

        States of one name need not be the same: queries may compute one content in different ways.
        """
        if self.flushed:
            held = [self.pool.entry(segment, name) for name, state in states for segment in state.segments]
            remove_unused(self.files, self.flushed, held)

    def entries(self, states: Iterable[NamedState]) -> list[SegmentEntry]:
        """What states hold, written and named; of states of one name, the last."""
        found = {name: [self.pool.entry(segment, name) for segment in state.segments] for name, state in states}
        return [entry for entries in found.values() for entry in entries]

    def hold(self, states: Iterable[SortedState]) -> None:
        """Holds what closed states hold, for the next batch."""
        pool = self.pool

        def entry_of(segment: Segment) -> SegmentEntry:
            return pool.written[id(segment)] if segment.place is None else pool.entries[segment.place]

        self.held.hold(states, entry_of, self.files, self.memory.new_state)


def remove_unused(files: Files, written: Sequence[str], entries: Sequence[SegmentEntry]) -> None:
    """Removes packs of this very step whose segments have all been merged into others."""
    used = {entry.file for entry in entries}
    for path in written:
        if path not in used:
            files.delete(path)


def by_state(entries: Sequence[SegmentEntry]) -> Mapping[StateKey, list[SegmentEntry]]:
    """Entries by the states that they are of."""
    found: dict[StateKey, list[SegmentEntry]] = {}
    for entry in entries:
        found.setdefault((entry.state, entry.key), []).append(entry)
    return found
