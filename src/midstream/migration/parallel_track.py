"""Parallel track: both boxes run until the old one holds nothing old (CAPE section 4.2, with interval expiry).

A tuple is old if it was in the old box when the migration began, and a combined tuple if any of its parts is. The new
box starts empty and is given everything from then on, so it gives exactly the results whose parts are all new. The old
box goes on as before, and at its root, but nowhere below, leaves those results out. A part below the root may be all
new and still meet an old one above.

Every result with an old part ends where that part ends, so once the frontier has passed the latest end that was in the
old box, no such result can come. Results of both boxes leave together in order of their start.

That holds for inner joins, whose results are as many as their combinations. A distinct or an aggregate in the old box
speaks for instants beyond the start of the migration, for which the new box speaks as well: such plans are refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from midstream.algebra.physical import SourceNode
from midstream.algebra.time import BEGINNING
from midstream.migration.execution import SingleBox
from midstream.migration.legality import require_interval_keeping, require_one_query, require_split_time
from midstream.migration.marks import Rule, any_part_old, mark_segment, marked_plan, unmark_segment, with_mark
from midstream.migration.protocol import Decision, Figures, Functions, OnTheWay, Situation, common_sources, rows_in
from midstream.migration.tracks import Top, hand_over, named_tracks, relational
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.operators.state.sorted_state import SortedState
from midstream.optimizer.plans import Plan


class ParallelTrack:
    """For selections, projections, unions and inner joins. `force` skips that question: it is there for tests."""

    name = "parallel_track"

    def __init__(self, rule: Rule = any_part_old, force: bool = False) -> None:
        self.rule = rule
        self.force = force

    def refuse(self, old: Plan, new: Plan, functions: Functions) -> None:
        """Asks for operators whose results are combinations of tuples, and for windows that end."""
        require_one_query(self.name, old, new)
        if self.force:
            return
        require_interval_keeping(
            self.name,
            (old, new),
            "results of the old box can outlive the start of the migration and double with the new box's",
        )
        require_split_time(self.name, (old, new))

    def decide(self, situation: Situation) -> Decision:
        """The end of the last old tuple."""
        return {"old_until": situation.inside}

    def open(self, old: SingleBox, new: Box, decision: Decision) -> TwoTracks:
        """Two boxes, the old one with marks."""
        return TwoTracks(old, new, decision["old_until"], self.rule)


class TwoTracks(OnTheWay):
    """Runs both boxes over everything and gives every result once."""

    def __init__(self, old: SingleBox, new: Box, old_until: int, rule: Rule) -> None:
        self.before, self.after = old, old.beside(new, old.sink)
        self.old_until = old_until
        self.figures = Figures()
        self.top = Top(old.box, old.sink)
        self.unmarked = relational(old, self.top.give)
        plan = marked_plan(self.unmarked.box.plan, rule)
        self.old = old.beside(Box(plan, old.box.functions), self.top.give)
        self.new = relational(self.after, self.top.give)
        self.sources: tuple[SourceNode, ...] = common_sources(self.unmarked, self.new)

    def begin(self) -> None:
        """Marks everything in the old box as old; the new box starts empty."""
        for state, twin in zip(self.unmarked.states(), self.old.states(), strict=True):
            twin.replace_segments([mark_segment(segment, twin.schema) for segment in state.segments])
        self.old.restore(self.unmarked.box.frontier)
        self.new.restore(self.unmarked.box.frontier)

    def feed(self, alias: str, batch: Elements) -> None:
        """Gives the batch, as new, to both boxes."""
        self.old.feed(alias, with_mark(batch, alias, old=False))
        self.new.feed(alias, batch)
        self.figures.processed_twice += len(batch)

    def advance(self, frontier: int) -> None:
        """Carries the frontier through both boxes and what stands above them."""
        self.old.advance(frontier)
        self.new.advance(frontier)
        self.top.advance(self._relation_passed)
        self.figures.holding(rows_in(self.new.states()))

    @property
    def passed(self) -> int:
        """The frontier of the results."""
        return self.top.passed(self._relation_passed)

    @property
    def _relation_passed(self) -> int:
        return min(self.old.passed, self.new.passed)

    @property
    def done(self) -> bool:
        """Whether everything old has been purged."""
        return self.old_until == BEGINNING or self._relation_passed >= self.old_until

    def finish(self) -> SingleBox:
        """Leaves the new box."""
        hand_over(self.top, self.after.box, self.new.box)
        return self.after

    def cancel(self) -> SingleBox:
        """Leaves the old box, which has had everything, without marks."""
        for state, twin in zip(self.unmarked.states(), self.old.states(), strict=True):
            state.replace_segments([unmark_segment(segment, state.schema) for segment in twin.segments])
        self.unmarked.restore(self.old.box.frontier)
        hand_over(self.top, self.before.box, self.unmarked.box)
        return self.before

    def named_states(self) -> Iterator[tuple[str, SortedState]]:
        """The states of both boxes and of the top."""
        yield from named_tracks(self.top, self.old, self.new)

    def restore(self, frontier: int) -> None:
        """Sets both boxes to a frontier that was reached earlier."""
        self.old.restore(frontier)
        self.new.restore(frontier)
        self.top.restore(self._relation_passed)
