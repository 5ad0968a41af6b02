"""Rows that arrive where they are read, so that the first probes of a routed join need no exchange.

A routed join reads the rows of a stream by several routes: by each key by which its window is probed, or in every slot.
What lies between a stream and its first probes looks at one row at a time, so it gives the same on either side of an
exchange. So each stream arrives once by every route by which the first probes read it, and the fragments between run
where the rows arrive. One of these copies is the stream itself: only its rows are counted, looked at and buried. A
stream that another query wants by a key arrives that way, and its copies beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from midstream.algebra import physical as p
from midstream.algebra.declarations import StreamDeclaration
from midstream.distribution.fragments import STAY, Fragment, Route, Staged
from midstream.distribution.stages import traced

Place = tuple[str, int]
"""A fragment of a plan at work: the plan's name in this batch, and the fragment's number."""


@dataclass(frozen=True, slots=True)
class Copy:
    """The rows of a stream once more: the stream's port, and the route by which they arrive, in its own columns."""

    stream: int
    route: Route


@dataclass(slots=True)
class Arrivals:
    """How streams arrive in a batch: their routes, further copies by port, and the fragments that read them in place.

    Plans in `sooner` run one stage sooner than they say: what comes before their first probes needs none.
    """

    routes: dict[str, Route]
    copies: dict[int, Copy] = field(default_factory=dict)
    in_place: dict[Place, int] = field(default_factory=dict)
    sooner: set[str] = field(default_factory=set)


def arrivals(
    plans: Mapping[str, Staged], streams: Mapping[int, StreamDeclaration], routes: Mapping[str, Route]
) -> Arrivals:
    """How streams arrive for plans that may read them in place; `routes` are those that other plans count on."""
    found = Arrivals(dict(routes))
    ports = {declaration.name: port for port, declaration in streams.items()}
    known: dict[Copy, int] = {}
    for name, staged in plans.items():
        wanted = _wanted(staged)
        if not wanted or any(stream not in ports for stream, _ in wanted.values()):
            continue
        if any(found.routes.get(stream, STAY).slots for stream, _ in wanted.values()):
            continue  # rows of such a stream come in at its site, and travel from there
        found.sooner.add(name)
        for number, (stream, route) in sorted(wanted.items(), key=lambda item: item[1][1].key is None):
            copy = Copy(ports[stream], route)
            if copy not in known:
                known[copy] = _port(found, copy, stream, len(streams) + max(ports.values()))
            found.in_place[name, number] = known[copy]
    return found


def _port(found: Arrivals, copy: Copy, stream: str, above: int) -> int:
    """The port of a copy: that of the stream where this may arrive so, a new one otherwise."""
    own = found.routes.get(stream, STAY)
    if copy.route in (own, STAY):
        return copy.stream
    if own == STAY and copy.route.key is not None:
        found.routes[stream] = copy.route
        return copy.stream
    port = above + len(found.copies)
    found.copies[port] = copy
    return port


def _wanted(staged: Staged) -> dict[int, tuple[str, Route]]:
    """The streams and routes of the fragments that the first probes read, by number; none where they must exchange."""
    found: dict[int, tuple[str, Route]] = {}
    for fragment in staged.fragments:
        if fragment.stage == 0:
            stream = _one_row_at_a_time(fragment.plan)
            route = _arrival_route(fragment)
            if stream is None or route is None:
                return {}
            readers = _readers(staged, fragment)
            if 1 in readers and len(readers) > 1:
                return {}
            if readers == {1}:
                found[fragment.number] = stream, route
    return found


def _readers(staged: Staged, fragment: Fragment) -> set[int]:
    """The stages that read what a fragment gives."""
    return {other.stage for other in staged.fragments for leaf in other.received if leaf.fragment == fragment.number}


def _one_row_at_a_time(node: p.PhysicalNode) -> str | None:
    """The stream that is read through selections and projections alone; None if there is more."""
    while isinstance(node, p.Filter | p.Compute):
        node = node.input
    return node.stream.name if isinstance(node, p.SourceNode) else None


def _arrival_route(fragment: Fragment) -> Route | None:
    """The route of what a fragment gives, as one of the stream itself; None if its rows cannot arrive so."""
    route = fragment.route
    if route.key is None:
        return route
    below = traced(fragment.plan, route.key) if route.key else None
    if below is None:
        return None
    ((source, columns),) = below
    return Route(tuple(name.removeprefix(f"{source.stream.alias}.") for name in columns))
