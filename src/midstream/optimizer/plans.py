"""The one entrance to the optimizer: run, explain and migrate all get their plans here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

import pyarrow as pa

from midstream.algebra.emission import Emission, emission_of
from midstream.algebra.physical import PhysicalNode
from midstream.algebra.plan import Relation, aliases
from midstream.algebra.statistics import UNKNOWN, Statistics
from midstream.algebra.time import TimeDomain
from midstream.errors import QueryError
from midstream.html import section
from midstream.optimizer.cost import Constants
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.graph_estimates import GraphEstimator
from midstream.optimizer.join_graph import JoinGraph, Shape, leaf_name
from midstream.optimizer.lower import lower
from midstream.optimizer.ordering import all_trees, best_shape, exhaustive_trees, mixture, multiway, routed, shape_cost
from midstream.optimizer.plan_graph import change_html, plan_html
from midstream.optimizer.prepare import as_written, normalize, prepare
from midstream.optimizer.routed.shapes import routed_shape
from midstream.optimizer.routed.text import WaysText
from midstream.optimizer.shapes import WantedShapes, leaves_of, parse_shape, shape_text, shaped
from midstream.optimizer.sites.topology import Topology
from midstream.optimizer.variants import Mark, marked, possible_marks

MANY = 200
"""How many plans `enumerate_plans` lists at most."""

LARGE = 10
"""Up to how many joined inputs variants are weighed."""


@dataclass(frozen=True)
class Plan:
    """An executable plan of a query: its logical tree in join order, and what will run."""

    query: Relation = field(repr=False)
    logical: Relation = field(repr=False)
    emission: Emission = field(repr=False)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of its results."""
        return self.query.schema

    @cached_property
    def domain(self) -> TimeDomain:
        """How instants of its results are read."""
        return self.query.domain

    @cached_property
    def text(self) -> str:
        """The join shape, as `plan=` takes it."""
        return shape_text(self.logical)

    @cached_property
    def physical(self) -> PhysicalNode:
        """The physical plan."""
        return lower(self.logical, self.emission)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Plan({self.text!r})"

    def change_to(self, other: Plan) -> PlanChange:
        """This plan beside another of the same query, as notebooks show it: what both compute, and what only one."""
        return PlanChange(self, other)

    def _repr_html_(self) -> str:
        return section(f"plan {self.text or 'without joins'}", plan_html(self.text, [self.physical]))


@dataclass(frozen=True, slots=True)
class PlanChange:
    """Two plans of a query: before and after a migration."""

    old: Plan
    new: Plan

    def _repr_html_(self) -> str:
        return change_html((self.old.text, [self.old.physical]), (self.new.text, [self.new.physical]))


def plan_query(
    query: Relation,
    wanted: Plan | str | None = None,
    emit_every: int | None = None,
    statistics: Statistics | None = None,
    constants: Constants | None = None,
    spread: bool = False,
    topology: Topology | None = None,
) -> Plan:
    """The plan of a query: the wanted one, or the optimizer's choice by what is known of the streams.

    `spread`: rows lie on many machines by their keys; `topology` says where these are.
    """
    emission = emission_of(query, emit_every)
    if isinstance(wanted, Plan):
        if wanted.query != query:
            raise QueryError("this plan belongs to another query")
        return Plan(query, wanted.logical, emission)
    if wanted is None:
        prices = (constants or Constants()).by_tick(query.domain)
        return best_plan(query, emission, Estimator(statistics or UNKNOWN, emission, prices, spread, topology))
    if not isinstance(wanted, str):
        raise QueryError(f"a plan is a Plan or a text, not {type(wanted).__name__}")
    return Plan(query, _shaped(normalize(query), parse_shape(wanted)), emission)


def best_plan(query: Relation, emission: Emission, estimator: Estimator) -> Plan:
    """The cheapest plan, over all variants and shapes."""
    normal = normalize(query)
    if estimator.statistics is UNKNOWN:
        return Plan(query, _ordered(normal, estimator), emission)
    return Plan(query, best_variant(normal, estimator)[0], emission)


def best_variant(normal: Relation, estimator: Estimator) -> tuple[Relation, frozenset[Mark]]:
    """The cheapest logical plan, marking one input after the other as long as that pays."""
    best, marks = _ordered(normal, estimator), frozenset[Mark]()
    open_marks = set(possible_marks(normal))
    if not open_marks or len(open_marks) > LARGE:
        return best, marks
    cost = estimator.per_tick(best)
    tries: list[frozenset[Mark]] = [frozenset(open_marks)]
    while tries:
        for attempt in tries:
            plan = _ordered(marked(normal, attempt), estimator)
            attempted = estimator.per_tick(plan)
            if attempted < cost * (1 - 1e-9):
                best, cost, marks = plan, attempted, attempt
                break
        else:
            if tries[0] == frozenset(open_marks) and len(open_marks) > 1 and not marks:
                tries = [frozenset({m}) for m in sorted(open_marks)]
                open_marks = set()
                continue
            break
        tries = [marks ^ {m} for m in sorted(possible_marks(normal)) if marks ^ {m}]
    return best, marks


