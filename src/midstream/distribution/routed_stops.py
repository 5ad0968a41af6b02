"""The probes of a routed join's way in slots: how partial results get to each, and how its window is kept.

Destination placement sends partial results to the slot of their key, or to every slot where a probe has no equal key;
source placement keeps the window in every slot in which a way's partial results are then, and they stay. They also stay
where the last probe left rows with equal keys together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from midstream.algebra.physical import ProbeStep
from midstream.algebra.placements import Placement
from midstream.operators.elements import Key

Slots = tuple[int, ...]


class Travel(Enum):
    """How rows get to the slot of their next probe, or a stream's rows to the slots that keep them."""

    BY_KEY = "by key"
    TO_ALL = "to all slots"
    STAY = "stay"


@dataclass(frozen=True, slots=True)
class Stop:
    """One probe of a way: how partial results get there, by which key, how the window is spread, and in which slots.

    No slots stand for all of them.
    """

    travel: Travel
    key: Key
    kept: Travel
    slots: Slots = ()


def stops(
    route: Sequence[ProbeStep], placements: Sequence[Placement], homes: Sequence[Slots] = (), start: Slots = ()
) -> list[Stop]:
    """The probes of one way that starts in some slots.

    Windows by key are kept in the slots of the streams' `homes`, where they have one.
    """
    found, together, here = list[Stop](), set[Key](), start
    for step, placement in zip(route, placements, strict=True):
        if placement is Placement.SOURCE:
            together |= {step.target_key} if step.key in together else set()
            found.append(Stop(Travel.STAY, step.key, Travel.TO_ALL, here))
        elif step.key:
            home = homes[step.target] if homes else ()
            travel = Travel.STAY if step.key in together and home == here else Travel.BY_KEY
            here = home
            together = (together if travel is Travel.STAY else set()) | {step.key, step.target_key}
            found.append(Stop(travel, step.key, Travel.BY_KEY, home))
        else:
            together, here = set(), ()
            found.append(Stop(Travel.TO_ALL, step.key, Travel.STAY))
    return found
