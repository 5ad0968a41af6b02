"""What bringing windows to where another plan keeps them takes on links between sites.

A routed join keeps the window of a stream by key at its site, or in every slot; any other join by key in all slots.
What lies in every slot already is wherever it is wanted.
"""

from __future__ import annotations

from midstream.algebra.placements import Placement
from midstream.algebra.plan import Join, MultiJoin, Relation, RoutedJoins, aliases, walk_plan
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.sites.homes import site_of
from midstream.optimizer.sites.topology import INTERVAL, Travelling

EVERYWHERE = "*"
"""In every slot; no site is called so where streams live."""

Places = dict[str | None, Relation]
"""Where the window of a stream is kept: at a site, by key in all slots (None) or in every slot."""


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


def _places(node: Join | MultiJoin, number: int, child: Relation) -> list[str | None]:
    if not isinstance(node, RoutedJoins):
        return [None]
    used = {
        placement
        for order, placed in zip(node.orders, node.placements, strict=True)
        for target, placement in zip(order, placed, strict=True)
        if target == number
    }
    return [EVERYWHERE if placement is Placement.SOURCE else site_of(child) for placement in used]


def moving_seconds(old: Relation, new: Relation, estimator: Estimator) -> float:
    """How long windows take on links to where another plan keeps them."""
    topology = estimator.topology
    if topology is None or not topology.links:
        return 0.0
    travelling, before = Travelling(topology), window_places(old)
    for name, wanted in window_places(new).items():
        there = before.get(name, {})
        if EVERYWHERE in there or not there:
            continue
        start = topology.home(next(iter(there)))
        for place, relation in wanted.items():
            flow = estimator.flow(relation)
            size = flow.population * (flow.width + INTERVAL)
            if place == EVERYWHERE:
                travelling.send_everywhere(0, start, size)
            elif place not in there:
                travelling.send(0, start, topology.home(place), size)
    return topology.seconds(travelling.transfers, 1.0)
