"""The messages of the balancing protocols, by the names of their paper (D-CAPE, Algorithms 1 to 4).

PTLB has five: `ComputePartitionsToMove`, `PartitionsToMove`, `DuplicatePartitions`, `AllOldPurged`, `DeletePartitions`.
MSLB has eight: the first two of these, then `DeactivatePartitions`, `Deactivated`, `SendPartitions`,
`ReceivePartitions`, `Received`, `ReactivatePartitions`. Flags travel in the queues of rows: `EndOfPartitions` (PTLB)
and `EndOfPartitionInput` (MSLB).

Three are not the paper's. `Acknowledged` answers what the paper leaves without an answer, because a message that may be
lost must be repeated until it is answered. `StartOfDuplicates` is a flag that separates the rows a split operator has
sent to the sender alone from those it sends twice. `SplitAt` is for split-time balancing only.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from midstream.errors import InternalError

Groups = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """Belongs to a move. `rank` grows along a protocol: a message of lower rank than the last is an old copy."""

    move: int
    rank: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class ComputePartitionsToMove(Message):
    """Manager to sender: choose groups of about this load."""

    amount: float
    rank: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class PartitionsToMove(Message):
    """Sender to manager: the groups chosen."""

    groups: Groups


@dataclass(frozen=True, slots=True)
class DuplicatePartitions(Message):
    """Manager to split operators and sender: from now on rows of the groups go to both machines.

    `marked` says that copies for the sender are marked new; split-time balancing does without marks.
    """

    groups: Groups
    sender: str
    receiver: str
    splits: tuple[str, ...]
    marked: bool
    rank: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class SplitAt(Message):
    """Manager to sender and receiver: the sender answers for time before `time`, the receiver from it on."""

    groups: Groups
    sender: str
    receiver: str
    splits: tuple[str, ...]
    time: int
    rank: ClassVar[int] = 3


@dataclass(frozen=True, slots=True)
class AllOldPurged(Message):
    """Sender to manager: nothing that only the sender holds can matter any more."""


@dataclass(frozen=True, slots=True)
class DeletePartitions(Message):
    """Manager to split operators and sender: rows of the groups go to the receiver alone; the sender forgets them."""

    groups: Groups
    sender: str
    receiver: str
    splits: tuple[str, ...]
    rank: ClassVar[int] = 4


@dataclass(frozen=True, slots=True)
class DeactivatePartitions(Message):
    """Manager to split operators and sender: hold rows of the groups back; process what is under way."""

    groups: Groups
    sender: str
    receiver: str
    splits: tuple[str, ...]
    rank: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class Deactivated(Message):
    """Split operator or sender (`drained`) to manager: no more rows of the groups are, or will be, processed."""

    drained: bool


@dataclass(frozen=True, slots=True)
class SendPartitions(Message):
    """Manager to sender: send the groups' states."""

    groups: Groups
    receiver: str
    rank: ClassVar[int] = 3


@dataclass(frozen=True, slots=True)
class ReceivePartitions(Message):
    """Sender to receiver: the groups' states, in whatever form the hosts have agreed on."""

    groups: Groups
    contents: Any
    rank: ClassVar[int] = 3


@dataclass(frozen=True, slots=True)
class Received(Message):
    """Receiver to manager: the states are in place, matched or recomputed."""


@dataclass(frozen=True, slots=True)
class ReactivatePartitions(Message):
    """Manager to split operators: send what was held back, and new rows, to the receiver.

    The paper sends it to split operators alone. Here the sender gets it too: only now may it forget the groups, because
    until the states have been received it may be asked to send them again.
    """

    groups: Groups
    sender: str
    receiver: str
    splits: tuple[str, ...]
    rank: ClassVar[int] = 4


@dataclass(frozen=True, slots=True)
class Acknowledged(Message):
    """Answers a message for which the paper has no answer, by its name.

    `role` is that of the machine that answers. `latest_end` is, for split operators that start to duplicate, the latest
    instant up to which a row can matter that has gone to the sender alone.
    """

    step: str
    role: str
    latest_end: int | None = None


@dataclass(frozen=True, slots=True)
class Flag(Message):
    """Travels in a queue of rows, between those before and those after it."""

    groups: Groups


@dataclass(frozen=True, slots=True)
class StartOfDuplicates(Flag):
    """Rows after this have gone to both machines; `marked` if the sender's copies are marked new."""

    sender: str
    marked: bool


@dataclass(frozen=True, slots=True)
class EndOfPartitions(Flag):
    """PTLB: no rows of the groups follow."""


@dataclass(frozen=True, slots=True)
class EndOfPartitionInput(Flag):
    """MSLB: no rows of the groups follow."""


@dataclass(frozen=True, slots=True)
class Send:
    """An action of every machine: a message to another."""

    to: str
    message: Message


def message_to_json(message: Message) -> dict[str, Any]:
    """A message as plain values; the contents of `ReceivePartitions` stay as they are."""
    if isinstance(message, ReceivePartitions):
        values = {"move": message.move, "groups": message.groups, "contents": message.contents}
    else:
        values = asdict(message)
    return {"message": type(message).__name__, **values}


def message_from_json(values: dict[str, Any]) -> Message:
    """A message from plain values.

    >>> message_from_json(message_to_json(PartitionsToMove(3, (1, 2))))
    PartitionsToMove(move=3, groups=(1, 2))
    """
    kind = _KINDS.get(values["message"])
    if kind is None:
        raise InternalError(f"no balancing protocol has a message {values['message']!r}")
    given = {field.name: values[field.name] for field in fields(kind)}
    plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
    return kind(**plain)


_KINDS: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (
        ComputePartitionsToMove,
        PartitionsToMove,
        DuplicatePartitions,
        SplitAt,
        AllOldPurged,
        DeletePartitions,
        DeactivatePartitions,
        Deactivated,
        SendPartitions,
        ReceivePartitions,
        Received,
        ReactivatePartitions,
        Acknowledged,
        StartOfDuplicates,
        EndOfPartitions,
        EndOfPartitionInput,
    )
}
