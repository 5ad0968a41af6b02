"""What bringing windows to where another plan keeps them takes on links between sites.

A routed join keeps the window of a stream by key at its site, or in every slot of the sites that probe it; any other
join by key in all slots. What lies in every slot already is wherever it is wanted.
"""

from __future__ import annotations

from midstream.algebra.placements import Placement
from midstream.algebra.plan import Join, MultiJoin, Relation, RoutedJoins, aliases, walk_plan
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.sites.homes import site_of
from midstream.optimizer.sites.topology import INTERVAL, Travelling

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
