"""A routed join in slots: rounds of hops, with the key by which rows travel in each.

Round k of a batch carries the k-th one-way join of all heads, so a batch needs as many exchanges as a way is long,
whatever the number of streams. A window is kept once for each key it is probed by. Destination placement sends partial
results to the slot of their key, or to every slot where a probe has no equal key; source placement keeps the window in
every slot, and partial results stay. They also stay where the last probe left rows with equal keys together. All rows
of a batch are stored before its first round: probes see them by the delta rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from midstream.algebra.physical import ProbeStep
from midstream.algebra.placements import Placement
from midstream.distribution.routed.query import RoutedQuery
from midstream.operators.elements import Key
from midstream.optimizer.routed.plan import JoinPlan, checked


class Travel(Enum):
    """How rows get to the slot of their next probe, or a stream's rows to the slots that keep them."""

    BY_KEY = "by key"
    TO_ALL = "to all slots"
    STAY = "stay"


@dataclass(frozen=True, slots=True)
class KeptWindow:
    """A window as slots keep it: spread by its key, a copy in every slot, or spread in any way."""

    stream: str
    key: Key
    travel: Travel

    def __str__(self) -> str:
        spread = f"by {', '.join(self.key)}" if self.travel is Travel.BY_KEY else ""
        return f"{self.stream} {spread or ('in every slot' if self.travel is Travel.TO_ALL else 'anywhere')}"


@dataclass(frozen=True, slots=True)
class Hop:
    """One probe on a head's way: how its partial results travel, by which of their columns, and to which window."""

    head: str
    met: tuple[str, ...]
    travel: Travel
    key: Key
    window: KeptWindow

    def __str__(self) -> str:
        partial = "..".join((self.head, *self.met[-1:]))
        how = f"{self.travel.value} {', '.join(self.key)}" if self.travel is Travel.BY_KEY else self.travel.value
        return f"{partial} {how}, probe {self.window}"


@dataclass(frozen=True, slots=True)
class Round:
    """All hops that one exchange serves; `exchanges` is whether any row moves at all."""

    number: int
    hops: tuple[Hop, ...]

    @property
    def exchanges(self) -> bool:
        """Whether partial results move in this round."""
        return any(hop.travel is not Travel.STAY for hop in self.hops)


def rounds(query: RoutedQuery, plan: JoinPlan) -> tuple[Round, ...]:
    """The rounds of a plan; in round 0 the streams' own rows travel, from wherever they arrive."""
    ways = [_way(query, way.head, plan) for way in checked(plan, query.conditions)]
    return tuple(Round(number, tuple(hops)) for number, hops in enumerate(zip(*ways, strict=True)))


def kept_windows(found: tuple[Round, ...]) -> tuple[KeptWindow, ...]:
    """The windows that some hop probes, each once: a batch's rows are stored in all of them before round 0."""
    return tuple(dict.fromkeys(hop.window for round in found for hop in round.hops))


@dataclass(frozen=True, slots=True)
class Stop:
    """One probe of a way: how partial results get there, by which key, and how the window is spread."""

    travel: Travel
    key: Key
    kept: Travel


def stops(
    route: Sequence[ProbeStep], placements: Sequence[Placement], homes: Sequence[tuple[int, ...]] = ()
) -> list[Stop]:
    """The probes of one way in slots; windows by key are kept in those of the streams' `homes`, where they have one."""
    found, together = list[Stop](), set[Key]()
    here: tuple[int, ...] = ()
    for step, placement in zip(route, placements, strict=True):
        if placement is Placement.SOURCE:
            together |= {step.target_key} if step.key in together else set()
            found.append(Stop(Travel.STAY, step.key, Travel.TO_ALL))
        elif step.key:
            home = homes[step.target] if homes else ()
            travel = Travel.STAY if step.key in together and home == here else Travel.BY_KEY
            here = home
            together = (together if travel is Travel.STAY else set()) | {step.key, step.target_key}
            found.append(Stop(travel, step.key, Travel.BY_KEY))
        else:
            together = set()
            found.append(Stop(Travel.TO_ALL, step.key, Travel.STAY))
    return found


def _way(query: RoutedQuery, head: str, plan: JoinPlan) -> list[Hop]:
    way = plan.way(head)
    route = [query.step(head, way.order[:place], target) for place, target in enumerate(way.order)]
    hops = []
    for place, stop in enumerate(stops(route, way.placements)):
        window = KeptWindow(way.order[place], route[place].target_key, stop.kept)
        hops.append(Hop(head, way.order[:place], stop.travel, stop.key, window))
    return hops
