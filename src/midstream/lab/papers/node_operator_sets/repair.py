"""The messages of distributed modification, and the token that only its holder may repair a head's way with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Union as Either

from midstream.algebra.placements import Placement
from midstream.lab.papers.node_operator_sets.cost import Rank
from midstream.lab.papers.node_operator_sets.network import Relined
from midstream.lab.papers.node_operator_sets.node_sets import HopOperators, OperatorSet
from midstream.lab.papers.node_operator_sets.statistics import Flow, StreamStatistics
from midstream.lab.papers.node_operator_sets.wire import on_the_wire
from midstream.optimizer.sites.links import Link


@on_the_wire
@dataclass(frozen=True, slots=True)
class Place:
    """A stream's place on the way of a head: the partial results that come in, and the operators of the probe."""

    position: int
    flow: Flow
    placement: Placement
    hop: HopOperators


@on_the_wire
@dataclass(frozen=True, slots=True)
class Token:
    """The right to repair one head's way.

    `sent` counts for each affected node the messages that it was sent and that nobody waits for. Where a line has
    changed, `relined` tells its ends of it, and the token goes to the end of the way.
    """

    starter: str
    head: str
    order: tuple[str, ...]
    sent: Mapping[str, int] = field(default_factory=dict)
    relined: Relined | None = None

    def counting(self, node: str, messages: int = 1) -> Token:
        """The token after a node was affected, and sent so many messages."""
        return replace(self, sent={**self.sent, node: self.sent.get(node, 0) + messages})

    def swapped(self, first: int, second: int) -> Token:
        """The token after the streams at two positions have swapped."""
        order = list(self.order)
        order[first], order[second] = order[second], order[first]
        return replace(self, order=tuple(order))


@on_the_wire
@dataclass(frozen=True, slots=True)
class Begin:
    """Has a head look at its way from the first position on, by what it knows of its own rows."""

    to: str
    token: Token


@on_the_wire
@dataclass(frozen=True, slots=True)
class Compare:
    """Asks the stream at a position whether the starter's stream would be cheaper there, by the starter's lines."""

    to: str
    token: Token
    position: int
    own: StreamStatistics
    lines: Mapping[tuple[str, str], Link] = field(default_factory=dict)


@on_the_wire
@dataclass(frozen=True, slots=True)
class Stays:
    """No earlier position is better: the changed stream stays where it is, or moves towards the end."""

    to: str
    token: Token


@on_the_wire
@dataclass(frozen=True, slots=True)
class Settle:
    """Hands on what now flows into a position."""

    to: str
    token: Token
    position: int
    flow: Flow


@on_the_wire
@dataclass(frozen=True, slots=True)
class Relay:
    """Looks for the cheapest stream for a position; `at` is whose turn it is to compare."""

    to: str
    token: Token
    position: int
    flow: Flow
    at: int
    best: str
    rank: Rank


@on_the_wire
@dataclass(frozen=True, slots=True)
class Chosen:
    """Tells a stream that it is the cheapest for a position."""

    to: str
    token: Token
    position: int
    flow: Flow


@on_the_wire
@dataclass(frozen=True, slots=True)
class Exchange:
    """Offers the sender's place for the receiver's; `flow` is what flows into the earlier of both."""

    to: str
    sender: str
    token: Token
    place: Place
    flow: Flow


@on_the_wire
@dataclass(frozen=True, slots=True)
class Exchanged:
    """Gives a place in return; the stream now at the earlier position has the token."""

    to: str
    sender: str
    head: str
    place: Place
    token: Token | None = None
    flow: Flow | None = None


@on_the_wire
@dataclass(frozen=True, slots=True)
class Host:
    """Sets what a node does for a position of a head's way because partial results are there; empty: nothing more."""

    to: str
    head: str
    position: int
    operators: OperatorSet


@on_the_wire
@dataclass(frozen=True, slots=True)
class Repaired:
    """Tells the starter that a head's way holds the invariant again."""

    to: str
    token: Token


Message = Either[Begin, Compare, Stays, Settle, Relay, Chosen, Exchange, Exchanged, Host, Repaired]  # noqa: UP007
