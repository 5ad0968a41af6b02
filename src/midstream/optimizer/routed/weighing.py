"""What a routed join costs per tick, and a good one for a join graph.

Probes cost what those of a multi-way join cost. Where rows are spread over slots, partial results that travel by a key
are moved once, and a stream's rows are moved to each window that is kept of them: once for a window by key, once per
slot for a window in every slot. What several ways share is paid once: a window by one key is kept once however many
ways probe it, and the rows that fill it are also those that set out on their own way by this key. What the first probes
read arrives there: once by one of these routes, as in any plan, and once more by each of the others. Rows that a later
stage reads pass through the stages before it, and each further stage costs its latency once a batch. So does each
fragment: windows, rows on their way and legs are fragments of their own, where a tree has one or two.

Where streams live at sites, their rows come in there: nothing is read in place, a window by key is kept at the site of
its stream, and whatever travels takes the links between sites.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf

from midstream.algebra.placements import Placement
from midstream.optimizer.cost import ROW_OVERHEAD, Cost
from midstream.optimizer.graph_estimates import GraphEstimator
from midstream.optimizer.join_graph import Routed
from midstream.optimizer.routed.shapes import may_route
from midstream.optimizer.sites.topology import INTERVAL, Copied, Shares, Travelling

MOST = 8
"""Up to how many streams routed joins are weighed."""

SLOTS = 4
"""How many slots a window in every slot is taken to be copied to where their number is not known."""

CLOSE = 1e-9

Orders = tuple[tuple[int, ...], ...]
Placements = tuple[tuple[Placement, ...], ...]
Classes = tuple[int, ...]
"""The classes of equal terms by which a probe finds its partners."""


@dataclass(frozen=True, slots=True)
class _Route:
    """How rows get to where they are read: by a key to the slots of a site (None: all), stay, or go to every slot.

    What goes everywhere goes to the slots of the sites that it is `copied` to.
    """

    by: Classes
    everywhere: bool
    site: str | None = None
    copied: Copied = None


@dataclass(frozen=True, slots=True)
class _Hop:
    """A probe of a way: of which stream, by which key, where its window is, and in which leg of the way it is.

    A leg ends where partial results travel. The site is the one at which the window by key is; of a window that is
    copied, the one at which it is probed, and `copied` are all of these.
    """

    target: int
    by: Classes
    everywhere: bool
    leg: int
    site: str | None = None
    copied: Copied = None

    @property
    def route(self) -> _Route:
        """How rows get to the window: by a key or where they are, or to every slot that probes it."""
        return _Route((), True, None, self.copied) if self.everywhere else _Route(self.by, False, self.site)


@dataclass(slots=True)
class _Sums:
    """What the ways of a plan need: probes and moves of their own, and windows and rows that they share."""

    last: int
    """The stage of the last legs of all ways."""
    probed: float = 0.0
    matched: float = 0.0
    given: float = 0.0
    moved: float = 0.0
    windows: set[tuple[int, _Route, Classes]] = field(default_factory=set)
    """Streams, the route by which rows get to their window, and the key that it is probed by."""
    read: dict[tuple[int, _Route], set[int]] = field(default_factory=dict)
    """Streams' rows by the route they take, and the stages that read them."""
    travelling: Travelling | None = None
    """What goes between sites."""

    def reads(self, stream: int, route: _Route, stage: int) -> None:
        """Notes that a stage reads a stream's rows."""
        self.read.setdefault((stream, route), set()).add(stage)


def routed_cost(joins: GraphEstimator, orders: Orders, placements: Placements) -> Cost:
    """The joint cost of the ways of all streams."""
    ways = _with_copies([_way(joins, head, order, placements[head]) for head, order in enumerate(orders)])
    topology = joins.topology
    sums = _Sums(max(way[-1].leg for way in ways), travelling=None if topology is None else Travelling(topology))
    for head, way in enumerate(ways):
        _follow(joins, head, way, sums)
    inserted = rows = size = moved = 0.0
    for stream, route, _ in sums.windows:
        flow, copies = joins.leaves[stream], _copies(joins, route) if joins.spread else 1
        inserted += copies * flow.rate
        rows += copies * flow.population
        size += copies * flow.population * (flow.width + ROW_OVERHEAD)
        sums.read.setdefault((stream, route), {1})
    before = 1 if _at_sites(joins) else 0
    for (stream, route), stages in sums.read.items():
        passed = sum(stage - 1 + before for stage in stages)
        moved += joins.leaves[stream].rate * passed * _copies(joins, route)
        if sums.travelling is not None:
            for stage in stages:
                if before or stage > 1:
                    _send_rows(joins, stream, route, sums.travelling)
    transfers = None if sums.travelling is None else sums.travelling.transfers
    return Cost(
        probed=sums.probed,
        inserted=inserted,
        matched=sums.matched,
        given=sums.given,
        state_rows=rows,
        state_bytes=size,
        moved=sums.moved + moved if joins.spread else 0.0,
        stages=(sums.last - 1 + before) / joins.batch_ticks if joins.spread else 0.0,
        fragments=_fragments(ways, sums) / joins.batch_ticks if joins.spread else 0.0,
        copied=_copied(joins, sums) if joins.spread and not before else 0.0,
        linked=0.0 if topology is None or transfers is None else topology.seconds(transfers, joins.batch_ticks),
        transfers=transfers,
    )


