"""Plans in the same stages: what each fragment reads, gives and sends is the same, what it does inside may differ.

Then rows meet in the same slots whichever of the plans a slot runs, and another slot cannot tell what it is sent apart.
So a fragment may go over to the other plan inside its task, in all slots or in some.
"""

from __future__ import annotations

from midstream.algebra.physical import PhysicalNode, grids_of, replaced
from midstream.distribution.fragments import Fragment, Received, Staged
from midstream.migration.plan_part import exchangeable


def differing_fragments(old: Staged, new: Staged) -> tuple[int, ...] | None:
    """The fragments in which two plans differ; None if they are not in the same stages.

    Plans of one fragment only need streams that arrive alike: nobody else reads what they give.
    """
    if old.routes != new.routes or len(old.fragments) != len(new.fragments):
        return None
    if len(old.fragments) == 1:
        return (old.root.number,)
    pairs = list(zip(old.fragments, new.fragments, strict=True))
    if old.windows or new.windows or not all(_aligned(mine, its) for mine, its in pairs):
        return None
    return tuple(mine.number for mine, its in pairs if _reading_alike(mine, its) != mine.plan)


def _aligned(mine: Fragment, its: Fragment) -> bool:
    """Whether two fragments have the same place, and give and read the same."""
    if _place(mine) != _place(its) or grids_of(mine.plan) != grids_of(its.plan):
        return False
    # Later stages keep what they are given under what it is: that must have one name and one form.
    named = mine.reader is None or mine.plan.content == its.plan.content
    return named and exchangeable(mine.plan, its.plan)


def _place(fragment: Fragment) -> tuple[object, ...]:
    received = frozenset((leaf.fragment, leaf.route) for leaf in fragment.received)
    sources = frozenset(source.stream.alias for source in fragment.sources)
    return fragment.number, fragment.stage, fragment.route, fragment.reader, received, sources


def _reading_alike(mine: Fragment, its: Fragment) -> PhysicalNode:
    """The second fragment's plan, as if it read the fragments that the first one reads."""
    known = {leaf.fragment: leaf for leaf in mine.received}
    return replaced(its.plan, lambda node: known[node.fragment] if isinstance(node, Received) else None)
