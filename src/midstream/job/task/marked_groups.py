"""Groups that leave a slot by PTLB, at work there: with marks, and without results that the receiver gives.

What the slot holds of the groups when the move begins is old; what comes afterwards comes to the receiver too, and is
new. A combined row is new if all its parts are, and the root leaves such results out: the receiver has all their parts.
When no old row can meet another any more, the slot is not needed for the groups. In plans of several stages marks
travel with the rows, and only the last stage leaves results out.

The states are stored under names of their own. If the move is cancelled, the slot keeps the groups: their states are
read without the marks then, and written as the plan keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from midstream.algebra.declarations import UserFunction
from midstream.algebra.physical import PhysicalNode, SourceNode
from midstream.checkpoint.files import Files
from midstream.checkpoint.opening import open_states
from midstream.checkpoint.packs import SegmentEntry, StateKey
from midstream.distribution.fragments import Received
from midstream.job.task.state_store import NamedState, StateStore, by_state
from midstream.job.task.works import FragmentWork
from midstream.migration.marks import (
    holds_old,
    mark_segment,
    marked_fragment,
    marked_plan,
    unmark_segment,
    with_mark,
    with_mark_received,
)
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.operators.state.segment import Segment


class MarkedGroups:
    """A fragment of groups that leave, as a box whose rows know whether they have come before the move."""

    def __init__(self, work: FragmentWork) -> None:
        self.work = work
        self.box = Box(marked_fragment(work.fragment.plan, work.fragment.reader is None), work.functions)

    def arriving(self, source: SourceNode, elements: Elements) -> Elements:
        """Elements of a stream, which the receiver gets as well, or of another fragment, which has marked them."""
        alias = source.stream.alias
        if isinstance(source, Received):
            return with_mark_received(elements, alias)
        return with_mark(elements, alias, old=False)

    def named_states(self) -> Iterator[NamedState]:
        """The states under the names they are stored by."""
        for state in self.box.states():
            yield (MARKED + state.id, state.key), state

    def is_marked(self, entries: Sequence[SegmentEntry]) -> bool:
        """Whether entries are of states whose rows are marked."""
        return all(entry.state.startswith(MARKED) for entry in entries)

    def mark(self, entries: Sequence[SegmentEntry], store: StateStore) -> None:
        """Marks what was there before the move as old."""
        before, stored = Box(self.work.fragment.plan, self.work.functions), by_state(entries)
        for plain, state in zip(before.states(), self.box.states(), strict=True):
            segments = store.open(stored.get((plain.id, plain.key), ()), plain)
            state.replace_segments([mark_segment(segment, state.schema) for segment in segments])

    @property
    def holds_old(self) -> bool:
        """Whether a row with an old part can still meet another."""
        return holds_old(self.box.states(), self.box.frontier)


MARKED = "marked/"
"""What stands before the names of states whose rows are marked."""


def unmarked(
    files: Files, marked: Sequence[SegmentEntry], plan: PhysicalNode, functions: Mapping[str, UserFunction]
) -> dict[StateKey, list[Segment]]:
    """What entries of states with marks hold, without marks, by the states of the plan."""
    plain, twins = Box(plan, functions).states(), list(Box(marked_plan(plan), functions).states())
    stored = open_states(files, marked, {MARKED + twin.id: twin for twin in twins})
    return {
        (state.id, state.key): [unmark_segment(s, state.schema) for s in stored.get((MARKED + twin.id, twin.key), ())]
        for state, twin in zip(plain, twins, strict=True)
    }
