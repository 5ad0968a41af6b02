"""A processor: a machine that runs the query over its groups, as sender or receiver (Algorithms 2 and 4 of D-CAPE).

It takes messages, flags from its queues, and what its host observes after each batch: loads of groups, groups that
still hold old rows, and the instant up to which it has answered. A sender counts the flags of all split operators
before it takes input for complete, as each of the paper's join operators does for its own queues: a box that runs
depth first has processed everything before a flag when the flag is taken from the queue.

Copies of messages are answered again and otherwise change nothing. States that came with `ReceivePartitions` are
installed once, when the receiver stands at the instant at which they were taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from midstream.algebra.time import BEGINNING
from midstream.lab.papers.partitioned_load_balancing.protocols.manager import REMEMBERED
from midstream.lab.papers.partitioned_load_balancing.protocols.messages import (
    Acknowledged,
    AllOldPurged,
    ComputePartitionsToMove,
    Deactivated,
    DeactivatePartitions,
    DeletePartitions,
    DuplicatePartitions,
    EndOfPartitionInput,
    EndOfPartitions,
    Flag,
    Groups,
    Message,
    PartitionsToMove,
    ReactivatePartitions,
    Received,
    ReceivePartitions,
    Send,
    SendPartitions,
    SplitAt,
    StartOfDuplicates,
    message_from_json,
    message_to_json,
)

ROLE = "processor"
Side = Literal["before", "after"]
Condition = Literal["", "chosen", "purged", "answered", "drained", "ended", "passed", "installed"]
"""What an answer waits for.

