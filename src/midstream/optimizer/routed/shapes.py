"""Between the text of a routed join and its shape over a join graph.

A routed join is one of streams: what is joined is a stream's window after selections and projections, which every slot
can compute for itself. Where an input is itself a join or keeps something, a multi-way join has to be used.
"""

from __future__ import annotations

from collections.abc import Sequence

from midstream.algebra.placements import Placement
from midstream.algebra.plan import Project, Relation, Select, Stream, Window
from midstream.algebra.windows import Rows, SessionGap
from midstream.errors import QueryError
from midstream.optimizer.join_graph import JoinGraph, Routed, bits, leaf_name
from midstream.optimizer.routed.conditions import RoutedConditions
from midstream.optimizer.routed.plan import HeadPlan, OneWay
from midstream.optimizer.routed.text import WaysText
from midstream.optimizer.sites.topology import site_of


def conditions_of(graph: JoinGraph) -> RoutedConditions:
    """The streams of a join graph by name, and which of them each condition reads."""
    names = [leaf_name(relation) for relation in graph.inputs]
    sets = [frozenset(names[i] for i in bits(mask)) for mask in graph.masks]
    homes = [(name, site_of(relation)) for name, relation in zip(names, graph.inputs, strict=True)]
    sites = {name: site for name, site in homes if site is not None}
    return RoutedConditions(tuple(names), frozenset(read for read in sets if len(read) > 1), sites)


def may_route(graph: JoinGraph) -> bool:
    """Whether all that a graph joins are windows of streams, selected and projected at most."""
    return len(graph.inputs) > 1 and not any(_kept_below(relation) for relation in graph.inputs)


def _kept_below(relation: Relation) -> bool:
    while isinstance(relation, Select | Project):
        relation = relation.input
    match relation:
        case Window(Stream(), spec, bounds):
            return isinstance(spec, Rows | SessionGap) or bounds is not None
    return True


def routed_shape(ways: WaysText, graph: JoinGraph) -> Routed:
    """The shape that a text means; refused at the place where it cannot be one."""
    found = ways.ways(conditions_of(graph))
    for relation in graph.inputs:
        if _kept_below(relation):
            name = leaf_name(relation)
            problem = f"a routed join cannot read {name}: it is not a stream's time window"
            hint = "write a join tree or probe orders, or leave the plan out"
            raise ways.refused(QueryError(problem, hint=hint), name, name)
    numbers = {way.head: i for i, way in enumerate(found)}
    orders = tuple(tuple(numbers[target] for target in way.order) for way in found)
    return Routed(tuple(range(len(numbers))), orders, tuple(way.placements for way in found))


def routed_text(
    names: Sequence[str], orders: Sequence[Sequence[int]], placements: Sequence[Sequence[Placement]]
) -> str:
    """The text of a routed join; `names` are those of its inputs."""
    ways = []
    for i, order in enumerate(orders):
        joins = zip(order, placements[i], strict=True)
        ways.append(HeadPlan(names[i], tuple(OneWay(names[j], placed) for j, placed in joins)))
    return ", ".join(map(str, ways))
