"""Node operator sets: what each node does for a plan (section 4.1).

`join` probes a window with partial results that are here, `update` keeps a window, `ship` sends rows or partial results
to a node. A node's set is the union over all heads, so what several heads need is done once. Rows and partial results
are told apart by a stream id: `S2` are the rows of S2, `S1..S2` what S1's rows are after they have met S2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Union as Either

from midstream.algebra.placements import Placement
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan
from midstream.lab.papers.node_operator_sets.network import RESULTS, Network
from midstream.lab.papers.node_operator_sets.wire import on_the_wire
from midstream.optimizer.routed.plan import HeadPlan, OneWay


@on_the_wire
@dataclass(frozen=True, slots=True, order=True)
class StreamId:
    """The rows of a stream, or with a head the partial results of its rows after they met the stream."""

    stream: str
    head: str = ""

    def __str__(self) -> str:
        return f"{self.head}..{self.stream}" if self.head else self.stream


@on_the_wire
@dataclass(frozen=True, slots=True, order=True)
class Join:
    """Probes the window of a stream with what arrives under an id."""

    source: StreamId
    target: str

    def __str__(self) -> str:
        return f"join({self.source}, {self.target})"


@on_the_wire
@dataclass(frozen=True, slots=True, order=True)
class Update:
    """Keeps the window of a stream."""

    target: str

    def __str__(self) -> str:
        return f"update({self.target})"


@on_the_wire
@dataclass(frozen=True, slots=True, order=True)
class Ship:
    """Sends what arrives or results under an id to a node."""

    source: StreamId
    node: str

    def __str__(self) -> str:
        return f"ship({self.source}, {self.node})"


NodeOperator = Either[Join, Update, Ship]  # noqa: UP007
OperatorSet = frozenset[NodeOperator]
NodeSets = Mapping[str, OperatorSet]
NOTHING: OperatorSet = frozenset()


@on_the_wire
@dataclass(frozen=True, slots=True)
class HopOperators:
    """The operators of one one-way join: at the target's home, and at the node where the partial results come from."""

    home: str
    at_home: OperatorSet
    host: str
    at_host: OperatorSet

    @property
    def joined_at(self) -> str:
        """Where the window is probed."""
        return self.home if any(isinstance(o, Join) for o in self.at_home) else self.host


def hop_operators(source: StreamId, host: str, join: OneWay, last: str | None, network: Network) -> HopOperators:
    """The operators of a one-way join whose partial results are at a host; `last`: its head, if it is the last one.

    After the last one-way join the results are shipped to where the query was asked.
    """
    return _hop_operators(source, host, join, last, network.home(join.target))


@lru_cache(maxsize=4096)
def _hop_operators(source: StreamId, host: str, join: OneWay, last: str | None, home: str) -> HopOperators:
    probing: set[NodeOperator] = {Join(source, join.target), Update(join.target)}
    if last is not None:
        probing.add(Ship(StreamId(join.target, last), RESULTS))
    if join.placement is Placement.DESTINATION:
        sent: set[NodeOperator] = {Ship(source, home)} if host != home else set()
        return HopOperators(home, frozenset(probing), host, frozenset(sent))
    shipped: set[NodeOperator] = {Ship(StreamId(join.target), host)} if host != home else set()
    return HopOperators(home, frozenset(shipped), host, frozenset(probing))


def way_operators(way: HeadPlan, network: Network) -> list[HopOperators]:
    """The operators of each one-way join of a head."""
    found, source, host = [], StreamId(way.head), network.home(way.head)
    for join in way.joins:
        last = way.head if join is way.joins[-1] else None
        hop = hop_operators(source, host, join, last, network)
        found.append(hop)
        source, host = StreamId(join.target, way.head), hop.joined_at
    return found


def head_sets(way: HeadPlan, network: Network) -> dict[str, OperatorSet]:
    """What each node does for one head; the sets of all its one-way joins together."""
    sets = {node: NOTHING for node in network.nodes}
    for hop in way_operators(way, network):
        sets[hop.home] |= hop.at_home
        sets[hop.host] |= hop.at_host
    return sets


def node_sets(plan: JoinPlan, network: Network) -> dict[str, OperatorSet]:
    """What each node does for a plan."""
    sets = {node: NOTHING for node in network.nodes}
    for way in plan:
        for node, operators in head_sets(way, network).items():
            sets[node] |= operators
    return sets


@lru_cache(maxsize=4096)
def by_source(operators: OperatorSet) -> Mapping[StreamId, tuple[Join | Ship, ...]]:
    """Joins and shipments by what they start from, in a fixed order."""
    found: dict[StreamId, list[Join | Ship]] = {}
    for operator in sorted(operators, key=str):
        if not isinstance(operator, Update):
            found.setdefault(operator.source, []).append(operator)
    return {source: tuple(matching) for source, matching in found.items()}


def keepers(sets: NodeSets) -> dict[str, set[str]]:
    """For each stream the nodes that keep its window."""
    found: dict[str, set[str]] = {}
    for node, operators in sets.items():
        for operator in operators:
            if isinstance(operator, Update):
                found.setdefault(operator.target, set()).add(node)
    return found
