"""Routed joins as physical plans: the whole join, and what it becomes where windows lie in slots.

The join as a whole says, for each stream, in which order its new rows meet the windows of the others and where. In one
place it runs as the multi-way join that it is. In slots it is cut into one-way joins.
"""

from __future__ import annotations

from dataclasses import dataclass

from midstream.algebra.physical import MultiwayJoin
from midstream.algebra.placements import ARROWS, Placement
from midstream.errors import InternalError

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoutedJoin(MultiwayJoin):
    """An inner join of streams by ways: probe routes with a placement for each probe."""

    placements: tuple[tuple[Placement, ...], ...] = ()

    def __post_init__(self) -> None:
        if [len(way) for way in self.placements] != [len(route) for route in self.routes]:
            raise InternalError("a routed join needs a placement for every probe")
        for i, route in enumerate(self.routes):
            if sorted(step.target for step in route) != [j for j in range(len(self.joined)) if j != i]:
                raise InternalError(f"the way of input {i} must meet every other input once")

    @property
    def label(self) -> str:
        def show(i: int) -> str:
            steps = zip(self.routes[i], self.placements[i], strict=True)
            return " ".join([str(i), *(f"{ARROWS[placed]} {step.target}" for step, placed in steps)])

        return f"RoutedJoin on {self.condition} by {', '.join(map(show, range(len(self.routes))))}"