def _fragments(ways: list[list[_Hop]], sums: _Sums) -> int:
    """How many fragments a plan has besides the last: rows on their way to a stage, windows, and legs of ways."""
    return sum(map(len, sums.read.values())) + len(sums.windows) + sum(way[-1].leg - 1 for way in ways)


def _with_copies(ways: list[list[_Hop]]) -> list[list[_Hop]]:
    """The ways with what is copied at all sites from which some way probes it."""
    found: dict[tuple[int, Classes], set[str | None]] = {}
    for hop in (hop for way in ways for hop in way if hop.everywhere):
        found.setdefault((hop.target, hop.by), set()).add(hop.site)
    named = {window: None if None in sites else frozenset(filter(None, sites)) for window, sites in found.items()}
    return [[replace(h, copied=named[h.target, h.by]) if h.everywhere else h for h in way] for way in ways]


def _copies(joins: GraphEstimator, route: _Route) -> int:
    """How many slots have what goes by a route, each for itself."""
    if not route.everywhere:
        return 1
    return _slots(joins) if joins.topology is None else sum(joins.topology.copies(route.copied))


def _slots(joins: GraphEstimator) -> int:
    return SLOTS if joins.topology is None else len(joins.topology.slots)


def _at_sites(joins: GraphEstimator) -> bool:
    """Whether some streams come in at sites: then all that is read goes through an exchange."""
    return any(home is not None for home in joins.homes)


def _send_rows(joins: GraphEstimator, stream: int, route: _Route, travelling: Travelling) -> None:
    """A stream's rows travel from where they come in, in the first exchange."""
    leaf, topology = joins.leaves[stream], travelling.topology
    start, size = topology.home(joins.homes[stream]), leaf.rate * (leaf.width + INTERVAL)
    if route.everywhere:
        travelling.send_everywhere(0, start, size, route.copied)
    elif route.by:
        travelling.send(0, start, topology.home(route.site), size)


def _copied(joins: GraphEstimator, sums: _Sums) -> float:
    """The rows that arrive once more because the first probes read them by several routes."""
    total = 0.0
    for stream, leaf in enumerate(joins.leaves):
        first = [route for (known, route), stages in sums.read.items() if known == stream and 1 in stages]
        by_key = sum(1 for route in first if route.by and not route.everywhere)
        everywhere = max((_copies(joins, route) for route in first if route.everywhere), default=0)
        total += leaf.rate * (max(1, by_key) + everywhere - 1)
    return total


def _way(joins: GraphEstimator, head: int, order: tuple[int, ...], placed: tuple[Placement, ...]) -> list[_Hop]:
    hops: list[_Hop] = []
    inside, leg, together = 1 << head, 0, list[Classes]()
    here = joins.homes[head]
    for target, placement in zip(order, placed, strict=True):
        by, everywhere = joins.classes_between(inside, 1 << target), placement is Placement.SOURCE
        home = joins.homes[target]
        stays = everywhere or (by in together and home == here)
        leg += 1 if not hops or not stays else 0
        if not everywhere:
            together, here = ([by], home) if by else ([], None)
        hops.append(_Hop(target, by, everywhere, leg, here if everywhere else home))
        inside |= 1 << target
    return hops


def _follow(joins: GraphEstimator, head: int, way: list[_Hop], sums: _Sums) -> None:
    """Adds up the way of one stream."""
    inside, here = 1 << head, joins.leaves[head]
    size, population, leg = here.rate, here.population, 0
    place = _Place(joins, head)
    for hop in way:
        stage = sums.last if hop.leg == way[-1].leg else hop.leg
        if leg == 0:
            starts = _Route((), False) if hop.everywhere else _Route(hop.by, not hop.by, hop.site if hop.by else None)
            sums.reads(head, starts, stage)
            place.go(hop)
        elif hop.leg > leg:
            sums.moved += size * (stage - leg) * (1 if hop.by else _slots(joins))
            place.send(leg, hop, size * (joins.flow(inside).width + INTERVAL), sums.travelling)
        leg = hop.leg
        sums.windows.add((hop.target, hop.route, hop.by))
        if hop.target < head:
            sums.reads(hop.target, hop.route, stage)
        reached = inside | 1 << hop.target
        after = joins.flow(reached).population
        grown = size * after / population if population > 0 else 0.0
        sums.probed += size
        sums.matched += grown if hop.by else size * joins.leaves[hop.target].population
        size, inside, population = grown, reached, after
    sums.given += size


class _Place:
    """Where partial results of a way are."""

    def __init__(self, joins: GraphEstimator, head: int) -> None:
        self.topology = joins.topology
        self.at: Shares = () if self.topology is None else self.topology.home(joins.homes[head])

    def go(self, hop: _Hop) -> None:
        """They are where a probe takes place."""
        if self.topology is not None and not hop.everywhere:
            self.at = self.topology.home(hop.site)

    def send(self, exchange: int, hop: _Hop, size: float, travelling: Travelling | None) -> None:
        """They travel there, so many bytes per tick."""
        if travelling is None:
            return
        if hop.by:
            travelling.send(exchange, self.at, travelling.topology.home(hop.site), size)
        else:
            travelling.send_everywhere(exchange, self.at, size)
        self.go(hop)


