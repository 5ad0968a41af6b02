"""Distributed modification (Algorithm 3): nodes repair the ways of all heads by messages, each from its own statistics.

A way is repaired by a token that carries the order. First the stream whose statistics changed finds its place: where it
became dearer, a relay along the later streams finds the cheapest for its position; where it became cheaper, it is
compared with the earlier streams from the first on. Two streams that swap exchange their places with stream ids
replaced. Then every later position is settled by a relay in the same way, like a selection sort, until what flows on is
what it was.

As printed, the algorithm looks only at the cost of the one-way join to the changed stream. The further triggers here
make it end in the plan of Algorithm 1 after every change (`docs/distributed_joins.md`): the head's own way is repaired,
later positions are settled although the stream stays, and placements are chosen again wherever the flow changed.

Where a line has changed, only probes of its ends' streams by partial results at the other end cost otherwise. So a
token goes along every way: a position whose flow is the same and elsewhere stays, any other is settled by a relay. A
node knows the lines to and from itself, and the token tells it of the one that has changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from midstream.errors import InternalError
from midstream.lab.papers.node_operator_sets.cost import Rank, flows
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan
from midstream.lab.papers.node_operator_sets.modification import Setting
from midstream.lab.papers.node_operator_sets.network import Relined
from midstream.lab.papers.node_operator_sets.node_sets import (
    NOTHING,
    HopOperators,
    Join,
    NodeOperator,
    OperatorSet,
    Ship,
    StreamId,
    Update,
    hop_operators,
    way_operators,
)
from midstream.lab.papers.node_operator_sets.repair import (
    Begin,
    Chosen,
    Compare,
    Exchange,
    Exchanged,
    Host,
    Message,
    Place,
    Relay,
    Repaired,
    Settle,
    Stays,
    Token,
)
from midstream.lab.papers.node_operator_sets.statistics import Flow, Statistics, StreamStatistics, starting
from midstream.lab.papers.node_operator_sets.wire import on_the_wire
from midstream.optimizer.routed.plan import HeadPlan, OneWay
from midstream.optimizer.sites.links import Link


@on_the_wire
@dataclass(frozen=True)
class Repairing:
    """A node's share of the plan: its place on the way of each other head, and what it hosts for other places.

    `waiting` are messages that came before the place they speak of.
    """

    stream: str
    own: StreamStatistics
    orders: Mapping[str, tuple[str, ...]]
    places: Mapping[str, Place]
    hosted: Mapping[str, Mapping[int, OperatorSet]]
    nodes: tuple[str, ...] = ()
    waiting: tuple[Message, ...] = ()
    open: frozenset[str] = frozenset()
    sent: Mapping[str, int] = field(default_factory=dict)
    received: int = 0
    lines: Mapping[tuple[str, str], Link] = field(default_factory=dict)
    """The lines to and from the node that have changed since all nodes were told."""

    def operators(self, head: str) -> OperatorSet:
        """What the node does for one head."""
        own = self.places[head].hop.at_home if head in self.places else NOTHING
        return own.union(*self.hosted.get(head, {}).values())

    @property
    def node_set(self) -> OperatorSet:
        """What the node does for all heads."""
        return NOTHING.union(*(self.operators(head) for head in self.orders))

    @property
    def keepers(self) -> tuple[str, ...]:
        """The nodes that keep the window of the node's stream: those at which it is probed."""
        return tuple(sorted({place.hop.joined_at for place in self.places.values()}))


def repairing_nodes(plan: JoinPlan, statistics: Statistics, setting: Setting) -> dict[str, Repairing]:
    """Every stream's node with its share of a plan."""
    network = setting.costs.network
    if len(network.nodes) != len(plan.streams):
        raise InternalError("distributed modification needs a node per stream")
    places: dict[str, dict[str, Place]] = {s: {} for s in plan.streams}
    hosted: dict[str, dict[str, dict[int, OperatorSet]]] = {s: {h: {} for h in plan.streams} for s in plan.streams}
    at = {network.home(stream): stream for stream in plan.streams}
    for way in plan:
        hops = way_operators(way, network)
        for position, (flow, join) in enumerate(flows(way, statistics, setting.costs)):
            hop = hops[position]
            places[join.target][way.head] = Place(position, flow, join.placement, hop)
            if hop.at_host:
                hosted[at[hop.host]][way.head][position] = hop.at_host
    orders = {way.head: way.order for way in plan}
    return {s: Repairing(s, statistics[s], orders, places[s], hosted[s], network.nodes) for s in plan.streams}


