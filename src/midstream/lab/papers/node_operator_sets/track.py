"""The distributed track: two-phase migration of all affected nodes from one plan to the next.

A node that is to change keeps its old set in use, installs the new one beside it and fills the windows it needs. When
they are full it is local-ready and tells all other members; when all are local-ready it is global-ready and tells them
again; when all are global-ready it switches. A member gives up only before it is global-ready. So if one gives up, none
can have switched, and if one has switched, all have promised to: the members end in one and the same plan, whatever
messages are lost and whoever crashes and comes back. Until it switches, a node works by the old plan.

A transition is a pure function of the state and a message; time comes in as a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Union as Either

from midstream.lab.papers.node_operator_sets.node_sets import OperatorSet
from midstream.lab.papers.node_operator_sets.wire import on_the_wire

REMEMBERED = 64
"""How many ended changes a node can still answer for."""


@on_the_wire
@dataclass(frozen=True, slots=True)
class Share:
    """A node's part of a plan: its operators, and the nodes that keep the window of its stream."""

    operators: OperatorSet
    keepers: tuple[str, ...] = ()


@on_the_wire
@dataclass(frozen=True, slots=True)
class Prepare:
    """Tells a member of a change: the number of the new plan, who takes part, and the member's share."""

    to: str
    change: int
    epoch: int
    members: tuple[str, ...]
    share: Share


@on_the_wire
@dataclass(frozen=True, slots=True)
class LocalReady:
    """The sender's windows are full; `asks`: the sender has not heard from the receiver and wants an answer."""

    to: str
    change: int
    sender: str
    asks: bool = False


@on_the_wire
@dataclass(frozen=True, slots=True)
class GlobalReady:
    """The sender knows that all members are local-ready, and will not give up any more."""

    to: str
    change: int
    sender: str
    asks: bool = False


@on_the_wire
@dataclass(frozen=True, slots=True)
class GiveUp:
    """The change has failed: everybody stays with the old plan."""

    to: str
    change: int
    sender: str


@on_the_wire
@dataclass(frozen=True, slots=True)
class Full:
    """All windows of the new set are complete here."""

    change: int


