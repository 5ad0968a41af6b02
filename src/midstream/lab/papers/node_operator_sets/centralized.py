"""Centralized modification (Algorithm 2): one node generates a new plan and sends each affected node its new set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from midstream.lab.papers.node_operator_sets.greedy import greedy_plan
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan
from midstream.lab.papers.node_operator_sets.modification import Modification, Setting, affected_nodes
from midstream.lab.papers.node_operator_sets.network import Network
from midstream.lab.papers.node_operator_sets.node_sets import node_sets
from midstream.lab.papers.node_operator_sets.statistics import StreamStatistics
from midstream.lab.papers.node_operator_sets.wire import on_the_wire
from midstream.optimizer.sites.links import Link

REMEMBERED = 20
"""How many decisions are kept."""


@on_the_wire
@dataclass(frozen=True)
class Coordinator:
    """What the central node keeps: the plan in use, the latest statistics of every stream and of lines that changed.

    `reason` is what was reported last; `decisions` are the plans that were decided on since, with their reasons.
    """

    plan: JoinPlan
    statistics: Mapping[str, StreamStatistics]
    lines: Mapping[tuple[str, str], Link] = field(default_factory=dict)
    reason: str = ""
    decisions: tuple[str, ...] = ()

    def with_report(self, stream: str, own: StreamStatistics) -> Coordinator:
        """The coordinator after a node has reported its stream's statistics."""
        reason = f"{stream} has {own.rate:g} rows/s of {own.size:g} bytes"
        return replace(self, statistics={**self.statistics, stream: own}, reason=reason)

    def with_line(self, sender: str, receiver: str, line: Link, setting: Setting) -> Coordinator:
        """The coordinator after a node has reported how long its bytes take to another."""
        before = self._network(setting).between(sender, receiver)
        reason = f"bytes from {sender} to {receiver} take {line}, not {before}"
        return replace(self, lines={**self.lines, (sender, receiver): line}, reason=reason)

    def _network(self, setting: Setting) -> Network:
        return setting.costs.network.with_lines(self.lines)

    def modified(self, setting: Setting, wanted: JoinPlan | None = None) -> Modification:
        """The plan for the statistics known now, or a wanted one; nobody is affected if it is the one in use."""
        network = self._network(setting)
        costs = replace(setting.costs, network=network)
        plan = wanted or greedy_plan(setting.conditions, self.statistics, costs)
        old, new = node_sets(self.plan, network), node_sets(plan, network)
        return Modification(plan, new, affected_nodes(old, new))

    def decided(self, plan: JoinPlan, wanted: bool) -> Coordinator:
        """The coordinator after it has decided on a plan, by itself or because it is wanted."""
        why = "asked for" if wanted else self.reason
        return replace(self, decisions=(*self.decisions, f"{plan}: {why}")[-REMEMBERED:])

    def using(self, plan: JoinPlan) -> Coordinator:
        """The coordinator once a plan is in use."""
        return replace(self, plan=plan)
