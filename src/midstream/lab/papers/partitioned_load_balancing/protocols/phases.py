"""What a protocol is to the manager: phases, in each of which it asks some machines and waits for all answers.

Algorithms 1 and 3 of the paper are such sequences of send and wait. Because a phase ends only when everything it asked
for has been answered, asking again what is still unanswered is all that lost messages and crashes need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.lab.papers.partitioned_load_balancing.protocols.messages import ComputePartitionsToMove, Groups, Message

Answer = tuple[str, str]
"""Who answers, and with what: a message's name, with the role or step it is for."""


@dataclass(frozen=True, slots=True)
class Move:
    """Groups on their way from one machine to another; `phase` counts within the protocol."""

    number: int
    protocol: str
    sender: str
    receiver: str
    splits: tuple[str, ...]
    amount: float = 0.0
    groups: Groups = ()
    phase: int = 0
    waiting: frozenset[Answer] = frozenset()
    split_at: int | None = None

    def to_json(self) -> dict[str, Any]:
        """All fields as plain values."""
        return {
            "number": self.number,
            "protocol": self.protocol,
            "sender": self.sender,
            "receiver": self.receiver,
            "splits": list(self.splits),
            "amount": self.amount,
            "groups": list(self.groups),
            "phase": self.phase,
            "waiting": sorted(map(list, self.waiting)),
            "split_at": self.split_at,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Move:
        """A move from plain values."""
        waiting = frozenset((who, what) for who, what in values["waiting"])
        return cls(
            **{**values, "splits": tuple(values["splits"]), "groups": tuple(values["groups"]), "waiting": waiting}
        )


@dataclass(frozen=True, slots=True)
class Ask:
    """A message to a machine, and the answer that ends the wait for it, which another machine may give."""

    to: str
    message: Message
    answer: Answer


@dataclass(frozen=True, slots=True)
class Phase:
    """What the manager asks in a phase of a move, by name."""

    name: str
    asks: Callable[[Move], tuple[Ask, ...]]


@dataclass(frozen=True, slots=True)
class Protocol:
    """A way of moving groups.

    `handed_over` is the first phase in which the receiver owns the groups; before, the sender does. In `doubled` phases
    both process rows of the groups.
    """

    name: str
    phases: tuple[Phase, ...]
    handed_over: str
    doubled: frozenset[str] = field(default=frozenset())

    def phase_of(self, move: Move) -> Phase:
        """The phase a move is in."""
        return self.phases[move.phase]

    def entered(self, move: Move) -> Move:
        """The move with the answers that its phase waits for."""
        return replace(move, waiting=frozenset(ask.answer for ask in self.phase_of(move).asks(move)))


def compute(move: Move) -> tuple[Ask, ...]:
    """Steps 1 and 2 of both protocols; nothing is asked if the groups are chosen already."""
    if move.groups:
        return ()
    message = ComputePartitionsToMove(move.number, move.amount)
    return (Ask(move.sender, message, (move.sender, "PartitionsToMove")),)


COMPUTE = Phase("compute", compute)
