"""The distribution manager: who owns which group, and the moves under way (Algorithms 1 and 3 of D-CAPE).

A move goes through the phases of its protocol. Moves of different groups are independent and may run at once, also
between the same machines. An answer counts once, and only in the phase that waits for it, so late and repeated answers
change nothing.

The paper's manager knows sender, receiver and amount, and lets the sender choose the groups. A request may also name
the groups. Groups that are on their way already, or that the sender does not own, are left out; a move without groups
is over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from midstream.errors import MigrationError
from midstream.lab.papers.partitioned_load_balancing.protocols.messages import (
    Acknowledged,
    Deactivated,
    Groups,
    Message,
    PartitionsToMove,
    Send,
)
from midstream.lab.papers.partitioned_load_balancing.protocols.phases import Move
from midstream.lab.papers.partitioned_load_balancing.protocols.registry import protocol_of

REMEMBERED = 64
"""How far apart the numbers of open moves may be: machines forget moves that are further back."""

Result = tuple["ManagerState", tuple[Send, ...]]


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """A decision: move groups of about this load, or exactly these groups, from one machine to another."""

    protocol: str
    sender: str
    receiver: str
    amount: float = 0.0
    groups: Groups = ()


@dataclass(frozen=True, slots=True)
class ManagerState:
    """Who owns each group, which machines have split operators, open moves, and how many there have been."""

    owners: tuple[str, ...]
    splits: tuple[str, ...]
    moves: tuple[Move, ...] = ()
    begun: int = 0

    @property
    def moving(self) -> frozenset[int]:
        """The groups on their way."""
        return frozenset(group for move in self.moves for group in move.groups)

    def owned_by(self, machine: str) -> Groups:
        """A machine's groups."""
        return tuple(group for group, owner in enumerate(self.owners) if owner == machine)

    def to_json(self) -> dict[str, Any]:
        """The state as plain values."""
        moves = [move.to_json() for move in self.moves]
        return {"owners": list(self.owners), "splits": list(self.splits), "moves": moves, "begun": self.begun}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> ManagerState:
        """A state from plain values."""
        moves = tuple(Move.from_json(move) for move in values["moves"])
        return cls(tuple(values["owners"]), tuple(values["splits"]), moves, values["begun"])


def begin(state: ManagerState, request: MoveRequest) -> Result:
    """Starts a move."""
    protocol_of(request.protocol)
    _refuse(state, request)
    free = set(state.owned_by(request.sender)) - state.moving
    groups = tuple(group for group in request.groups if group in free)
    if request.groups and not groups:
        return state, ()
    number = state.begun + 1
    move = Move(number, request.protocol, request.sender, request.receiver, state.splits, request.amount, groups)
    state = replace(state, begun=number, moves=(*state.moves, move))
    return _entered(state, move)


def receive(state: ManagerState, sender: str, message: Message) -> Result:
    """Takes an answer."""
    move = next((m for m in state.moves if m.number == message.move), None)
    answer = (sender, _name(message))
    if move is None or answer not in move.waiting:
        return state, ()
    move = replace(move, waiting=move.waiting - {answer})
    match message:
        case PartitionsToMove(groups=groups):
            free = set(state.owned_by(move.sender)) - state.moving
            move = replace(move, groups=tuple(sorted(free.intersection(groups))))
            if not move.groups:
                return replace(state, moves=tuple(m for m in state.moves if m.number != move.number)), ()
        case Acknowledged(latest_end=int(end)):
            # One tick later, because ISTREAM and DSTREAM at an instant also look at the instant before it.
            move = replace(move, split_at=max(end + 1, -(2**63) if move.split_at is None else move.split_at))
    state = _with(state, move)
    if move.waiting:
        return state, ()
    return _next_phase(state, move)


def resend(state: ManagerState) -> tuple[Send, ...]:
    """All that open moves still wait for, asked again; for timers and restarts."""
    return tuple(send for move in state.moves for send in _asked(move))


def _refuse(state: ManagerState, request: MoveRequest) -> None:
    if request.sender == request.receiver:
        raise MigrationError(f"groups cannot be moved from {request.sender} to itself")
    unknown = [group for group in request.groups if not 0 <= group < len(state.owners)]
    if unknown:
        raise MigrationError(
            f"there is no partition group {unknown[0]}", hint=f"groups are numbered 0 to {len(state.owners) - 1}"
        )
    oldest = min((move.number for move in state.moves), default=state.begun + 1)
    if state.begun + 1 - oldest >= REMEMBERED:
        raise MigrationError(
            f"{len(state.moves)} moves are under way, the oldest of them number {oldest}",
            hint="wait until it has ended",
        )


def _next_phase(state: ManagerState, move: Move) -> Result:
    protocol = protocol_of(move.protocol)
    if move.phase + 1 == len(protocol.phases):
        return replace(state, moves=tuple(m for m in state.moves if m.number != move.number)), ()
    move = replace(move, phase=move.phase + 1)
    if protocol.phase_of(move).name == protocol.handed_over:
        moved = frozenset(move.groups)
        owners = tuple(move.receiver if g in moved else owner for g, owner in enumerate(state.owners))
        state = replace(state, owners=owners)
    return _entered(state, move)


def _entered(state: ManagerState, move: Move) -> Result:
    """Asks what the phase asks; a phase that asks nothing is over at once."""
    move = protocol_of(move.protocol).entered(move)
    state = _with(state, move)
    if not move.waiting:
        return _next_phase(state, move)
    return state, _asked(move)


def _asked(move: Move) -> tuple[Send, ...]:
    asks = protocol_of(move.protocol).phase_of(move).asks(move)
    return tuple(dict.fromkeys(Send(ask.to, ask.message) for ask in asks if ask.answer in move.waiting))


def _with(state: ManagerState, move: Move) -> ManagerState:
    return replace(state, moves=tuple(move if m.number == move.number else m for m in state.moves))


def _name(message: Message) -> str:
    match message:
        case Acknowledged(step=step, role=role):
            return f"Acknowledged {step} by {role}"
        case Deactivated(drained=drained):
            return "Deactivated sender" if drained else "Deactivated split"
    return type(message).__name__
