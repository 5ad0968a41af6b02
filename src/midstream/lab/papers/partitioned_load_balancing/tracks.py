"""The boxes of a processor: one over its groups, and others for groups on the move.

PTLB's sender runs moving groups with marks. In split-time balancing both machines run them in a box of its own, whose
results are held back until the split time is known and then limited to one side of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from midstream.algebra.physical import PhysicalNode
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.lab.papers.partitioned_load_balancing.group_states import Shipped
from midstream.lab.papers.partitioned_load_balancing.old_track import OldTrack, Schedule
from midstream.lab.papers.partitioned_load_balancing.protocols.processor import Side
from midstream.migration.execution import SingleBox
from midstream.migration.legality import keeps_intervals
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.scheduling.scheduler import Scheduler, Sink


class Meter(Protocol):
    """Counts what a processor does, in units of work."""

    def schedule(self, box: Box, sink: Sink) -> Scheduler:
        """Runs a box so that its work is counted."""

    def moved(self, shipped: Shipped, box: Box) -> None:
        """Counts what it takes to bring shipped states into the form of a box."""

    def taken(self) -> float:
        """The work since the last call."""


class RowMeter:
    """Counts rows only."""

    def __init__(self, per_row: float = 0.01) -> None:
        self.per_row, self.rows = per_row, 0

    def schedule(self, box: Box, sink: Sink) -> Scheduler:
        """Counts nothing by itself."""
        return Scheduler(box, sink)

    def fed(self, rows: int) -> None:
        """Counts rows that came in."""
        self.rows += rows

    def moved(self, shipped: Shipped, box: Box) -> None:
        """Counts shipped rows."""
        self.rows += shipped.rows

    def taken(self) -> float:
        """The work since the last call."""
        rows, self.rows = self.rows, 0
        return rows * self.per_row


@dataclass(slots=True)
class Limited:
    """Groups on the move in split-time balancing, whose results count on one side of the split time only."""

    groups: tuple[int, ...]
    execution: SingleBox
    side: Side
    split_at: int | None = None
    since: int = BEGINNING
    waiting: list[Elements] = field(default_factory=list)

    def feed(self, alias: str, batch: Elements, new: bool) -> None:
        """Takes rows of the groups."""
        self.execution.feed(alias, batch)

    def given(self) -> list[Elements]:
        """The results that can leave now."""
        if self.split_at is None:
            return []
        parts = [self._limited(batch, self.split_at) for batch in self.waiting]
        self.waiting.clear()
        return [part for part in parts if len(part)]

    def _limited(self, batch: Elements, split_at: int) -> Elements:
        before = self.side == "before"
        if keeps_intervals(self.execution.box.plan):
            return batch.where(batch.valid_from < split_at if before else batch.valid_from >= split_at)
        return batch.clipped(BEGINNING, split_at) if before else batch.clipped(split_at, INFINITY)

    @property
    def passed(self) -> int:
        """The frontier of its results; where it began while they are held back."""
        return self.since if self.split_at is None else self.execution.passed

    def taken(self) -> Shipped:
        """Its states."""
        return all_of(self.execution.box)


@dataclass(slots=True)
class Marked:
    """Groups on the move at PTLB's sender."""

    groups: tuple[int, ...]
    track: OldTrack

    @property
    def execution(self) -> SingleBox:
        """The box that runs them."""
        return self.track.execution

    def feed(self, alias: str, batch: Elements, new: bool) -> None:
        """Takes rows of the groups."""
        self.track.feed(alias, batch, new)

    @property
    def passed(self) -> int:
        """The frontier of its results."""
        return self.track.passed

    def taken(self) -> Shipped:
        """Its states, with marks."""
        return self.track.taken()


Apart = Limited | Marked


def all_of(box: Box) -> Shipped:
    """All states of a box, as they are."""
    return Shipped(box.plan, box.frontier, tuple(tuple(state.segments) for state in box.states()))


def box_of(shipped: Shipped) -> Box:
    """A box with shipped states."""
    box = Box(shipped.plan)
    for state, segments in zip(box.states(), shipped.segments, strict=True):
        state.replace_segments(segments)
    box.restore(shipped.frontier)
    return box


def limited(groups: tuple[int, ...], shipped: Shipped, side: Side, schedule: Schedule) -> Limited:
    """Groups on the move with their states; none yet at the receiver."""
    waiting: list[Elements] = []
    execution = SingleBox(box_of(shipped), waiting.append, schedule)
    return Limited(groups, execution, side, None, execution.passed, waiting)


def nothing_of(plan: PhysicalNode, frontier: int) -> Shipped:
    """The states of no groups."""
    return Shipped(plan, frontier, tuple(() for _ in Box(plan).states()))
