"""A routed join as fragments: one-way joins, the windows they probe, and who reads which stream's rows by which route.

Round k of a batch carries the k-th probe of all ways in one exchange. A window is kept once for each key it is probed
by, by a fragment of its own; one-way joins of any stage read it as the batches before have left it. A batch's rows of a
stream travel to each stage in which a way may see them: once by each route, however many readers are there. Where a
probe needs no exchange it belongs to the fragment of the probe before. The last probes of all ways are in one fragment,
with what is above the join.

Destination placement sends partial results to the slot of their key, or to every slot where a probe has no equal key;
source placement keeps the window in every slot in which a way's partial results are then, and they stay. They also stay
where the last probe left rows with equal keys together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from midstream.algebra import physical as p
from midstream.algebra.physical import ProbeStep
from midstream.algebra.physical.routed import KeptWindow, OneWayJoin, RoutedJoin, Ways, WindowName
from midstream.algebra.placements import Placement
from midstream.distribution.fragments import EVERY_SLOT, STAY, Received, Route
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


Receive = Callable[[p.PhysicalNode, int, Route], Received]


class FragmentParts(Protocol):
    """Where fragments under construction are put."""

    def add(self, node: p.PhysicalNode, route: Route, stage: int = 0) -> int:
        """Adds a fragment that runs in a stage or later; gives its number."""


def routed_pieces(node: RoutedJoin, parts: FragmentParts, receive: Receive, homes: Sequence[Slots] = ()) -> Ways:
    """The last probes of all ways, whose results are the join's; everything before is added to the parts.

    `homes` are the slots of the sites at which its streams live, where they do.
    """
    homes = homes or [()] * len(node.joined)
    every = [stops(route, node.placements[head], homes, homes[head]) for head, route in enumerate(node.routes)]
    cutting = _Routed(node, parts, receive, homes=homes, copied=_copied(node, every))
    ways = [_legs(way) for way in every]
    last = max(map(len, ways))
    ends = [cutting.way(head, legs, last) for head, legs in enumerate(ways)]
    cutting.keep_windows()
    return Ways(node.schema, tuple(ends), node)


def _copied(node: RoutedJoin, ways: Sequence[Sequence[Stop]]) -> dict[WindowName, Slots]:
    """The slots of each window that is copied: all in which some way probes it; none stand for every slot."""
    found: dict[WindowName, set[Slots]] = {}
    for head, way in enumerate(ways):
        for step, stop in zip(node.routes[head], way, strict=True):
            if stop.kept is Travel.TO_ALL:
                found.setdefault(_window(node, step, stop), set()).add(stop.slots)
    return {name: () if () in at else tuple(sorted({s for slots in at for s in slots})) for name, at in found.items()}


def _window(node: RoutedJoin, step: p.ProbeStep, stop: Stop) -> WindowName:
    return WindowName(node.joined[step.target].content, step.target_key, stop.kept is Travel.TO_ALL)


Leg = Sequence[tuple[int, Stop]]
"""Probes of one fragment, each with its place on the way."""


def _legs(way: Sequence[Stop]) -> list[Leg]:
    """A way cut where partial results travel."""
    legs: list[list[tuple[int, Stop]]] = []
    for place, stop in enumerate(way):
        if not legs or stop.travel is not Travel.STAY:
            legs.append([])
        legs[-1].append((place, stop))
    return [list(leg) for leg in legs]


@dataclass(slots=True)
class _Routed:
    node: RoutedJoin
    parts: FragmentParts
    receive: Receive
    read: dict[tuple[int, Route, int], Received] = field(default_factory=dict)
    """The rows of streams on their way, by stream, route and the stage that reads them."""
    windows: dict[WindowName, tuple[int, Route]] = field(default_factory=dict)

    homes: Sequence[Slots] = ()
    """The slots in which windows by key are kept: those of the streams' sites."""

    copied: Mapping[WindowName, Slots] = field(default_factory=dict)
    """The slots that have a copy of a window each."""

    def _route(self, travel: Travel, key: tuple[str, ...], target: int) -> Route:
        by_key = Route(key, slots=self.homes[target])
        return {Travel.BY_KEY: by_key, Travel.TO_ALL: EVERY_SLOT, Travel.STAY: STAY}[travel]

    def way(self, head: int, legs: Sequence[Leg], last: int) -> p.PhysicalNode:
        """The last probes of a stream's way; those before are fragments of their own."""
        first, route = legs[0][0][1], self.node.routes[head]
        starts = self._route(first.travel, first.key, route[0].target)
        flow: p.PhysicalNode = self.rows(head, starts, 1 if len(legs) > 1 else last)
        for number, leg in enumerate(legs, 1):
            ends = number == len(legs)
            for place, stop in leg:
                flow = self._probe(head, place, stop, flow, last if ends else number)
            if not ends:
                place, following = legs[number][0]
                onward = self._route(following.travel, following.key, route[place].target)
                flow = self.receive(flow, self.parts.add(flow, onward), onward)
        return flow

    def rows(self, stream: int, route: Route, stage: int) -> Received:
        """This batch's rows of a stream, as a stage reads them by a route."""
        place = (stream, route, stage)
        if place not in self.read:
            above = self.node.joined[stream]
            self.read[place] = self.receive(above, self.parts.add(above, route), route)
        return self.read[place]

    def _probe(self, head: int, place: int, stop: Stop, flow: p.PhysicalNode, stage: int) -> OneWayJoin:
        step = self.node.routes[head][place]
        target = self.node.joined[step.target]
        window = _window(self.node, step, stop)
        if window in self.copied:
            route = replace(EVERY_SLOT, slots=self.copied[window])
        else:
            route = self._route(stop.kept, step.target_key, step.target)
        self.windows.setdefault(window, (step.target, route))
        seen = self.rows(step.target, route, stage) if step.target < head else None
        schema = self.node.schema if place == len(self.node.routes[head]) - 1 else step.gathered
        return OneWayJoin(
            schema,
            flow,
            seen,
            window,
            target.schema,
            target.longest,
            step.key,
            step.nulls_equal,
            step.residual,
            step.gathered,
        )

    def keep_windows(self) -> None:
        """Keeps every window that is probed, in the first stage that reads its stream's rows by its route anyway."""
        for name, (stream, route) in self.windows.items():
            stages = [stage for known, by, stage in self.read if (known, by) == (stream, route)]
            stage = min(stages, default=1)
            rows = self.rows(stream, route, stage)
            self.parts.add(KeptWindow(rows.schema, rows, name.key, name.everywhere), STAY, stage)


def probed_windows(plan: p.PhysicalNode) -> Iterator[WindowName]:
    """The windows that one-way joins of a fragment probe."""
    return (node.window for node in p.walk_physical(plan) if isinstance(node, OneWayJoin))