def plan_of(nodes: Mapping[str, Repairing], streams: Sequence[str]) -> JoinPlan:
    """The plan that nodes follow together."""
    ways = []
    for head in streams:
        placed = sorted((node.places[head].position, s) for s, node in nodes.items() if head in node.places)
        joins = tuple(OneWay(s, nodes[s].places[head].placement) for _, s in placed)
        ways.append(HeadPlan(head, joins))
    return JoinPlan(tuple(ways))


def triggered(node: Repairing, own: StreamStatistics, setting: Setting) -> tuple[Repairing, tuple[Message, ...]]:
    """The node's stream has other statistics: starts to repair every way that this can concern."""
    setting = _known(node, setting)
    before, sent = node.own, list[Message]()
    node = replace(node, own=own, open=frozenset(node.orders), sent={}, received=0)
    for head, order in node.orders.items():
        token = Token(node.stream, head, order)
        if head == node.stream:
            flow = starting(head, own, setting.costs.network)
            sent.append(Settle(order[0], token, 0, flow) if order else Repaired(node.stream, token))
            continue
        place = node.places[head]
        if not own.dearer_than(before) and place.position > 0:
            sent.append(Compare(order[0], token, 0, own, node.lines))
            continue
        node, more = _stays(node, token, before, setting)
        sent += more
    return node, tuple(sent)


def line_triggered(node: Repairing, relined: Relined, setting: Setting) -> tuple[Repairing, tuple[Message, ...]]:
    """A line from the node has changed: starts to look at every way."""
    network = setting.costs.network
    node = replace(_with_line(node, relined, setting), open=frozenset(node.orders), sent={}, received=0)
    sent: list[Message] = []
    for head, order in node.orders.items():
        token = Token(node.stream, head, order, relined=relined)
        if not order:
            sent.append(Repaired(node.stream, token))
        elif head == node.stream:
            sent.append(Settle(order[0], token, 0, starting(head, node.own, network)))
        else:
            sent.append(Begin(head, token))
    return node, tuple(sent)


def _with_line(node: Repairing, relined: Relined | None, setting: Setting) -> Repairing:
    """The node, once it knows of a changed line that it is an end of."""
    if relined is None or setting.costs.network.home(node.stream) not in relined.ends:
        return node
    return replace(node, lines={**node.lines, relined.ends: relined.line})


def _known(node: Repairing, setting: Setting) -> Setting:
    """What a node goes by: what all nodes know, with the lines that it knows itself."""
    if not node.lines:
        return setting
    return replace(setting, costs=replace(setting.costs, network=setting.costs.network.with_lines(node.lines)))


def _stays(
    node: Repairing, token: Token, before: StreamStatistics, setting: Setting
) -> tuple[Repairing, list[Message]]:
    """The changed stream does not move towards the beginning: it may stay, or a later one may take its position."""
    place = node.places[token.head]
    if before.dearer_than(node.own):
        return _put(node, token, place.position, place.flow, setting)
    return _ask(node, token, place.position, place.flow, setting)


def received(
    node: Repairing, message: Message, setting: Setting, before: StreamStatistics
) -> tuple[Repairing, tuple[Message, ...]]:
    """A node takes a message; `before` are the statistics that the plan in use was made for."""
    if _too_early(node, message):
        return replace(node, waiting=(*node.waiting, message)), ()
    node = _with_line(node, _relined(message), setting)
    node, sent = _handled(node, message, _known(node, setting), before)
    if isinstance(message, Exchanged) and node.waiting:
        waiting, node = node.waiting, replace(node, waiting=())
        for earlier in waiting:
            node, more = received(node, earlier, setting, before)
            sent = [*sent, *more]
    return node, tuple(sent)


def _relined(message: Message) -> Relined | None:
    token = None if isinstance(message, Host) else message.token
    return None if token is None else token.relined


