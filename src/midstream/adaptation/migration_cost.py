"""What a migration is predicted to cost, in the unit of plans' costs.

Moving state computes what the new plan keeps and the old one does not: from what is there, the rows are probed once and
the results stored once. What both keep changes hands; if it is sorted by another key, it is stored again. Windows that
are kept at other sites pay for the links between: a routed join keeps the window of a stream by key at its site, or in
every slot of the sites that probe it; any other join by key in all slots. What lies in every slot already is wherever
it is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator

from midstream.algebra.expressions import columns_of
from midstream.algebra.placements import Placement
from midstream.algebra.plan import (
    Aggregate,
    Distinct,
    Join,
    MultiJoin,
    Relation,
    RoutedJoins,
    RowFunctions,
    aliases,
    walk_plan,
)
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.sites.topology import INTERVAL, Travelling, site_of

RESORTING = 0.3
"""What it costs to sort a kept row by another key, relative to storing it."""

Kept = tuple[frozenset[str], bool, bool]
"""What a state holds: of which streams, and whether duplicates are gone or groups are formed."""


def kept_by(plan: Relation) -> dict[Kept, tuple[Relation, frozenset[str]]]:
    """What a plan's operators keep, and by which columns they look it up."""
    found: dict[Kept, tuple[Relation, frozenset[str]]] = {}
    for node in walk_plan(plan):
        if isinstance(node, Join | MultiJoin | Distinct | Aggregate | RowFunctions):
            read = columns_of(node.on) if isinstance(node, Join | MultiJoin) else frozenset()
            for child in node.inputs:
                found.setdefault(_name(child), (child, read & frozenset(child.schema.names)))
    return found


def _name(relation: Relation) -> Kept:
    nodes = list(walk_plan(relation))
    distinct = any(isinstance(n, Distinct) for n in nodes)
    grouped = any(isinstance(n, Aggregate) for n in nodes)
    return aliases(relation), distinct, grouped


def migration_cost(old: Relation, new: Relation, estimator: Estimator) -> float:
    """The predicted cost of going from one plan to the other."""
    there = kept_by(old)
    constants = estimator.constants
    total = 0.0
    for name, (relation, key) in kept_by(new).items():
        held = estimator.flow(relation).population
        if name in there:
            total += 0.0 if there[name][1] == key else RESORTING * constants.insert * held
        else:
            read = sum(estimator.flow(child).population for child in _sources(relation))
            total += constants.probe * read + (constants.insert + constants.match) * held
    return total + constants.second * moving_seconds(old, new, estimator)


def _sources(relation: Relation) -> Iterator[Relation]:
    """What a result is computed from."""
    if isinstance(relation, Join | MultiJoin):
        yield from relation.inputs
    elif relation.inputs:
        yield from _sources(relation.inputs[0])
    else:
        yield relation


Copies = frozenset[str | None]
"""The sites in each slot of which a window is kept; None among them: every slot."""

Places = dict[str | Copies | None, Relation]
"""Where the window of a stream is kept: by key at a site or in all slots (None), or copied."""


def window_places(plan: Relation) -> dict[frozenset[str], Places]:
    """Where a plan keeps the windows of the streams that it joins."""
    found: dict[frozenset[str], Places] = {}
    for node in walk_plan(plan):
        if not isinstance(node, Join | MultiJoin):
            continue
        for number, child in enumerate(node.inputs):
            if not any(isinstance(below, Join | MultiJoin) for below in walk_plan(child)):
                for place in _places(node, number, child):
                    found.setdefault(aliases(child), {})[place] = child
    return found


def _places(node: Join | MultiJoin, number: int, child: Relation) -> list[str | Copies | None]:
    if not isinstance(node, RoutedJoins):
        return [None]
    homes, probing, by_key = [site_of(each) for each in node.inputs], set[str | None](), False
    for head, (order, placed) in enumerate(zip(node.orders, node.placements, strict=True)):
        here = homes[head]
        for target, placement in zip(order, placed, strict=True):
            here = here if placement is Placement.SOURCE else homes[target]
            if target == number:
                by_key |= placement is Placement.DESTINATION
                probing |= {here} if placement is Placement.SOURCE else set()
    return [*([site_of(child)] if by_key else []), *([frozenset(probing)] if probing else [])]


def moving_seconds(old: Relation, new: Relation, estimator: Estimator) -> float:
    """How long windows take on links to where another plan keeps them."""
    topology = estimator.topology
    if topology is None or not topology.links:
        return 0.0
    travelling, before = Travelling(topology), window_places(old)
    for name, wanted in window_places(new).items():
        there = before.get(name, {})
        held = Copies().union(*(place for place in there if isinstance(place, frozenset)))
        if None in held or not there:
            continue
        by_key = [place for place in there if not isinstance(place, frozenset)]
        start = topology.home(by_key[0] if by_key else min(filter(None, held)))
        for place, relation in wanted.items():
            flow = estimator.flow(relation)
            size = flow.population * (flow.width + INTERVAL)
            if isinstance(place, frozenset):
                missing = place - held
                travelling.send_everywhere(
                    0, start, size, None if None in missing else frozenset(filter(None, missing))
                )
            elif place not in there and place not in held:
                travelling.send(0, start, topology.home(place), size)
    return topology.seconds(travelling.transfers, 1.0)
