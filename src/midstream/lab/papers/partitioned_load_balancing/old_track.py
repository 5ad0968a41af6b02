"""The groups that PTLB moves, as the sender runs them: apart from its other groups, and with marks.

What the sender holds of the groups when the first split operator starts to duplicate is old, and so are rows that have
come to it alone. Rows that have gone to both machines are new. Only results with an old part are given. Nothing is
compared across groups, so to run some apart changes no result.

Rows are kept for the intersection of their parts' intervals or, as in the paper, for a window after the latest part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from midstream.errors import MigrationError
from midstream.lab.papers.parallel_track import (
    any_old,
    global_window,
    timed,
    timed_elements,
    timed_segment,
    untimed,
    with_old_part,
)
from midstream.lab.papers.partitioned_load_balancing.group_states import Shipped
from midstream.migration.execution import SingleBox
from midstream.migration.marks import holds_old, mark_segment, marked_plan, with_mark
from midstream.migration.protocol import Functions
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.operators.state.sorted_state import SortedState
from midstream.scheduling.scheduler import Scheduler, Sink

Schedule = Callable[[Box, Sink], Scheduler]


class OldTrack:
    """Runs groups at the sender until nothing old is left of them."""

    def __init__(
        self,
        shipped: Shipped,
        sink: Sink,
        by_intervals: bool = True,
        schedule: Schedule = Scheduler,
        functions: Functions | None = None,
        marked: bool = False,
    ) -> None:
        """`marked` says that the shipped states are those of such a track already, for a restart."""
        self.plan, self.by_intervals, self.sink = shipped.plan, by_intervals, sink
        self.window = 0
        if by_intervals:
            box = Box(marked_plan(shipped.plan), functions)
            self.execution = SingleBox(box, sink, schedule)
        else:
            window = global_window(shipped.plan)
            if window is None:
                raise MigrationError("the paper's parallel track needs one window for all streams")
            self.window = window
            box = Box(timed(shipped.plan, window), functions)
            self.execution = SingleBox(box, self._untimed, schedule)
        for state, segments in zip(box.states(), shipped.segments, strict=True):
            if not marked and by_intervals:
                segments = tuple(mark_segment(s, state.schema) for s in segments)
            elif not marked:
                segments = tuple(timed_segment(s, state.schema, self.window) for s in segments)
            state.replace_segments(segments)
        box.restore(shipped.frontier)

    def feed(self, alias: str, batch: Elements, new: bool) -> None:
        """Takes rows of the groups; `new` if the receiver has got them as well."""
        if self.by_intervals:
            self.execution.feed(alias, with_mark(batch, alias, old=not new))
        else:
            self.execution.feed(alias, timed_elements(batch, alias, old=not new))

    def advance(self, frontier: int) -> None:
        """Carries the frontier through the groups' box."""
        self.execution.advance(frontier)

    @property
    def passed(self) -> int:
        """The frontier of the results."""
        return self.execution.passed

    @property
    def holds_old(self) -> bool:
        """Whether a row with an old part can still meet another."""
        frontier = self.execution.box.frontier
        if self.by_intervals:
            return holds_old(self.states(), frontier)
        return any(any_old(state, frontier) for state in self.states())

    def states(self) -> Iterator[SortedState]:
        """The groups' states, with marks."""
        return self.execution.states()

    def taken(self) -> Shipped:
        """The track's states as they are, to be written down."""
        segments = tuple(tuple(state.segments) for state in self.states())
        return Shipped(self.plan, self.execution.box.frontier, segments)

    def _untimed(self, batch: Elements) -> None:
        some_old = with_old_part(batch)
        if some_old.any():
            self.sink(untimed(batch.where(some_old), self.plan.schema, self.window))
