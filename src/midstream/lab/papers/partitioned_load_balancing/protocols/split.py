"""A split operator: where arriving rows go, by a table from groups to machines.

Each change of the table puts a flag into the queues it concerns, after the rows routed by the old table and before
those routed by the new one. A message is acted on once; copies are only answered again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from midstream.lab.papers.partitioned_load_balancing.protocols.manager import REMEMBERED
from midstream.lab.papers.partitioned_load_balancing.protocols.messages import (
    Acknowledged,
    Deactivated,
    DeactivatePartitions,
    DeletePartitions,
    DuplicatePartitions,
    EndOfPartitionInput,
    EndOfPartitions,
    Flag,
    Groups,
    Message,
    ReactivatePartitions,
    StartOfDuplicates,
)

ROLE = "split"


@dataclass(frozen=True, slots=True)
class Entry:
    """Where rows of a group go: to the owner, to a second machine too (`marked`: the owner's copies are new).

    Rows that are `held` go nowhere until they are released.
    """

    owner: str
    second: str | None = None
    marked: bool = False
    held: bool = False


@dataclass(frozen=True, slots=True)
class SplitState:
    """The table, and the rank of the last message acted on for each move."""

    name: str
    table: tuple[Entry, ...]
    ranks: dict[int, int] = field(default_factory=dict)

    @property
    def holds_back(self) -> bool:
        """Whether rows are held back, and with them the split operator's promise about time."""
        return any(entry.held for entry in self.table)

    def to_json(self) -> dict[str, Any]:
        """The state as plain values."""
        table = [[e.owner, e.second, e.marked, e.held] for e in self.table]
        return {"name": self.name, "table": table, "ranks": [list(item) for item in self.ranks.items()]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> SplitState:
        """A state from plain values."""
        return cls(values["name"], tuple(Entry(*entry) for entry in values["table"]), dict(values["ranks"]))


@dataclass(frozen=True, slots=True)
class PutFlag:
    """Action: put a flag into the queue to a processor."""

    processor: str
    flag: Flag


@dataclass(frozen=True, slots=True)
class Release:
    """Action: send the rows that were held back for some groups to their owner, in order."""

    groups: Groups
    processor: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Action: send a message to the manager."""

    message: Message


Action = PutFlag | Release | Answer


def split_state(name: str, owners: tuple[str, ...]) -> SplitState:
    """A split operator before any move."""
    return SplitState(name, tuple(Entry(owner) for owner in owners))


def route(state: SplitState, group: int) -> Entry:
    """Where a row of a group goes."""
    return state.table[group]


def receive(state: SplitState, message: Message, latest_end: int = 0) -> tuple[SplitState, tuple[Action, ...]]:
    """Takes a message of the manager.

    `latest_end` is the latest instant up to which any row that was routed so far can matter.
    """
    answer = _answer(message, latest_end)
    if answer is None:
        return state, ()
    known = max(state.ranks, default=0)
    if message.move <= known - REMEMBERED:
        return state, ()
    if message.rank <= state.ranks.get(message.move, 0):
        return state, (Answer(answer),)
    ranks = {m: rank for m, rank in state.ranks.items() if m > max(known, message.move) - REMEMBERED}
    state = replace(state, ranks={**ranks, message.move: message.rank})
    match message:
        case DuplicatePartitions(groups=groups, receiver=receiver, marked=marked):
            flag = StartOfDuplicates(message.move, groups, message.sender, marked)
            state = _entries(state, groups, Entry(message.sender, receiver, marked))
            return state, (PutFlag(message.sender, flag), PutFlag(receiver, flag), Answer(answer))
        case DeletePartitions(groups=groups, receiver=receiver):
            flag_end = EndOfPartitions(message.move, groups)
            return _entries(state, groups, Entry(receiver)), (PutFlag(message.sender, flag_end), Answer(answer))
        case DeactivatePartitions(groups=groups):
            flag_input = EndOfPartitionInput(message.move, groups)
            state = _entries(state, groups, Entry(message.sender, held=True))
            return state, (PutFlag(message.sender, flag_input), Answer(answer))
        case ReactivatePartitions(groups=groups, receiver=receiver):
            return _entries(state, groups, Entry(receiver)), (Release(groups, receiver), Answer(answer))
    return state, ()


def _answer(message: Message, latest_end: int) -> Message | None:
    match message:
        case DuplicatePartitions(marked=marked):
            return Acknowledged(message.move, "DuplicatePartitions", ROLE, None if marked else latest_end)
        case DeletePartitions() | ReactivatePartitions():
            return Acknowledged(message.move, type(message).__name__, ROLE)
        case DeactivatePartitions():
            return Deactivated(message.move, drained=False)
    return None


def _entries(state: SplitState, groups: Groups, entry: Entry) -> SplitState:
    moved = frozenset(groups)
    return replace(state, table=tuple(entry if g in moved else before for g, before in enumerate(state.table)))
