"""A live box in three layers: what is below a part of it, the part, and what is above.

The layers run the box's own operators, so nothing is copied and nothing forgets; only the wires between the layers are
now someone else's to carry. The whole box has one grid, to which all its operators move; a layer may have no operator
that knows the grid, so whoever runs the layers must tell them the box's floor and not the frontier itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from midstream.algebra.physical import PhysicalNode
from midstream.operators.box import Box
from midstream.operators.slices import SliceOperator
from midstream.scheduling.sharing import split_box

PART = "the part"
"""The name under which what is above a part reads it."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The boxes below a part by name, the part's own, and the one above, if the part is not the top."""

    below: dict[str, Box]
    part: Box
    above: Box | None


def layered(box: Box, root: PhysicalNode, below: Mapping[str, PhysicalNode]) -> Layers:
    """Takes a live box apart around a part, given by its root and by what is below it."""
    part, above = (box, None) if root is box.plan else split_box(box, root, PART)
    lower = {}
    for name, node in below.items():
        lower[name], part = split_box(part, node, name)
    floor = box.floor(box.frontier)
    for layer in (part, *lower.values(), *(() if above is None else (above,))):
        if layer is not box:
            layer.frontier = floor
    return Layers(lower, part, above)


def go_on_in(old: Box, new: Box) -> None:
    """Lets the operators of one box go on as those of another box of the same operators."""
    new.frontier = old.frontier
    for mine, its in zip(old.operators, new.operators, strict=True):
        its.frontier = mine.frontier
        if isinstance(its, SliceOperator) and isinstance(mine, SliceOperator):
            its.done = mine.done
        for state, twin in zip(mine.states, its.states, strict=True):
            twin.replace_segments(state.segments)
