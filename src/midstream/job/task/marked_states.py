"""The states of groups that leave by PTLB: each row has a mark that says whether it was there when the move began.

They are stored under names of their own. If the move is cancelled, the slot keeps the groups: their states are then
read without the marks, and written as the plan keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from midstream.algebra.declarations import UserFunction
from midstream.algebra.physical import PhysicalNode
from midstream.checkpoint.files import Files
from midstream.checkpoint.packs import SegmentEntry, StateKey, open_states
from midstream.migration.marks import marked_plan, unmark_segment
from midstream.operators.box import Box
from midstream.operators.state.segment import Segment

MARKED = "marked/"
"""What stands before the names of states whose rows are marked."""


def unmarked(
    files: Files, entries: Sequence[SegmentEntry], plan: PhysicalNode, functions: Mapping[str, UserFunction]
) -> dict[StateKey, list[Segment]]:
    """What the marked ones among some entries hold, without marks, by the states of the plan."""
    marked = [entry for entry in entries if entry.state.startswith(MARKED)]
    if not marked:
        return {}
    plain, twins = Box(plan, functions).states(), list(Box(marked_plan(plan), functions).states())
    stored = open_states(files, marked, {MARKED + twin.id: twin.schema for twin in twins})
    return {
        (state.id, state.key): [unmark_segment(s, state.schema) for s in stored.get((MARKED + twin.id, twin.key), ())]
        for state, twin in zip(plain, twins, strict=True)
    }
