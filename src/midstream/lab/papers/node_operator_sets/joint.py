"""A plan of low joint cost for any number of streams.

Greedy generation prices each head alone, so it overlooks what heads can share. Starting from the greedy plan, and for
each node from the plan that gathers all windows there, one head after the other is planned again with everything that
the other heads already ship and keep for free, as long as the joint cost falls. Few streams are searched exactly.
"""

from __future__ import annotations

from collections.abc import Iterable

from midstream.algebra.placements import Placement
from midstream.lab.papers.node_operator_sets.cost import DESTINATION, SOURCE, Costs, Rank, flows, joint_cost
from midstream.lab.papers.node_operator_sets.exact import MOST, exact_plan
from midstream.lab.papers.node_operator_sets.greedy import greedy_plan
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan
from midstream.lab.papers.node_operator_sets.statistics import Flow, Statistics, starting
from midstream.optimizer.routed.conditions import RoutedConditions
from midstream.optimizer.routed.plan import HeadPlan, OneWay

Pairs = set[tuple[str, str]]
"""Streams and the nodes they are shipped to, or at which their windows are kept."""

BETTER = 1 - 1e-9


def best_plan(conditions: RoutedConditions, statistics: Statistics, costs: Costs) -> JoinPlan:
    """The plan of least joint cost for few streams, a good one for many."""
    if len(conditions.streams) <= MOST:
        return exact_plan(conditions, statistics, costs)
    return improved_plan(conditions, statistics, costs)


def improved_plan(conditions: RoutedConditions, statistics: Statistics, costs: Costs) -> JoinPlan:
    """The greedy plan or a gathering plan, improved head by head."""
    starts = [greedy_plan(conditions, statistics, costs)]
    starts += [gathering_plan(hub, conditions) for hub in conditions.streams]
    ranked = sorted(starts, key=lambda plan: joint_cost(plan, statistics, costs))
    improved = [_descended(plan, conditions, statistics, costs) for plan in ranked[:3]]
    return min(improved, key=lambda plan: joint_cost(plan, statistics, costs))


def gathering_plan(hub: str, conditions: RoutedConditions) -> JoinPlan:
    """Rows travel to one stream's home as soon as conditions allow, and all later windows are kept there."""
    ways = []
    for head in conditions.streams:
        met, joins, there = [head], list[OneWay](), head == hub
        while len(met) < len(conditions.streams):
            allowed = conditions.next(met, [s for s in conditions.streams if s not in met])
            target = hub if hub in allowed else allowed[0]
            placement = DESTINATION if target == hub and not there else SOURCE
            there = there or target == hub
            joins.append(OneWay(target, placement))
            met.append(target)
        ways.append(HeadPlan(head, tuple(joins)))
    return JoinPlan(tuple(ways))


def _descended(plan: JoinPlan, conditions: RoutedConditions, statistics: Statistics, costs: Costs) -> JoinPlan:
    cost, fell = joint_cost(plan, statistics, costs), True
    while fell:
        fell = False
        for head in conditions.streams:
            others = [way for way in plan if way.head != head]
            way = _marginal_way(head, others, conditions, statistics, costs)
            tried = JoinPlan(tuple(way if old.head == head else old for old in plan))
            attempted = joint_cost(tried, statistics, costs)
            if attempted < cost * BETTER:
                plan, cost, fell = tried, attempted, True
    return plan


def _shared(ways: Iterable[HeadPlan], statistics: Statistics, costs: Costs) -> tuple[Pairs, Pairs]:
    """What some heads' ways ship and keep."""
    shipped, kept = Pairs(), Pairs()
    for way in ways:
        for flow, join in flows(way, statistics, costs):
            home = costs.network.home(join.target)
            at = flow.node if join.placement is SOURCE else home
            kept.add((join.target, at))
            if join.placement is SOURCE:
                shipped.add((join.target, at))
            elif not flow.met:
                shipped.add((flow.head, home))
    return shipped, kept


def _marginal_way(
    head: str, others: list[HeadPlan], conditions: RoutedConditions, statistics: Statistics, costs: Costs
) -> HeadPlan:
    """Greedy generation in which what the other heads ship and keep costs nothing."""
    shipped, kept = _shared(others, statistics, costs)

    def marginal(flow: Flow, target: str, placement: Placement) -> float:
        own, home = statistics[target], costs.network.home(target)
        node = flow.node if placement is SOURCE else home
        cost = flow.rate * costs.probe * own.rows
        cost += 0.0 if (target, node) in kept else own.rate * costs.update
        if placement is SOURCE:
            return cost + (0.0 if (target, node) in shipped else costs.ship_window(flow, target, own))
        free = not flow.met and (flow.head, home) in shipped
        return cost + (0.0 if free else costs.ship_flow(flow, target))

    def rank(flow: Flow, join: OneWay) -> Rank:
        linked = conditions.linked((flow.head, *flow.met), join.target)
        return not linked, marginal(flow, join.target, join.placement), conditions.numbers[join.target]

    flow, joins = starting(head, statistics[head], costs.network), list[OneWay]()
    waiting = [stream for stream in conditions.streams if stream != head]
    while waiting:
        options = [OneWay(target, placement) for target in waiting for placement in Placement]
        join = min(options, key=lambda option: rank(flow, option))
        flow = costs.joined(flow, join, statistics[join.target])
        joins.append(join)
        waiting.remove(join.target)
    return HeadPlan(head, tuple(joins))
