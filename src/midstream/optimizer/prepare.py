"""From a bound query to the plan that runs: conditions at the lowest place, joins in the wanted shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from midstream.algebra.expressions import Column, Named
from midstream.algebra.plan import Aggregate, Join, MultiJoin, Project, Relation, Select, rewrite_plan
from midstream.errors import InternalError
from midstream.optimizer.join_graph import JoinGraph, join_graph
from midstream.optimizer.rules import NORMALIZING

ROUNDS = 100
"""Rules move things down or take them away, so they come to an end; a plan this deep is refused long before."""


@lru_cache(maxsize=64)
def normalize(plan: Relation) -> Relation:
    """The plan with every normalizing rule applied until nothing changes."""
    for _ in range(ROUNDS):
        changed = rewrite_plan(plan, _all_rules)
        if changed == plan:
            return plan
        plan = changed
    raise InternalError("the rules do not come to an end", detail=str(plan))


def _all_rules(node: Relation) -> Relation:
    for rule in NORMALIZING:
        node = rule(node)
    return node


Choice = Callable[[JoinGraph], Relation]
"""How one group of inner joins is to be joined."""


def as_written(graph: JoinGraph) -> Relation:
    """Joins in the order of the text."""
    return graph.tree(graph.as_written())


def prepare(plan: Relation, choose: Choice = as_written) -> Relation:
    """Every group of inner joins, from the top down, in the shape that `choose` gives it."""
    return _in_order(_prepared(plan, choose), plan)


def _prepared(plan: Relation, choose: Choice) -> Relation:
    if isinstance(plan, MultiJoin | Select) or (isinstance(plan, Join) and plan.kind == "inner"):
        graph = join_graph(plan)
        inputs = tuple(_prepared(child, choose) for child in graph.inputs)
        rebuilt = graph if inputs == graph.inputs else JoinGraph(inputs, graph.conditions)
        return choose(rebuilt) if len(inputs) > 1 else rebuilt.tree(0)
    by_name = isinstance(plan, Project | Aggregate)
    children = tuple(_prepared(child, choose) if by_name else prepare(child, choose) for child in plan.inputs)
    return plan if children == plan.inputs else plan.with_inputs(children)


def _in_order(prepared: Relation, plan: Relation) -> Relation:
    """Columns in the order of the original, by which results and set operations go; a join's depends on its shape."""
    if prepared.schema.names == plan.schema.names:
        return prepared
    return Project(prepared, tuple(Named(f.name, Column(f.name, f.type)) for f in plan.schema))
