"""Groups that move by a protocol that sends their rows to two slots, on the running job.

The machines of the protocols are part of one manifest: the job is the distribution manager and the only split operator,
a slot is a processor. Before a batch the manager's messages are carried to the split operator, whose table says where
rows of the batch go, and to the slots. A slot's report says what its processor observes, so the answers come with the
reports, and the commit makes the manager's new state true. A batch that is run again starts from the same states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.checkpoint.manifest import Manifest
from midstream.distribution.protocols import manager, processor, split
from midstream.distribution.protocols.manager import REMEMBERED, ManagerState, MoveRequest
from midstream.distribution.protocols.messages import Send
from midstream.distribution.protocols.processor import Facts, ProcessorState
from midstream.distribution.protocols.registry import protocol_of
from midstream.distribution.protocols.split import Answer, PutFlag, SplitState, split_state
from midstream.distribution.routing import Routing
from midstream.job.task.sides import COMING, LEAVING
from midstream.job.task.tracks import ELSEWHERE, Limit, Track

JOB = "job"
"""The machine that is the manager and the split operator."""

DELETE = "delete"
"""The last phase of all protocols that double rows."""

CANCELLED = "cancelled"
"""What the record of a move says if it is to be undone, and why."""

BY_GROUPS, WHOLE = "groups", "whole"
"""How a query is doubled: its moving groups alone, or all of it, where rows of different groups meet."""


@dataclass(frozen=True, slots=True)
class Doubling:
    """A move under way: where the groups go, since which batch, how each query is doubled, and the machines' states.

    `passed` is the instant up to which each slot has answered for the queries that are doubled.
    """

    protocol: str
    target: Routing
    begun: int
    queries: Mapping[str, str]
    manager: ManagerState
    split: SplitState
    processors: Mapping[str, ProcessorState]
    passed: Mapping[str, int] = field(default_factory=dict)
    cancelled: str = ""
    """Why the groups are to stay where they were; empty if they move on."""

    @staticmethod
    def begin(protocol: str, old: Routing, new: Routing, batch_id: int, latest_end: int) -> Doubling:
        """Starts to move groups; no row that has come so far matters after `latest_end`."""
        owners = tuple(map(str, old.groups))
        slots = {str(slot): ProcessorState(str(slot), JOB) for slot in range(old.slots)}
        made = Doubling(protocol, new, batch_id, {}, ManagerState(owners, (JOB,)), split_state(JOB, owners), slots)
        for (sender, receiver), groups in pairs(old, new).items():
            request = MoveRequest(protocol, str(sender), str(receiver), groups=groups)
            state, sends = manager.begin(made.manager, request)
            made = replace(made, manager=state)._carried(sends, latest_end)
        return made

    @property
    def copies(self) -> dict[int, tuple[int, ...]]:
        """The slots besides the owner's to which rows of groups go."""
        table = enumerate(self.split.table)
        return {group: (int(entry.second),) for group, entry in table if entry.second is not None}

    @property
    def split_at(self) -> int | None:
        """The instant at which answering goes over to the receivers; None if nothing is decided by time."""
        known = [move.split_at for move in self.manager.moves if move.split_at is not None]
        return max(known, default=None)

    def tracks(self, query: str, keys: Mapping[str, tuple[str, ...]], whole: bool) -> Iterator[tuple[str, Track]]:
        """The tracks by which a query runs, with what is added to its name; `whole` says that it keeps intervals."""
        old, copies, at = self._senders(), self.copies, self.split_at
        before = None if at is None else Limit(at, True, whole)
        after = None if at is None else Limit(at, False, whole)
        if self.queries[query] == WHOLE:
            yield "", Track(tuple(old), keys, before, marked=at is None)
            yield COMING, Track(tuple(self.target.groups), keys, after, coming=True)
            return
        owners = enumerate(old)
        yield "", Track(tuple(ELSEWHERE if group in copies else owner for group, owner in owners), keys)
        left = tuple(owner if group in copies else ELSEWHERE for group, owner in enumerate(old))
        yield LEAVING, Track(left, keys, before, marked=at is None)
        got = tuple(copies[group][0] if group in copies else ELSEWHERE for group in range(len(old)))
        yield COMING, Track(got, keys, after, coming=True)

    def _senders(self) -> list[int]:
        """The slots of groups before the move.

        A slot that has nothing old left is no longer a group's owner, but goes on until all are done: if the move is
        cancelled, the group stays there, with all rows that have come meanwhile.
        """
        slots = [int(owner) for owner in self.manager.owners]
        for move in self.manager.moves:
            for group in move.groups:
                slots[group] = int(move.sender)
        return slots

    def observed(self, facts: Mapping[int, Facts]) -> Doubling:
        """After a batch, of which slots have reported; what the manager asks next is carried before the next one."""
        made = replace(self, passed={str(slot): fact.passed for slot, fact in facts.items()})
        for slot, fact in facts.items():
            state, actions = processor.observe(made.processors[str(slot)], fact)
            made = made._with(state)._record(str(slot), actions)[0]
        return made

    def over(self) -> Doubling | None:
        """The end of the move, if nothing is left to wait for: the senders have forgotten the groups."""
        if any(protocol_of(move.protocol).phase_of(move).name != DELETE for move in self.manager.moves):
            return None
        made = self._carried(manager.resend(self.manager), 0)
        for name, passed in self.passed.items():
            state, actions = processor.observe(made.processors[name], Facts(passed=passed))
            made, sends = made._with(state)._record(name, actions)
            made = made._carried(sends, 0)
        return None if made.manager.moves else made

    def only(self, names: Callable[[str], bool]) -> Doubling:
        """The move without queries that are gone."""
        return replace(self, queries={name: how for name, how in self.queries.items() if names(name)})

    def _carried(self, sends: Sequence[Send], latest_end: int) -> Doubling:
        """Carries messages to their machines, and whatever follows from them."""
        made, waiting = self, list(sends)
        while waiting:
            send = waiting.pop(0)
            if send.to == JOB:
                made, more = made._at_split(send, latest_end)
            else:
                state, actions = processor.receive(made.processors[send.to], send.message)
                made, more = made._with(state)._record(send.to, actions)
            waiting += more
        return made

    def _at_split(self, send: Send, latest_end: int) -> tuple[Doubling, list[Send]]:
        state, actions = split.receive(self.split, send.message, latest_end)
        made, sends = replace(self, split=state), list[Send]()
        for action in actions:
            match action:
                case PutFlag(processor=name, flag=flag):
                    flagged, record = processor.flag(made.processors[name], JOB, flag)
                    made, more = made._with(flagged)._record(name, record)
                    sends += more
                case Answer(message=message):
                    managing, more_sends = manager.receive(made.manager, JOB, message)
                    made, sends = replace(made, manager=managing), [*sends, *more_sends]
        return made, sends

    def _record(self, name: str, actions: Sequence[processor.Action]) -> tuple[Doubling, list[Send]]:
        """What a processor's actions lead to; groups that it drops are left out of the next manifest."""
        made, sends = self, list[Send]()
        for action in actions:
            if isinstance(action, Send):
                state, more = manager.receive(made.manager, name, action.message)
                made, sends = replace(made, manager=state), [*sends, *more]
        return made, sends

    def _with(self, state: ProcessorState) -> Doubling:
        return replace(self, processors={**self.processors, state.name: state})

    def to_json(self) -> dict[str, Any]:
        """What a manifest says of it."""
        return {
            "protocol": self.protocol,
            "groups": list(self.target.groups),
            "slots": self.target.slots,
            "trigger": self.target.trigger,
            "reason": self.target.reason,
            "begun": self.begun,
            "queries": dict(self.queries),
            "manager": self.manager.to_json(),
            "split": self.split.to_json(),
            "processors": [state.to_json() for state in self.processors.values()],
            "passed": dict(self.passed),
            **({CANCELLED: self.cancelled} if self.cancelled else {}),
        }

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> Doubling:
        """The move that a manifest tells of."""
        processors = [ProcessorState.from_json(state) for state in record["processors"]]
        return Doubling(
            record["protocol"],
            Routing(tuple(record["groups"]), record["slots"], record["trigger"], record["protocol"], record["reason"]),
            record["begun"],
            dict(record["queries"]),
            ManagerState.from_json(record["manager"]),
            SplitState.from_json(record["split"]),
            {state.name: state for state in processors},
            dict(record["passed"]),
            record.get(CANCELLED, ""),
        )


def pairs(old: Routing, new: Routing) -> dict[tuple[int, int], tuple[int, ...]]:
    """The groups that go from one slot to another, by both."""
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    for group, (sender, receiver) in enumerate(zip(old.groups, new.groups, strict=True)):
        if sender != receiver:
            found[sender, receiver] = (*found.get((sender, receiver), ()), group)
    return found


def at_once(old: Routing, new: Routing) -> Routing:
    """The routing that one move comes to: groups of no more pairs of slots leave than machines remember moves.

    The others leave once these have come to their slots.
    """
    leaving = {group for groups in list(pairs(old, new).values())[: REMEMBERED - 1] for group in groups}
    dealt = zip(old.groups, new.groups, strict=True)
    return replace(new, groups=tuple(there if g in leaving else here for g, (here, there) in enumerate(dealt)))


def doubling_of(manifest: Manifest | None) -> Doubling | None:
    """The move that a manifest tells of."""
    record = None if manifest is None else manifest.slots.doubled
    return None if record is None else Doubling.from_json(record)