def routed_worth(joins: GraphEstimator, orders: Orders, placements: Placements) -> float:
    """The same as one number."""
    return routed_cost(joins, orders, placements).per_tick(joins.constants)


def least_worth(joins: GraphEstimator) -> float:
    """What any routed join costs at least: the cheapest probes of each way, each window once, and nothing travels."""
    c, kept = joins.constants, 0.0
    for leaf in joins.leaves:
        kept += c.insert * leaf.rate + c.state * leaf.population * (leaf.width + ROW_OVERHEAD) / 1000
    return kept + sum(_cheapest_way(joins, head) for head in range(len(joins.leaves)))


def _cheapest_way(joins: GraphEstimator, head: int) -> float:
    """What the probes of a way cost in the best order: how many rows are on it depends on whom they have met alone."""
    c, leaves, everyone = joins.constants, joins.leaves, joins.graph.everyone
    grown = leaves[head].rate / leaves[head].population if leaves[head].population > 0 else 0.0
    size = {met: grown * joins.flow(met).population for met in range(1, everyone + 1) if met >> head & 1}
    least = {1 << head: 0.0}
    for met in sorted(size):
        for target in (other for other in range(len(leaves)) if not met >> other & 1):
            reached = met | 1 << target
            linked = joins.classes_between(met, 1 << target)
            matched = size[reached] if linked else size[met] * leaves[target].population
            cost = least[met] + c.probe * size[met] + c.match * matched
            least[reached] = min(cost, least.get(reached, inf))
    return least[everyone] + c.give * size[everyone]


def best_routed(joins: GraphEstimator, orders: Orders, below: float = inf) -> tuple[Routed, float] | None:
    """A routed join of low cost, improved from some probe orders; None where there can be none below a cost.

    Each step changes where one stream's window is kept, where one probe takes place, or when one way meets a stream.
    """
    graph = joins.graph
    if not 2 < len(graph.inputs) <= MOST or not may_route(graph) or least_worth(joins) >= below:
        return None
    start = min(_starts(joins, orders), key=lambda placed: routed_worth(joins, orders, placed))
    found, worth = _improved(joins, orders, start)
    return Routed(tuple(range(len(orders))), *found), worth


def _starts(joins: GraphEstimator, orders: Orders) -> Iterator[Placements]:
    """Placements to start from: everything travels, only first probes do, nothing does.

    A stage is saved only if no way needs it any more, which one step alone seldom brings about. The best is improved.
    """
    for travelling in (len(orders), 1, 0) if joins.spread else (len(orders),):
        yield tuple(
            tuple(Placement.DESTINATION if place < travelling else Placement.SOURCE for place in range(len(order)))
            for order in orders
        )


def _improved(joins: GraphEstimator, orders: Orders, placements: Placements) -> tuple[tuple[Orders, Placements], float]:
    """What single steps make of a routed join as long as its cost falls."""
    found, fell = (orders, placements), joins.spread
    worth = routed_worth(joins, *found)
    while fell:
        fell = False
        for tried in _steps(joins, *found):
            attempted = routed_worth(joins, *tried)
            if attempted < worth * (1 - CLOSE):
                found, worth, fell = tried, attempted, True
    return found, worth


def _steps(joins: GraphEstimator, orders: Orders, placements: Placements) -> Iterator[tuple[Orders, Placements]]:
    for stream in range(len(orders)):
        for placement in Placement:
            yield (
                orders,
                tuple(
                    tuple(placement if target == stream else p for target, p in zip(order, placed, strict=True))
                    for order, placed in zip(orders, placements, strict=True)
                ),
            )
    for head, order in enumerate(orders):
        for place, placement in enumerate(placements[head]):
            other = Placement.SOURCE if placement is Placement.DESTINATION else Placement.DESTINATION
            changed = (*placements[head][:place], other, *placements[head][place + 1 :])
            yield orders, _with(placements, head, changed)
            for to in range(len(order)):
                moved = [target for target in order if target != order[place]]
                moved.insert(to, order[place])
                if tuple(moved) != order and _linked(joins, head, moved):
                    of = dict(zip(order, placements[head], strict=True))
                    yield _with(orders, head, tuple(moved)), _with(placements, head, tuple(of[t] for t in moved))


def _with(ways: tuple[tuple, ...], head: int, way: tuple) -> tuple[tuple, ...]:  # type: ignore[type-arg]
    return (*ways[:head], way, *ways[head + 1 :])


def _linked(joins: GraphEstimator, head: int, order: list[int]) -> bool:
    """Whether a way probes nothing without a condition while another stream could be probed."""
    graph, inside = joins.graph, 1 << head
    for place, target in enumerate(order):
        if not graph.linked(inside, 1 << target) and any(graph.linked(inside, 1 << t) for t in order[place:]):
            return False
        inside |= 1 << target
    return True