def _too_early(node: Repairing, message: Message) -> bool:
    """Whether a message speaks of a place that the node has yet to be given."""
    if not isinstance(message, Settle | Chosen | Exchange):
        return False
    order = message.token.order
    return node.places[message.token.head].position != order.index(node.stream)


def _handled(
    node: Repairing, message: Message, setting: Setting, before: StreamStatistics
) -> tuple[Repairing, list[Message]]:
    match message:
        case Compare():
            return node, [_compared(node, message, setting)]
        case Stays(token=token):
            return _stays(node, token, before, setting)
        case Settle(token=token, position=position, flow=flow):
            if flow == node.places[token.head].flow:
                # A flow knows what it has met in which order: nothing before or at this position has changed.
                if token.relined is None:
                    return node, [Repaired(token.starter, token)]
                if flow.node not in token.relined.ends:
                    return node, [_passed(node, token, position, flow, setting)]
            return _ask(node, token, position, flow, setting)
        case Begin(token=token):
            return node, [Settle(token.order[0], token, 0, starting(token.head, node.own, setting.costs.network))]
        case Relay():
            return node, [_relayed(node, message, setting)]
        case Chosen(token=token, position=position, flow=flow):
            if token.order[position] == node.stream:
                return _put(node, token, position, flow, setting)
            holder = token.order[position]
            return node, [Exchange(holder, node.stream, token, node.places[token.head], flow)]
        case Exchange():
            return _exchange(node, message, setting)
        case Exchanged():
            return _exchanged(node, message, setting)
        case Host(head=head, position=position, operators=operators):
            mine = {k: v for k, v in node.hosted.get(head, {}).items() if k != position}
            hosted = {**node.hosted, head: {**mine, position: operators} if operators else mine}
            return replace(node, hosted=hosted, received=node.received + 1), []
        case Repaired(token=token):
            sent = dict(node.sent)
            for stream, messages in token.sent.items():
                sent[stream] = sent.get(stream, 0) + messages
            orders = {**node.orders, token.head: token.order}
            return replace(node, open=node.open - {token.head}, sent=sent, orders=orders), []
    raise InternalError(f"no node takes a {type(message).__name__}")


def _rank(node: Repairing, flow: Flow, setting: Setting) -> Rank:
    return setting.costs.rank(flow, node.stream, node.own, setting.conditions)


def _compared(node: Repairing, message: Compare, setting: Setting) -> Message:
    """The starter's stream takes this node's place if it is cheaper here, else the next one is asked."""
    token, position = message.token, message.position
    flow = node.places[token.head].flow
    known = replace(setting.costs, network=setting.costs.network.with_lines(message.lines))
    theirs = known.rank(flow, token.starter, message.own, setting.conditions)
    if theirs < _rank(node, flow, setting):
        return Exchange(token.starter, node.stream, token, node.places[token.head], flow)
    following = token.order[position + 1]
    if following == token.starter:
        return Stays(following, token)
    return Compare(following, token, position + 1, message.own, message.lines)


def _passed(node: Repairing, token: Token, position: int, flow: Flow, setting: Setting) -> Message:
    """Hands on what flows out of a position that stays as it is."""
    if position == len(token.order) - 1:
        return Repaired(token.starter, token)
    join = OneWay(node.stream, node.places[token.head].placement)
    return Settle(token.order[position + 1], token, position + 1, setting.costs.joined(flow, join, node.own))


def _ask(node: Repairing, token: Token, position: int, flow: Flow, setting: Setting) -> tuple[Repairing, list[Message]]:
    """Looks for the cheapest stream for a position, starting with the one that stands there."""
    if position == len(token.order) - 1:
        return _put(node, token, position, flow, setting)
    relay = Relay(
        token.order[position + 1], token, position, flow, position + 1, node.stream, _rank(node, flow, setting)
    )
    return node, [relay]


def _relayed(node: Repairing, message: Relay, setting: Setting) -> Message:
    rank = _rank(node, message.flow, setting)
    if rank < message.rank:
        message = replace(message, best=node.stream, rank=rank)
    order = message.token.order
    if message.at + 1 < len(order):
        return replace(message, to=order[message.at + 1], at=message.at + 1)
    return Chosen(message.best, message.token, message.position, message.flow)