def _ordered(plan: Relation, estimator: Estimator) -> Relation:
    """Every group of joins in its cheapest shape."""
    return prepare(plan, lambda graph: graph.tree(best_shape(estimator.graph(graph)).shape))


def _shaped(normal: Relation, wanted: WantedShapes) -> Relation:
    query = marked(normal, wanted.marks)
    used: list[object] = []
    joined: list[str] = []
    graphs: list[JoinGraph] = []

    def choose(graph: JoinGraph) -> Relation:
        joined.append(", ".join(leaf_name(relation) for relation in graph.inputs))
        graphs.append(graph)
        tree = wanted.tree_of(graph)
        used.append(tree)
        return as_written(graph) if tree is None else shaped(tree, graph)

    logical = prepare(query, choose)
    for tree in wanted.trees:
        if tree not in used and not (isinstance(tree, str) and tree in aliases(query)):
            if isinstance(tree, WaysText) and graphs:  # says at which place of the text it does not fit
                routed_shape(tree, max(graphs, key=lambda graph: len(graph.inputs)))
            names = ", ".join(sorted(leaves_of(tree)))
            raise QueryError(
                f"the plan names {names}, which are not the inputs of any join of the query",
                detail=f"it joins {' and '.join(joined)}" if joined else "it joins nothing",
                hint="name every alias that the query joins, once",
            )
    return logical


def enumerate_plans(
    query: Relation,
    emit_every: int | None = None,
    limit: int = MANY,
    statistics: Statistics | None = None,
    constants: Constants | None = None,
    spread: bool = False,
    topology: Topology | None = None,
) -> list[Plan]:
    """Equivalent plans of a query, best first: the optimizer's choice, trees, multi-way and routed joins, variants."""
    emission = emission_of(query, emit_every)
    prices = (constants or Constants()).by_tick(query.domain)
    return ranked_plans(query, emission, Estimator(statistics or UNKNOWN, emission, prices, spread, topology), limit)


def ranked_plans(query: Relation, emission: Emission, estimator: Estimator, limit: int = MANY) -> list[Plan]:
    """Equivalent plans of a query by what an estimator makes of them, best first."""
    normal = normalize(query)
    best = best_plan(query, emission, estimator)
    found: dict[Relation, float] = {best.logical: float("-inf")}
    for marks in _some_variants(normal):
        for logical, cost in _shapes_of(marked(normal, marks), estimator, limit):
            found.setdefault(logical, cost)
            if len(found) >= limit:
                break
    ranked = sorted(found, key=lambda logical: found[logical])
    return [Plan(query, logical, emission) for logical in ranked]


def _some_variants(normal: Relation) -> list[frozenset[Mark]]:
    """No marks, all marks, and each one alone."""
    marks = possible_marks(normal)
    singles = [frozenset({m}) for m in marks] if len(marks) <= LARGE else []
    return list(dict.fromkeys([frozenset[Mark](), frozenset(marks), *singles]))


def _shapes_of(variant: Relation, estimator: Estimator, limit: int) -> Iterable[tuple[Relation, float]]:
    """The widest group of joins in all its shapes; the others in their best."""
    groups: list[JoinGraph] = []

    def note(graph: JoinGraph) -> Relation:
        groups.append(graph)
        return as_written(graph)

    prepare(variant, note)
    if not groups:
        plan = prepare(variant)
        return [(plan, estimator.per_tick(plan))]
    widest = max(groups, key=lambda g: len(g.inputs))
    joins = estimator.graph(widest)
    shapes = _some_shapes(joins, limit)
    rest: float | None = None
    found = []
    for shape in shapes:

        def choose(graph: JoinGraph, shape: Shape = shape) -> Relation:
            if graph.conditions == widest.conditions and len(graph.inputs) == len(widest.inputs):
                return graph.tree(shape)
            return graph.tree(best_shape(estimator.graph(graph)).shape)

        logical = prepare(variant, choose)
        here = shape_cost(joins, shape)
        if rest is None:
            rest = estimator.per_tick(logical) - here
        found.append((logical, here + rest))
    return found


def _some_shapes(joins: GraphEstimator, limit: int) -> list[Shape]:
    graph = joins.graph
    shapes: list[Shape] = [best_shape(joins).shape]
    shapes += islice(all_trees(graph, graph.everyone), limit)
    if len(graph.inputs) > 2:
        shapes.append(multiway(joins).shape)
        if len(graph.inputs) <= LARGE:
            shapes.append(mixture(joins, exhaustive_trees(joins)).shape)
        if (way := routed(joins)) is not None:
            shapes.append(way.shape)
    return list(dict.fromkeys(shapes))