Groups chosen, old rows purged, time answered up to the split (to keep the groups or to be rid of the split), flags that
end the input (to send the groups or to forget them), states in place.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """This machine's part in a move: the rank of the last message acted on, its answer, and the flags that have come.

    The answer is given when the condition `until` holds, and again for every copy of the message. `side` is the side of
    the split time for which the machine answers, `split_at` that time once it is known.
    """

    groups: Groups = ()
    rank: int = 0
    splits: tuple[str, ...] = ()
    started: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    amount: float = 0.0
    side: Side | None = None
    split_at: int | None = None
    until: Condition = ""
    answer: Message | None = None
    over: bool = False

    def to_json(self) -> dict[str, Any]:
        """All fields as plain values."""
        return {
            "groups": list(self.groups),
            "rank": self.rank,
            "splits": list(self.splits),
            "started": sorted(self.started),
            "ended": sorted(self.ended),
            "amount": self.amount,
            "side": self.side,
            "split_at": self.split_at,
            "until": self.until,
            "answer": None if self.answer is None else message_to_json(self.answer),
            "over": self.over,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Part:
        """A part from plain values."""
        plain = {name: tuple(values[name]) for name in ("groups", "splits")}
        sets = {name: frozenset(values[name]) for name in ("started", "ended")}
        answer = None if values["answer"] is None else message_from_json(values["answer"])
        return cls(**{**values, **plain, **sets, "answer": answer})


@dataclass(frozen=True, slots=True)
class ProcessorState:
    """A processor's parts in moves, by the number of the move."""

    name: str
    manager: str
    parts: dict[int, Part] = field(default_factory=dict)

    @property
    def busy(self) -> frozenset[int]:
        """Groups that are part of a move this machine knows of; before rank 2 they may be left out of it."""
        return frozenset(g for part in self.parts.values() if part.rank >= 2 and not part.over for g in part.groups)

    @property
    def watched(self) -> frozenset[int]:
        """Groups of which the host must say whether they still hold old rows."""
        return frozenset(g for part in self.parts.values() if part.until == "purged" for g in part.groups)

    def limits(self) -> list[tuple[Groups, Side, int | None]]:
        """Groups whose results are given only on one side of a split time; held back while that is unknown."""
        return [(p.groups, p.side, p.split_at) for p in self.parts.values() if p.side is not None and not p.over]

    def to_json(self) -> dict[str, Any]:
        """The state as plain values."""
        parts = [[number, part.to_json()] for number, part in self.parts.items()]
        return {"name": self.name, "manager": self.manager, "parts": parts}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> ProcessorState:
        """A state from plain values."""
        return cls(values["name"], values["manager"], {n: Part.from_json(part) for n, part in values["parts"]})


@dataclass(frozen=True, slots=True)
class Facts:
    """What a host observes: the load of each group here, groups with old rows, and how far time has come.

    `passed` is the instant before which everything has been answered, `frontier` that before which everything has come.
    """

    loads: Mapping[int, float] = field(default_factory=dict)
    old: frozenset[int] = frozenset()
    passed: int = BEGINNING
    frontier: int = BEGINNING


@dataclass(frozen=True, slots=True)
class Drop:
    """Action: forget the states of some groups, which have moved."""

    move: int
    groups: Groups


@dataclass(frozen=True, slots=True)
class Ship:
    """Action: send the states of some groups to the receiver, as `ReceivePartitions`."""

    move: int
    groups: Groups
    receiver: str


@dataclass(frozen=True, slots=True)
class Install:
    """Action: put states of some groups in place, matched by state id or recomputed, then call `installed`."""

    move: int
    groups: Groups
    contents: Any


Action = Send | Drop | Ship | Install
Result = tuple[ProcessorState, tuple[Action, ...]]


def receive(state: ProcessorState, message: Message) -> Result:
    """Takes a message of the manager or, with states, of a sender; ignores what is for split operators alone."""
    newest = max(state.parts, default=0)
    if message.move <= newest - REMEMBERED or not _concerns(state.name, message):
        return state, ()
    part = state.parts.get(message.move, Part())
    if message.rank < part.rank:
        return state, ()
    if message.rank == part.rank:
        return state, _again(state, part, message)
    parts = {n: p for n, p in state.parts.items() if n > max(newest, message.move) - REMEMBERED}
    part, actions = _act(state, message, replace(part, rank=message.rank, until="", answer=None))
    state = ProcessorState(state.name, state.manager, {**parts, message.move: part})
    return _answer_waiting(state, message.move, (*actions, *(() if part.until else _answered(state, part))))


def flag(state: ProcessorState, split: str, flag: Flag) -> Result:
    """Takes a flag from the queue of a split operator; it may come before the message that explains it."""
    if flag.move <= max(state.parts, default=0) - REMEMBERED:
        return state, ()
    part = state.parts.get(flag.move, Part())
    match flag:
        case StartOfDuplicates(groups=groups, sender=sender, marked=marked):
            side = part.side if marked else _side(state, sender)
            part = replace(part, groups=groups, side=side, started=part.started | {split})
        case EndOfPartitions() | EndOfPartitionInput():
            part = replace(part, groups=flag.groups, ended=part.ended | {split})
    return _answer_waiting(_with(state, flag.move, part), flag.move, ())


def observe(state: ProcessorState, facts: Facts) -> Result:
    """Takes what the host has observed after a batch."""
    actions: list[Action] = []
    for number, part in state.parts.items():
        done: Part | None = None
        match part.until:
            case "chosen":
                loads = {g: load for g, load in facts.loads.items() if g not in state.busy}
                groups = nearest_groups(loads, part.amount)
                done = replace(part, groups=groups, answer=PartitionsToMove(number, groups))
            case "purged" if part.started >= set(part.splits) and facts.old.isdisjoint(part.groups):
                done = part
            case "answered" if part.split_at is not None and facts.passed >= part.split_at:
                done = part
            case "passed" if part.split_at is not None and facts.passed >= part.split_at:
                done = replace(part, over=True)
        if done is not None:
            state = _with(state, number, replace(done, until=""))
            actions += _answered(state, done)
    return state, tuple(actions)


def installed(state: ProcessorState, move: int) -> Result:
    """Learns that the states of a move are in place."""
    part = replace(state.parts[move], over=True, until="")
    return _with(state, move, part), _answered(state, part)


def _concerns(name: str, message: Message) -> bool:
    match message:
        case SplitAt() | DeletePartitions():
            return name in (message.sender, message.receiver)
        case DuplicatePartitions(marked=marked):
            return marked and name == message.sender
        case DeactivatePartitions() | ReactivatePartitions():
            return name == message.sender
    return True


def _side(state: ProcessorState, sender: str) -> Side:
    return "before" if state.name == sender else "after"


def _act(state: ProcessorState, message: Message, part: Part) -> tuple[Part, tuple[Action, ...]]:
    acknowledged = Acknowledged(message.move, type(message).__name__, ROLE)
    match message:
        case ComputePartitionsToMove(amount=amount):
            return replace(part, amount=amount, until="chosen"), ()
        case DuplicatePartitions(groups=groups, splits=splits):
            return replace(part, groups=groups, splits=splits, until="purged", answer=AllOldPurged(message.move)), ()
        case SplitAt(groups=groups, time=time):
            side = _side(state, message.sender)
            part = replace(part, groups=groups, side=side, split_at=time)
            if side == "before":
                return replace(part, until="answered", answer=AllOldPurged(message.move)), ()
            return replace(part, answer=acknowledged), ()
        case DeletePartitions(receiver=receiver) if receiver == state.name:
            return replace(part, until="passed" if part.side else "", answer=acknowledged, over=not part.side), ()
        case DeletePartitions(groups=groups, splits=splits):
            return replace(part, groups=groups, splits=splits, until="ended", answer=acknowledged), ()
        case DeactivatePartitions(groups=groups, splits=splits):
            answer = Deactivated(message.move, drained=True)
            return replace(part, groups=groups, splits=splits, until="drained", answer=answer), ()
        case SendPartitions(groups=groups, receiver=receiver):
            return part, (Ship(message.move, groups, receiver),)
        case ReceivePartitions(groups=groups, contents=contents):
            part = replace(part, groups=groups, until="installed", answer=Received(message.move))
            return part, (Install(message.move, groups, contents),)
        case ReactivatePartitions(groups=groups):
            return replace(part, over=True, answer=acknowledged), (Drop(message.move, groups),)
    return part, ()


def _again(state: ProcessorState, part: Part, message: Message) -> tuple[Action, ...]:
    """What a copy of the last message asks for: the states once more, or the answer, if it has been given."""
    if isinstance(message, SendPartitions):
        return (Ship(message.move, message.groups, message.receiver),)
    return () if part.until else _answered(state, part)


def _answer_waiting(state: ProcessorState, move: int, actions: tuple[Action, ...]) -> Result:
    """Answers what has waited for flags."""
    part = state.parts[move]
    if part.until not in ("drained", "ended") or not part.ended >= set(part.splits):
        return state, actions
    dropped = (Drop(move, part.groups),) if part.until == "ended" else ()
    state = _with(state, move, replace(part, until="", over=part.until == "ended"))
    return state, (*actions, *dropped, *_answered(state, part))


def _answered(state: ProcessorState, part: Part) -> tuple[Send, ...]:
    return () if part.answer is None else (Send(state.manager, part.answer),)


def _with(state: ProcessorState, move: int, part: Part) -> ProcessorState:
    return replace(state, parts={**state.parts, move: part})


def nearest_groups(loads: Mapping[int, float], amount: float) -> tuple[int, ...]:
    """Groups whose loads together are near an amount: the largest that fit, and one more if that comes nearer.

    >>> nearest_groups({1: 5.0, 2: 3.0, 3: 4.0}, 8.5)
    (1, 2)
    """
    chosen: list[int] = []
    left = amount
    for group in sorted(loads, key=lambda g: (-loads[g], g)):
        if 0 < loads[group] <= left:
            chosen.append(group)
            left -= loads[group]
    spare = [g for g in loads if g not in chosen and 0 < loads[g] < 2 * left]
    if spare:
        chosen.append(min(spare, key=lambda g: (abs(left - loads[g]), g)))
    return tuple(sorted(chosen))
