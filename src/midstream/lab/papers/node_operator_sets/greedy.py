"""Greedy plan generation (Algorithm 1): next the stream whose one-way join costs least, at its cheaper place.

Among equal costs the stream that the query names first is next: centralized and distributed modification share this
rule, so that they end in the same plan.
"""

from __future__ import annotations

from midstream.lab.papers.node_operator_sets.cost import Costs
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan
from midstream.lab.papers.node_operator_sets.statistics import Statistics, starting
from midstream.optimizer.routed.conditions import RoutedConditions
from midstream.optimizer.routed.plan import HeadPlan, OneWay


def greedy_plan(conditions: RoutedConditions, statistics: Statistics, costs: Costs) -> JoinPlan:
    """A greedy way for every stream."""
    return JoinPlan(tuple(greedy_way(head, conditions, statistics, costs) for head in conditions.streams))


def greedy_way(head: str, conditions: RoutedConditions, statistics: Statistics, costs: Costs) -> HeadPlan:
    """The greedy way of one head stream."""
    flow, joins = starting(head, statistics[head], costs.network), list[OneWay]()
    waiting = [stream for stream in conditions.streams if stream != head]
    while waiting:
        target = min(waiting, key=lambda s: costs.rank(flow, s, statistics[s], conditions))
        join = OneWay(target, costs.choice(flow, target, statistics[target])[1])
        flow = costs.joined(flow, join, statistics[target])
        joins.append(join)
        waiting.remove(target)
    return HeadPlan(head, tuple(joins))