@on_the_wire
@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes: asks again, or gives up what takes too long."""

    now: float


@on_the_wire
@dataclass(frozen=True, slots=True)
class Drained:
    """No partial results of plans before an epoch are on their way any more."""

    epoch: int


TrackMessage = Either[Prepare, LocalReady, GlobalReady, GiveUp]  # noqa: UP007
TrackEvent = Either[TrackMessage, Full, Tick, Drained]  # noqa: UP007

PREPARING, LOCAL, GLOBAL = "preparing", "local-ready", "global-ready"


@on_the_wire
@dataclass(frozen=True, slots=True)
class Move:
    """A change in progress as one member sees it."""

    change: int
    epoch: int
    members: tuple[str, ...]
    phase: str
    since: float


@on_the_wire
@dataclass(frozen=True)
class Track:
    """A node's plans: the one in use, those still draining, the next one while a change is in progress.

    `heard` are the members known to be local-ready and global-ready, by change: word may come before the change itself.
    """

    node: str
    epoch: int
    shares: Mapping[int, Share]
    now: float = 0.0
    move: Move | None = None
    heard: Mapping[int, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)
    ended: Mapping[int, bool] = field(default_factory=dict)

    @property
    def sets(self) -> dict[int, OperatorSet]:
        """The sets that are installed, by epoch."""
        return {epoch: share.operators for epoch, share in self.shares.items()}


Stepped = tuple[Track, tuple[TrackMessage, ...]]


def step(track: Track, event: TrackEvent, patience: float) -> Stepped:
    """One transition; `patience` is how long a change may take before members give up."""
    match event:
        case Prepare():
            return _prepared(track, event)
        case Full(change):
            if track.move is None or track.move.change != change or track.move.phase != PREPARING:
                return track, ()
            return _advanced(_in_phase(track, LOCAL), _to_others(track, LocalReady))
        case LocalReady() | GlobalReady():
            return _ready(track, event)
        case GiveUp(_, change, _):
            return _given_up(track, change) if change not in track.ended else (track, ())
        case Tick(now):
            return _waited(replace(track, now=now), patience)
        case Drained(epoch):
            # A node that took no part in a change has no share of its own for it: the latest one not newer counts.
            oldest = max((e for e in track.shares if e <= epoch), default=min(track.shares))
            return replace(track, shares={e: s for e, s in track.shares.items() if e >= oldest}), ()


def _prepared(track: Track, message: Prepare) -> Stepped:
    if message.change in track.ended or (track.move is not None and track.move.change == message.change):
        return track, ()
    sent: tuple[TrackMessage, ...] = ()
    if track.move is not None:
        # Changes come one after another, so the one in progress has ended elsewhere: a later epoch says how.
        committed = message.epoch > track.move.epoch
        track, sent = _switched(track) if committed else _given_up(track, track.move.change)
    if message.epoch != track.epoch + 1:
        refused = tuple(GiveUp(m, message.change, track.node) for m in message.members if m != track.node)
        return replace(track, ended=_remembered(track, message.change, False)), (*sent, *refused)
    move = Move(message.change, message.epoch, message.members, PREPARING, track.now)
    track = replace(track, move=move, shares={**track.shares, message.epoch: message.share})
    return track, sent


def _ready(track: Track, message: LocalReady | GlobalReady) -> Stepped:
    if message.change in track.ended:
        if not track.ended[message.change]:
            return track, (GiveUp(message.sender, message.change, track.node),)
        return track, (GlobalReady(message.sender, message.change, track.node),) if message.asks else ()
    local, every = track.heard.get(message.change, (frozenset(), frozenset()))
    local |= {message.sender}
    if isinstance(message, GlobalReady):
        every |= {message.sender}
    track = replace(track, heard={**track.heard, message.change: (local, every)})
    move = track.move
    if move is None or move.change != message.change:
        return track, ()
    answer: tuple[TrackMessage, ...] = ()
    if message.asks and move.phase != PREPARING:
        kind = LocalReady if move.phase == LOCAL else GlobalReady
        answer = (kind(message.sender, move.change, track.node),)
    return _advanced(track, answer)


def _advanced(track: Track, sent: tuple[TrackMessage, ...]) -> Stepped:
    """Enters the next phases as far as what was heard allows."""
    move = track.move
    assert move is not None
    others = set(move.members) - {track.node}
    local, every = track.heard.get(move.change, (frozenset(), frozenset()))
    if move.phase == LOCAL and others <= local:
        track = _in_phase(track, GLOBAL)
        sent = (*sent, *_to_others(track, GlobalReady))
    if track.move is not None and track.move.phase == GLOBAL and others <= every:
        track, more = _switched(track)
        sent = (*sent, *more)
    return track, sent


def _switched(track: Track) -> Stepped:
    move = track.move
    assert move is not None
    ended, heard = _remembered(track, move.change, True), _without(track.heard, move.change)
    return replace(track, epoch=move.epoch, move=None, ended=ended, heard=heard), ()


def _given_up(track: Track, change: int) -> Stepped:
    """Back to the old plan; the members are told by whoever gives up first and by everyone who is asked."""
    track = replace(track, ended=_remembered(track, change, False), heard=_without(track.heard, change))
    move = track.move
    if move is None or move.change != change:
        return track, ()
    shares = {epoch: share for epoch, share in track.shares.items() if epoch != move.epoch}
    return replace(track, move=None, shares=shares), ()


def _waited(track: Track, patience: float) -> Stepped:
    move = track.move
    if move is None:
        return track, ()
    if move.phase != GLOBAL and track.now - move.since > patience:
        messages = _to_others(track, GiveUp)
        return _given_up(track, move.change)[0], messages
    local, every = track.heard.get(move.change, (frozenset(), frozenset()))
    if move.phase == LOCAL:
        silent = sorted(set(move.members) - {track.node} - local)
        return track, tuple(LocalReady(m, move.change, track.node, asks=True) for m in silent)
    if move.phase == GLOBAL:
        silent = sorted(set(move.members) - {track.node} - every)
        return track, tuple(GlobalReady(m, move.change, track.node, asks=True) for m in silent)
    return track, ()


def _in_phase(track: Track, phase: str) -> Track:
    assert track.move is not None
    return replace(track, move=replace(track.move, phase=phase))


def _to_others(
    track: Track, kind: type[LocalReady] | type[GlobalReady] | type[GiveUp]
) -> tuple[LocalReady | GlobalReady | GiveUp, ...]:
    move = track.move
    assert move is not None
    return tuple(kind(member, move.change, track.node) for member in move.members if member != track.node)


def _remembered(track: Track, change: int, committed: bool) -> dict[int, bool]:
    ended = {**track.ended, change: committed}
    return dict(list(ended.items())[-REMEMBERED:])


def _without(
    heard: Mapping[int, tuple[frozenset[str], frozenset[str]]], change: int
) -> dict[int, tuple[frozenset[str], frozenset[str]]]:
    return {known: who for known, who in heard.items() if known != change}