def _exchange(node: Repairing, message: Exchange, setting: Setting) -> tuple[Repairing, list[Message]]:
    """Gives the own place for the sender's; the one who comes to stand at the earlier position goes on."""
    head, mine, theirs = message.token.head, node.places[message.token.head], message.place
    token = message.token.swapped(mine.position, theirs.position)
    node = _taking(node, head, theirs, message.sender, setting)
    if theirs.position > mine.position:
        return node, [Exchanged(message.sender, node.stream, head, mine, token, message.flow)]
    token = token.counting(message.sender)
    node, sent = _put(node, token, theirs.position, message.flow, setting)
    return node, [Exchanged(message.sender, node.stream, head, mine), *sent]


def _exchanged(node: Repairing, message: Exchanged, setting: Setting) -> tuple[Repairing, list[Message]]:
    node = _taking(node, message.head, message.place, message.sender, setting)
    if message.token is None or message.flow is None:
        return replace(node, received=node.received + 1), []
    return _put(node, message.token, message.place.position, message.flow, setting)


def _taking(node: Repairing, head: str, place: Place, sender: str, setting: Setting) -> Repairing:
    """The node with another's place, under its own stream id; what hosts do for the place follows when it is put."""
    home = setting.costs.network.home
    at_home = renamed(place.hop.at_home, (sender, home(sender)), (node.stream, home(node.stream)))
    hop = replace(place.hop, home=home(node.stream), at_home=at_home)
    return replace(node, places={**node.places, head: replace(place, hop=hop)})


def renamed(operators: OperatorSet, old: tuple[str, str], new: tuple[str, str]) -> OperatorSet:
    """Operators with one stream and its node replaced by another.

    >>> taken = frozenset({Join(StreamId("S1"), "S2"), Update("S2"), Ship(StreamId("S2", "S1"), "N3")})
    >>> sorted(map(str, renamed(taken, ("S2", "N2"), ("S3", "N3"))))
    ['join(S1, S3)', 'ship(S1..S3, N3)', 'update(S3)']
    """

    def stream(name: str) -> str:
        return new[0] if name == old[0] else name

    def one(operator: NodeOperator) -> NodeOperator:
        match operator:
            case Join(source, target):
                return Join(replace(source, stream=stream(source.stream)), stream(target))
            case Update(target):
                return Update(stream(target))
            case Ship(source, node):
                return Ship(replace(source, stream=stream(source.stream)), new[1] if node == old[1] else node)
        raise InternalError(f"no operator like {operator}")

    return frozenset(map(one, operators))


def _put(node: Repairing, token: Token, position: int, flow: Flow, setting: Setting) -> tuple[Repairing, list[Message]]:
    """Settles the node's stream at a position: chooses the placement, tells the hosts, hands on what flows out."""
    costs, place = setting.costs, node.places[token.head]
    placement = costs.choice(flow, node.stream, node.own)[1]
    join = OneWay(node.stream, placement)
    source = StreamId(flow.met[-1], flow.head) if flow.met else StreamId(flow.head)
    last = token.head if position == len(token.order) - 1 else None
    hop = hop_operators(source, flow.node, join, last, costs.network)
    sent: list[Message] = []
    if hop.at_home != place.hop.at_home or token.order[position] != node.orders[token.head][position]:
        token = token.counting(node.stream, 0)
    for host, operators in _host_changes(place.hop, hop):
        token = token.counting(host)
        sent.append(Host(host, token.head, position, operators))
    node = replace(node, places={**node.places, token.head: Place(position, flow, placement, hop)})
    out = costs.joined(flow, join, node.own)
    if position == len(token.order) - 1:
        return node, [*sent, Repaired(token.starter, token)]
    return node, [*sent, Settle(token.order[position + 1], token, position + 1, out)]


def _host_changes(old: HopOperators, new: HopOperators) -> list[tuple[str, OperatorSet]]:
    """What nodes from which partial results come have to do otherwise than before."""
    if (old.host, old.at_host) == (new.host, new.at_host):
        return []
    changes = [(new.host, new.at_host)]
    if old.host != new.host and old.at_host:
        changes.append((old.host, NOTHING))
    return changes
