"""Tasks that stay alive between batches, where one process runs all of a job's batches.

A task is what its segments and its frontier make it, and segments never change. So a task that has been closed is the
same as one opened from a manifest that names the segments it closed with and the frontier it reached. Where the
manifest of a batch names anything else (an attempt failed, state was moved, a plan was migrated, the job was taken up
again), the task is dropped and another one is opened. A task is kept only once its step has ended well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from midstream.checkpoint.files import Files
from midstream.checkpoint.packs import SegmentEntry, open_segment
from midstream.operators.state.segment import Segment
from midstream.operators.state.sorted_state import SortedState


class Keepable(Protocol):
    """A task that can go on in the next batch."""

    @property
    def key(self) -> tuple[tuple[str, int], ...]:
        """The fragments that it runs."""

    def rest(self) -> bool:
        """Gets ready for the next batch; False if the task cannot go on in one."""


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
        self._tasks = {task.key: task for task in tasks if task.rest()}


@dataclass(slots=True)
class HeldSegments:
    """The segments that a closed task holds, by place: mapped files, and some that are still in memory."""

    segments: dict[str, Segment] = field(default_factory=dict)
    in_memory: set[str] = field(default_factory=set)

    def hold(
        self,
        states: Iterable[SortedState],
        entry_of: Callable[[Segment], SegmentEntry],
        files: Files,
        most_in_memory: int,
    ) -> None:
        """Holds what closed states hold; if more than so many bytes are in memory, those are mapped instead."""
        found: dict[str, Segment] = {}
        entries: dict[str, tuple[SegmentEntry, SortedState]] = {}
        for state in states:
            for segment in state.segments:
                if segment.place is None:
                    entry = entry_of(segment)
                    found[entry.place] = replace(segment, place=entry.place)
                    entries[entry.place] = (entry, state)
                    self.in_memory.add(entry.place)
                else:
                    found[segment.place] = segment
                    if segment.place in self.in_memory:
                        entries[segment.place] = (entry_of(segment), state)
        self.in_memory &= found.keys()
        if sum(found[place].bytes for place in self.in_memory) > most_in_memory:
            for place in self.in_memory:
                entry, state = entries[place]
                found[place] = open_segment(files, entry, state.schema)
            self.in_memory = set()
        self.segments = found
