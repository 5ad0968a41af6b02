"""Algorithm 3 as it is printed: distributed modification in rounds of swaps, each told to neighbours and migrated.

For every head but the changed stream itself, the changed stream finds its place. Where its one-way join became dearer,
a message is relayed along the streams after it, and the last node informs the cheapest of them, which swaps places with
it. Where it became cheaper, it is compared with the streams before it from the first on, and swaps with the first that
costs more. Then every later position is settled by a relay. Nodes that swap exchange their sets, and inform the nodes
of the streams before and after either. A one-way join whose cheaper place has changed moves there. Windows are
requested at every swap and every change of place, and the nodes concerned are synchronised in two phases.

`distributed.py` is what runs: it adds the triggers that are missing here, and migrates once. This form counts messages.
Where the paper leaves open what is sent, a `Reading` says what is taken.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from midstream.algebra.placements import Placement
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan
from midstream.lab.papers.node_operator_sets.modification import Setting
from midstream.lab.papers.node_operator_sets.statistics import Flow, Statistics, starting
from midstream.optimizer.routed.plan import HeadPlan, OneWay


@dataclass(frozen=True, slots=True)
class Reading:
    """What the printed text leaves open.

    `answered`: a relay that finds nothing to swap ends with a message to the node that began it. `neighbours`: both
    swapped nodes inform theirs, or a node that both have is informed once. `synchronised`: after each swap, those who
    swapped and their neighbours; after each head's way, all nodes concerned in it; or all heads go through positions
    together, and after each such round all nodes concerned in it.
    """

    answered: bool = True
    neighbours: Literal["each", "once"] = "each"
    synchronised: Literal["swap", "way", "round"] = "swap"


@dataclass(slots=True)
class Printed:
    """What the printed algorithm sends, and the plan that it ends in."""

    messages: Counter[str] = field(default_factory=Counter)
    swaps: int = 0
    plan: JoinPlan | None = None

    def synchronise(self, nodes: set[str]) -> None:
        """Two phases, in each of which every node sends a message to all others."""
        self.messages["synchronise"] += 2 * len(nodes) * (len(nodes) - 1)

    @property
    def modification(self) -> int:
        """Messages that determine swaps, realise them, and realise changes of placement."""
        return sum(self.messages[kind] for kind in ("relay", "inform", "exchange", "neighbour", "placement"))

    @property
    def synchronisation(self) -> int:
        """Messages of the two phases, each time they are gone through."""
        return self.messages["synchronise"]

    @property
    def migration(self) -> int:
        """Requests for windows, and the two phases."""
        return self.synchronisation + self.messages["request"]


def printed_update(
    plan: JoinPlan, old: Statistics, new: Statistics, changed: str, setting: Setting, reading: Reading
) -> Printed:
    """Modifies a plan after the statistics of one stream have changed."""
    found, ways = Printed(), list[HeadPlan]()
    rounds: dict[int, set[str]] = {}
    for way in plan:
        if way.head == changed:
            ways.append(way)
            continue
        repairing = _Way(way, new, setting, reading, found)
        ways.append(repairing.repaired(old, changed))
        for position, nodes in repairing.concerned.items():
            rounds.setdefault(position, set()).update(nodes)
    if reading.synchronised == "round":
        for nodes in rounds.values():
            found.synchronise(nodes)
    found.plan = JoinPlan(tuple(ways))
    return found


@dataclass(slots=True)
class _Way:
    """The way of a head while it is repaired: positions count from 0, and the head stands before them."""

    way: HeadPlan
    statistics: Statistics
    setting: Setting
    reading: Reading
    found: Printed
    order: list[str] = field(init=False)
    placements: list[Placement] = field(init=False)
    concerned: dict[int, set[str]] = field(default_factory=dict)
    """The nodes that changes at a position concern."""

    def __post_init__(self) -> None:
        self.order, self.placements = list(self.way.order), list(self.way.placements)

    def repaired(self, old: Statistics, changed: str) -> HeadPlan:
        """Both stages."""
        position = self.order.index(changed)
        if self._cost(position, changed, self.statistics) > self._cost(position, changed, old):
            self._settle_from(position)
        else:
            found = self._earlier(position, changed)
            if found is not None:
                self._swap(found, position)
                self._place(found)
            self._settle_from((position if found is None else found) + 1)
        if self.reading.synchronised == "way":
            self.found.synchronise(set().union(*self.concerned.values()))
        joins = zip(self.order, self.placements, strict=True)
        return HeadPlan(self.way.head, tuple(OneWay(target, placement) for target, placement in joins))

    def _flow(self, position: int) -> Flow:
        """What comes into a position."""
        flow = starting(self.way.head, self.statistics[self.way.head], self.setting.costs.network)
        for target, placement in zip(self.order[:position], self.placements, strict=False):
            flow = self.setting.costs.joined(flow, OneWay(target, placement), self.statistics[target])
        return flow

    def _cost(self, position: int, target: str, statistics: Statistics) -> float:
        return self.setting.costs.choice(self._flow(position), target, statistics[target])[0]

    def _earlier(self, position: int, changed: str) -> int | None:
        """The first earlier position at which the changed stream costs less (steps 14)."""
        for earlier in range(position):
            self.found.messages["relay"] += 1
            if self._cost(earlier, changed, self.statistics) < self._cost(
                earlier, self.order[earlier], self.statistics
            ):
                self.found.messages["inform"] += 1
                return earlier
        self.found.messages["inform"] += self.reading.answered and position > 0
        return None

    def _settle_from(self, first: int) -> None:
        """Steps 6 to 8 for every position from one on."""
        for position in range(first, len(self.order)):
            last = len(self.order) - 1
            self.found.messages["relay"] += last - position
            costs = [self._cost(position, target, self.statistics) for target in self.order[position:]]
            cheapest = position + costs.index(min(costs))
            if cheapest != position:
                self.found.messages["inform"] += cheapest != last
                self._swap(position, cheapest)
            elif position < last:
                self.found.messages["inform"] += self.reading.answered
            self._place(position)

    def _swap(self, first: int, second: int) -> None:
        """Two streams change places: their nodes exchange sets and request windows, and inform the neighbours."""
        self.order[first], self.order[second] = self.order[second], self.order[first]
        self.found.swaps += 1
        self.found.messages["exchange"] += 2
        self.found.messages["request"] += 2
        swapped = {self.order[first], self.order[second]}
        around = [[s for s in self._around(position) if s not in swapped] for position in (first, second)]
        informed = around[0] + around[1]
        told = len(set(informed)) if self.reading.neighbours == "once" else len(informed)
        self.found.messages["neighbour"] += told
        self._concern(first, swapped | set(informed))

    def _around(self, position: int) -> list[str]:
        """The streams before and after a position; the head stands before the first."""
        before = self.order[position - 1] if position else self.way.head
        return [before, *self.order[position + 1 : position + 2]]

    def _place(self, position: int) -> None:
        """A one-way join moves to the cheaper place, with the window that it probes."""
        target = self.order[position]
        chosen = self.setting.costs.choice(self._flow(position), target, self.statistics[target])[1]
        if chosen is not self.placements[position]:
            self.placements[position] = chosen
            self.found.messages["placement"] += 1
            self.found.messages["request"] += 1
            self._concern(position, {target, self._around(position)[0]})

    def _concern(self, position: int, nodes: set[str]) -> None:
        self.concerned.setdefault(position, set()).update(nodes)
        if self.reading.synchronised == "swap":
            self.found.synchronise(nodes)


def readings() -> list[Reading]:
    """Every reading; the first is the most literal one."""
    every: tuple[Literal["swap", "way", "round"], ...] = ("swap", "way", "round")
    told: tuple[Literal["each", "once"], ...] = ("each", "once")
    return [Reading(answered, each, when) for answered in (True, False) for each in told for when in every]
