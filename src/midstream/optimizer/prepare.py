"""From a bound query to the plan that runs: conditions at the lowest place, joins in the wanted shape."""

from __future__ import annotations

from collections.abc import Callable

from midstream.algebra.plan import Join, MultiJoin, Relation, Select
from midstream.optimizer.join_graph import JoinGraph, join_graph

Choice = Callable[[JoinGraph], Relation]
"""How one group of inner joins is to be joined."""


def as_written(graph: JoinGraph) -> Relation:
    """Joins in the order of the text."""
    return graph.tree(graph.as_written())


def prepare(plan: Relation, choose: Choice = as_written) -> Relation:
    """Every group of inner joins, from the top down, in the shape that `choose` gives it."""
    if isinstance(plan, Join | MultiJoin | Select):
        graph = join_graph(plan)
        if len(graph.inputs) > 1:
            inputs = tuple(prepare(child, choose) for child in graph.inputs)
            return choose(JoinGraph(inputs, graph.conditions))
        if isinstance(plan, Select):
            return graph.tree(0) if graph.inputs[0] is plan else _single(graph, choose)
    children = tuple(prepare(child, choose) for child in plan.inputs)
    return plan if children == plan.inputs else plan.with_inputs(children)


def _single(graph: JoinGraph, choose: Choice) -> Relation:
    inner = graph.inputs[0]
    return JoinGraph((prepare(inner, choose),), graph.conditions).tree(0)
