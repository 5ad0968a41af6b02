"""Groups that leave a slot by PTLB, at work there: with marks, and without results that the receiver gives.

What the slot holds of the groups when the move begins is old; what comes afterwards comes to the receiver too, and is
new. A combined row is new if all its parts are, and the root leaves such results out: the receiver has all their parts.
When no old row can meet another any more, the slot is not needed for the groups.
"""

from __future__ import annotations

from dataclasses import replace

from midstream.algebra.physical import Source
from midstream.checkpoint.packs import StateKey, open_states
from midstream.distribution.old_track import holds_old
from midstream.job.task.fragment_task import FragmentTask
from midstream.job.task.marked_states import MARKED
from midstream.job.task.reports import FragmentReport
from midstream.migration.execution import Execution
from midstream.migration.marks import mark_segment, marked_plan, with_mark
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.operators.state.sorted_state import SortedState


class MarkedTask(FragmentTask):
    """A fragment of groups that leave, at work in one slot."""

    def _box(self) -> Box:
        return Box(marked_plan(self.work.fragment.plan), self.work.functions)

    @property
    def sources(self) -> tuple[Source, ...]:
        """What it must be fed with, without marks."""
        return tuple(self.work.fragment.sources)

    def feed(self, alias: str, elements: Elements) -> None:
        """Takes elements of a source, which the receiver gets as well."""
        super().feed(alias, with_mark(elements, alias, old=False))

    def _named(self, execution: Execution) -> dict[StateKey, SortedState]:
        return {(MARKED + state.id, state.key): state for state in execution.states()}

    def _fill(self, execution: Execution) -> None:
        """Opens marked states; marks what was there before the move as old."""
        if all(entry.state.startswith(MARKED) for entry in self.entries):
            super()._fill(execution)
            return
        before = Box(self.work.fragment.plan, self.work.functions)
        schemas = {state.id: state.schema for state in before.states()}
        stored = open_states(self.files, self.entries, schemas)
        for plain, state in zip(before.states(), execution.states(), strict=True):
            segments = stored.get((plain.id, plain.key), ())
            state.replace_segments([mark_segment(segment, state.schema) for segment in segments])

    def close(self) -> FragmentReport:
        """Writes new segments; says what there is now, and whether any of it is old."""
        old = holds_old(self.execution.states(), self.boxes[0].frontier)
        # Its operators are not those of the plan, whose figures the others give.
        return replace(super().close(), old=old, operators=[])
