"""What plans cost per unit of time (equations 1 to 4).

A one-way join pays for shipping, for keeping the probed window up to date, and for probing. The paper's cost of a plan
adds this up over all heads, although a window copy that several heads probe is shipped and updated once: the joint cost
charges each shipment of a stream to a node, and each kept window, once. Greedy generation and modification compare
one-way joins of one head and so use the paper's; whole plans are compared by the joint cost. Sending results to where
the query was asked is the same for all plans where lines are alike, and is left out by both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from midstream.algebra.placements import Placement
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan
from midstream.lab.papers.node_operator_sets.network import Network
from midstream.lab.papers.node_operator_sets.statistics import Flow, Statistics, StreamStatistics, after, starting
from midstream.optimizer.routed.conditions import RoutedConditions
from midstream.optimizer.routed.plan import HeadPlan, OneWay

SOURCE, DESTINATION = Placement.SOURCE, Placement.DESTINATION

Rank = tuple[bool, float, int]
"""How candidates for the next probe compare: linked ones first, then by cost, then in the order of the query."""


@dataclass(frozen=True)
class Costs:
    """What one comparison and one window update cost in seconds, and the network's transmissions."""

    probe: float
    update: float
    network: Network

    def ship_window(self, flow: Flow, target: str, own: StreamStatistics) -> float:
        """Transmission of source placement."""
        return self.network.time(self.network.home(target), flow.node, own.rate * own.size)

    def ship_flow(self, flow: Flow, target: str) -> float:
        """Transmission of destination placement."""
        return self.network.time(flow.node, self.network.home(target), flow.rate * flow.size)

    def local(self, flow: Flow, own: StreamStatistics) -> float:
        """Updating and probing the target's window, wherever it is."""
        return own.rate * self.update + flow.rate * self.probe * own.rows

    def one_way(self, flow: Flow, target: str, own: StreamStatistics, placement: Placement) -> float:
        """Equations 1 and 2."""
        sent = self.ship_window(flow, target, own) if placement is SOURCE else self.ship_flow(flow, target)
        return sent + self.local(flow, own)

    def choice(self, flow: Flow, target: str, own: StreamStatistics) -> tuple[float, Placement]:
        """Equation 3: the cheaper placement and its cost; the source if both cost the same."""
        local = self.local(flow, own)
        source, destination = self.ship_window(flow, target, own) + local, self.ship_flow(flow, target) + local
        return (source, SOURCE) if source <= destination else (destination, DESTINATION)

    def rank(self, flow: Flow, target: str, own: StreamStatistics, conditions: RoutedConditions) -> Rank:
        """How a candidate compares with others after the same partial results."""
        linked = conditions.linked((flow.head, *flow.met), target)
        return not linked, self.choice(flow, target, own)[0], conditions.numbers[target]

    def joined(self, flow: Flow, join: OneWay, own: StreamStatistics) -> Flow:
        """The partial results after a one-way join."""
        node = flow.node if join.placement is SOURCE else self.network.home(join.target)
        return after(flow, join.target, own, node)


def flows(way: HeadPlan, statistics: Statistics, costs: Costs) -> Iterator[tuple[Flow, OneWay]]:
    """Each one-way join of a way with the partial results that come into it."""
    flow = starting(way.head, statistics[way.head], costs.network)
    for join in way.joins:
        yield flow, join
        flow = costs.joined(flow, join, statistics[join.target])


def way_cost(way: HeadPlan, statistics: Statistics, costs: Costs) -> float:
    """The paper's cost of one head's plan."""
    return sum(
        costs.one_way(flow, join.target, statistics[join.target], join.placement)
        for flow, join in flows(way, statistics, costs)
    )


def paper_cost(plan: JoinPlan, statistics: Statistics, costs: Costs) -> float:
    """The sum over all heads, as printed."""
    return sum(way_cost(way, statistics, costs) for way in plan)


def joint_cost(plan: JoinPlan, statistics: Statistics, costs: Costs) -> float:
    """The cost of the plan's merged node operator sets: what several heads share is paid once."""
    network, total = costs.network, 0.0
    shipped: set[tuple[str, str]] = set()
    kept: set[tuple[str, str]] = set()
    for way in plan:
        for flow, join in flows(way, statistics, costs):
            own, home = statistics[join.target], network.home(join.target)
            total += flow.rate * costs.probe * own.rows
            if join.placement is SOURCE:
                shipped.add((join.target, flow.node))
                kept.add((join.target, flow.node))
                continue
            kept.add((join.target, home))
            if flow.met:
                total += costs.ship_flow(flow, join.target)
            else:
                shipped.add((flow.head, home))
    for stream, node in sorted(shipped):
        own = statistics[stream]
        total += network.time(network.home(stream), node, own.rate * own.size)
    return total + sum(statistics[stream].rate * costs.update for stream, _ in sorted(kept))


def violation(plan: JoinPlan, statistics: Statistics, costs: Costs, conditions: RoutedConditions) -> str | None:
    """Where a plan breaks the invariant of equation 4 or has the dearer placement; None if it holds everywhere."""
    for way in plan:
        for position, (flow, join) in enumerate(flows(way, statistics, costs)):
            mine = costs.rank(flow, join.target, statistics[join.target], conditions)
            for other in way.order[position + 1 :]:
                if costs.rank(flow, other, statistics[other], conditions) < mine:
                    return f"{way.head} meets {join.target} at position {position + 1}, where {other} costs less"
            if costs.choice(flow, join.target, statistics[join.target])[1] is not join.placement:
                return f"{way.head} meets {join.target} at the dearer place"
    return None
