"""What plan modification by either way starts from and ends in.

The greedy invariant (equation 4) holds before a change of statistics and again after it. Centralized modification
generates a new plan, distributed modification repairs it node by node; both compare candidates by the same rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from midstream.lab.papers.node_operator_sets.cost import Costs
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan
from midstream.lab.papers.node_operator_sets.node_sets import NodeSets
from midstream.optimizer.routed.conditions import RoutedConditions


@dataclass(frozen=True)
class Setting:
    """What all nodes know: the query's join graph, prices and the network."""

    conditions: RoutedConditions
    costs: Costs


@dataclass(frozen=True)
class Modification:
    """A new plan with its sets, and the nodes whose sets differ from before."""

    plan: JoinPlan
    sets: NodeSets
    affected: tuple[str, ...]


def affected_nodes(old: NodeSets, new: NodeSets) -> tuple[str, ...]:
    """The nodes whose sets differ, in a fixed order."""
    return tuple(node for node in sorted({*old, *new}) if old.get(node) != new.get(node))
