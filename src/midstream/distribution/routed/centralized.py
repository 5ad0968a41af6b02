"""Centralized modification (Algorithm 2): one node generates the plan anew and sends each affected node its new set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from midstream.distribution.routed.greedy import greedy_plan
from midstream.distribution.routed.modification import Modification, Setting, affected_nodes
from midstream.distribution.routed.node_sets import node_sets
from midstream.distribution.routed.statistics import StreamStatistics
from midstream.distribution.routed.wire import on_the_wire
from midstream.optimizer.routed.plan import JoinPlan


@on_the_wire
@dataclass(frozen=True)
class Coordinator:
    """What the central node keeps: the plan in use, and the latest statistics of every stream."""

    plan: JoinPlan
    statistics: Mapping[str, StreamStatistics]

    def with_report(self, stream: str, own: StreamStatistics) -> Coordinator:
        """The coordinator after a node has reported its stream's statistics."""
        return replace(self, statistics={**self.statistics, stream: own})

    def modified(self, setting: Setting, wanted: JoinPlan | None = None) -> Modification:
        """The plan for the statistics known now, or a wanted one; nobody is affected if it is the one in use."""
        network = setting.costs.network
        plan = wanted or greedy_plan(setting.conditions, self.statistics, setting.costs)
        old, new = node_sets(self.plan, network), node_sets(plan, network)
        return Modification(plan, new, affected_nodes(old, new))

    def using(self, plan: JoinPlan) -> Coordinator:
        """The coordinator once a plan is in use."""
        return replace(self, plan=plan)
