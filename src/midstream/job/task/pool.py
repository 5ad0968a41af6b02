"""What the tasks of one slot hold together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from midstream.checkpoint.files import Files
from midstream.checkpoint.maps import Mapped
from midstream.checkpoint.packs import SegmentEntry, StateKey, open_segment
from midstream.operators.state.segment import Segment
from midstream.operators.state.sorted_state import SortedState


class KeepsWindows(Protocol):
    """A task whose windows others may keep too."""

    def windows(self) -> Iterator[tuple[object, int, SortedState]]:
        """The windows that it keeps, by what they hold, with the frontier up to which they forgot."""


@dataclass(slots=True)
class Pool:
    """What the tasks of a slot hold together: segments opened once, written once."""

    tasks: list[KeepsWindows] = field(default_factory=list)
    opened: dict[str, Segment] = field(default_factory=dict)
    entries: dict[str, SegmentEntry] = field(default_factory=dict)
    written: dict[int, SegmentEntry] = field(default_factory=dict)
    known: dict[str, Segment] = field(default_factory=dict)
    """Segments that tasks kept open since the last batch, by place."""
    packs: dict[str, Mapped] = field(default_factory=dict)
    whole: dict[str, pa.RecordBatch] = field(default_factory=dict)
    """The files that were opened, and the stored segments of which parts were."""
    unified: bool = False

    def open(self, files: Files, entry: SegmentEntry, state: SortedState) -> Segment:
        """The segment of an entry."""
        if entry.place not in self.opened:
            known = self.known.get(entry.place)
            if known is None:
                known = open_segment(files, entry, state.schema, self.packs, self.whole if entry.is_part else None)
            self.opened[entry.place] = known
            self.entries[entry.place] = entry
        return self.opened[entry.place]

    def unify(self) -> None:
        """Lets equal windows hold the same segments: those of the one that has forgotten least."""
        if self.unified:
            return
        self.unified = True
        equal: dict[object, list[tuple[int, SortedState]]] = defaultdict(list)
        for task in self.tasks:
            for token, frontier, state in task.windows():
                equal[token].append((frontier, state))
        for windows in equal.values():
            first = min(windows, key=lambda window: window[0])[1]
            for _, other in windows:
                if other is not first:
                    other.replace_segments(first.segments)

    def entry(self, segment: Segment, name: StateKey) -> SegmentEntry:
        """Where a segment is, under the name of a state."""
        known = self.written[id(segment)] if segment.place is None else self.entries[segment.place].counted(segment)
        return known if (known.state, known.key) == name else replace(known, state=name[0], key=name[1])
