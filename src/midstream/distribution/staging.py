"""The fragments of a plan in stages: their numbers, how streams arrive, and exchanges where that does not serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from midstream.algebra import physical as p
from midstream.algebra.physical.routed import KeptWindow, Ways
from midstream.distribution.fragments import STAY, Fragment, Received, Route, Staged, leaves, with_key_classes


@dataclass(slots=True)
class FragmentPart:
    """What becomes a fragment: a plan, and how its output travels."""

    node: p.PhysicalNode
    route: Route
    stage: int = 0
    """The stage before which it cannot run, if what it reads does not say so."""


def receive(producer: p.PhysicalNode, fragment: int, route: Route) -> Received:
    """The leaf that stands for a fragment's output."""
    under = next(leaves(producer)).stream
    name = f"#{fragment}"
    stream = replace(under, name=name, alias=name)
    return Received(producer.schema, stream, producer=producer, fragment=fragment, route=route)


def staged(
    parts: Sequence[FragmentPart], wanted: Mapping[str, Route], arriving: dict[str, Route], routes_fixed: frozenset[str]
) -> Staged:
    """Numbers fragments and stages, and reads sources through exchanges where they cannot be read directly.

    `wanted` are the routes by which sources should arrive, by alias.
    """
    fragments: list[Fragment] = []
    numbers: dict[int, int] = {}
    used: dict[str, Route] = {}
    for i, part in enumerate(parts):
        node = renumbered(part.node, numbers)
        received = [leaf for leaf in leaves(node) if isinstance(leaf, Received)]
        sources = [leaf for leaf in leaves(node) if not isinstance(leaf, Received)]
        wants = {source.stream.alias: wanted[source.stream.alias] for source in sources}
        if received or not _arrive(sources, wants, arriving, used, routes_fixed):
            for source in sources:
                above = _lifted(node, source, wants[source.stream.alias])
                number = len(fragments)
                fragments.append(Fragment(number, above, 0, wants[source.stream.alias], None))
                _keep(source.stream.name, STAY, arriving, used)
                node = with_node(node, above, receive(above, number, wants[source.stream.alias]))
        stage = max(part.stage, stage_of(node, fragments))
        for ways in [n for n in p.walk_physical(node) if isinstance(n, Ways)]:
            own = stage_of(ways, fragments)
            if own < stage:  # its windows are kept in that stage: what it reads must be read there
                number = len(fragments)
                fragments.append(Fragment(number, ways, own, STAY, None))
                node = with_node(node, ways, receive(ways, number, STAY))
        numbers[i] = len(fragments)
        fragments.append(Fragment(len(fragments), node, stage, part.route, None))
    return Staged(with_key_classes(with_readers(fragments)), used)


def stage_of(node: p.PhysicalNode, fragments: Sequence[Fragment]) -> int:
    """The first stage in which all that a plan reads is there."""
    return 1 + max((fragments[leaf.fragment].stage for leaf in leaves(node) if isinstance(leaf, Received)), default=-1)


def _arrive(
    sources: Sequence[p.SourceNode],
    wants: Mapping[str, Route],
    arriving: dict[str, Route],
    used: dict[str, Route],
    routes_fixed: frozenset[str],
) -> bool:
    """Whether all sources can be read as their streams arrive; if so, streams without a route get one."""
    planned = dict(arriving)
    for source in sources:
        want = _own(wants[source.stream.alias], source)
        here = planned.get(source.stream.name, STAY)
        chosen = source.stream.name in routes_fixed or bool(here.slots)
        if here.key is None and want.key is not None and not chosen:
            planned[source.stream.name] = want
        elif want.key is not None and here != want:
            return False
    for source in sources:
        arriving.update(planned)
        _keep(source.stream.name, planned.get(source.stream.name, STAY), arriving, used)
    return True


def _keep(stream: str, route: Route, arriving: dict[str, Route], used: dict[str, Route]) -> None:
    known = arriving.get(stream, STAY)
    used[stream] = known if known.key is not None or known.slots else route
    arriving[stream] = used[stream]


def _own(route: Route, source: p.SourceNode) -> Route:
    """A route in the names of the stream's columns, without the alias."""
    if route.key is None:
        return route
    return Route(tuple(name.removeprefix(f"{source.stream.alias}.") for name in route.key))


def _lifted(plan: p.PhysicalNode, source: p.SourceNode, route: Route) -> p.PhysicalNode:
    """The source with the selections right above it that keep the columns of its route."""
    top: p.PhysicalNode = source
    while True:
        above = next((n for n in p.walk_physical(plan) if any(child is top for child in n.inputs)), None)
        if not isinstance(above, p.Filter) or not set(route.key or ()) <= set(above.schema.names):
            return top
        top = above


def with_readers(fragments: list[Fragment]) -> tuple[Fragment, ...]:
    """The fragments, each with the one that reads it."""
    reader = {leaf.fragment: f.number for f in fragments for leaf in f.received}
    for fragment in fragments:
        if isinstance(fragment.plan, KeptWindow):  # gives nothing, least of all results
            reader[fragment.number] = fragments[-1].number
    return tuple(replace(f, reader=reader.get(f.number)) for f in fragments)


def renumbered(plan: p.PhysicalNode, numbers: Mapping[int, int]) -> p.PhysicalNode:
    """A plan that reads fragments by other numbers."""
    for leaf in list(leaves(plan)):
        if isinstance(leaf, Received):
            plan = with_node(plan, leaf, receive(leaf.producer, numbers[leaf.fragment], leaf.route))
    return plan


def with_node(plan: p.PhysicalNode, old: p.PhysicalNode, new: p.PhysicalNode) -> p.PhysicalNode:
    """A plan with a node in the place of another."""
    return p.replaced(plan, lambda node: new if node is old else None)
