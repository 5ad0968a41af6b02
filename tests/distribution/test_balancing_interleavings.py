"""The protocols' machines alone, through every order in which messages can come, be lost or come twice.

Rows are left out. Of them only what the machines are told is modelled: which groups a processor holds, and when it
says that old rows are purged or time has passed.
"""

from __future__ import annotations

import json
from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from midstream.lab.papers.partitioned_load_balancing.protocols import manager, processor, split
from midstream.lab.papers.partitioned_load_balancing.protocols.manager import ManagerState, MoveRequest
from midstream.lab.papers.partitioned_load_balancing.protocols.messages import (
    Flag,
    Message,
    ReceivePartitions,
    Send,
    StartOfDuplicates,
)
from midstream.lab.papers.partitioned_load_balancing.protocols.processor import (
    Drop,
    Facts,
    Install,
    ProcessorState,
    Ship,
)
from midstream.lab.papers.partitioned_load_balancing.protocols.registry import PROTOCOLS, protocol_of
from midstream.lab.papers.partitioned_load_balancing.protocols.split import (
    Answer,
    PutFlag,
    Release,
    SplitState,
    split_state,
)

GROUPS = 4
PROCESSORS, SPLITS = ("p0", "p1", "p2"), ("s0", "s1")
OWNERS = ("p0", "p0", "p1", "p2")


class Interleavings(RuleBasedStateMachine):
    """Machines, messages under way in no order, and queues of flags in order."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = ManagerState(OWNERS, SPLITS)
        self.splits = {name: split_state(name, OWNERS) for name in SPLITS}
        self.processors = {name: ProcessorState(name, "manager") for name in PROCESSORS}
        self.holds = {name: {g for g, owner in enumerate(OWNERS) if owner == name} for name in PROCESSORS}
        self.under_way: list[tuple[str, str, Message]] = []
        self.delivered: list[tuple[str, str, Message]] = []
        self.queues: dict[tuple[str, str], deque[Flag]] = {(s, p): deque() for s in SPLITS for p in PROCESSORS}
        self.time = 0

    @initialize(protocol=st.sampled_from(sorted(PROTOCOLS)))
    def begin_with_a_move(self, protocol: str) -> None:
        self.begin(protocol, ["p0", "p1"], [0])

    @precondition(lambda self: len(self.manager.moves) < 2)
    @rule(
        protocol=st.sampled_from(sorted(PROTOCOLS)),
        pair=st.permutations(PROCESSORS),
        groups=st.lists(st.integers(0, GROUPS - 1), max_size=2, unique=True),
    )
    def begin(self, protocol: str, pair: list[str], groups: list[int]) -> None:
        request = MoveRequest(protocol, pair[0], pair[1], amount=1.0, groups=tuple(groups))
        self.manager, sends = manager.begin(self.manager, request)
        self._send("manager", sends)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def deliver_out_of_order(self, data: st.DataObject) -> None:
        self._deliver(*self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1))))

    @precondition(lambda self: self.delivered)
    @rule(data=st.data())
    def deliver_a_copy(self, data: st.DataObject) -> None:
        """A copy may come at any time, long after what follows from the message."""
        self._deliver(*data.draw(st.sampled_from(self.delivered)))

    @rule(messages=st.integers(1, 30), passed=st.integers(0, 30))
    def go_on_for_a_while(self, messages: int, passed: int) -> None:
        """The usual: messages and flags come in order, and time passes."""
        for _ in range(messages):
            if self.under_way:
                self._deliver(*self.under_way.pop(0))
            for source, name in self.queues:
                if self.queues[source, name]:
                    self._flag(source, name)
            for name in PROCESSORS:
                self._observe(name, frozenset(), passed)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        del self.under_way[data.draw(st.integers(0, len(self.under_way) - 1))]

    @rule()
    def ask_again(self) -> None:
        self._send("manager", manager.resend(self.manager))

    @precondition(lambda self: any(self.queues.values()))
    @rule(data=st.data())
    def take_flag(self, data: st.DataObject) -> None:
        source, name = data.draw(st.sampled_from([queue for queue, flags in self.queues.items() if flags]))
        self._flag(source, name)

    @rule(name=st.sampled_from(PROCESSORS), old=st.booleans(), passed=st.integers(0, 30))
    def observe(self, name: str, old: bool, passed: int) -> None:
        self._observe(name, frozenset(self.holds[name]) if old else frozenset(), passed)

    @rule(name=st.sampled_from((*PROCESSORS, *SPLITS, "manager")))
    def restart(self, name: str) -> None:
        """All that a machine knows is what it has written down."""
        if name == "manager":
            self.manager = ManagerState.from_json(json.loads(json.dumps(self.manager.to_json())))
        elif name in SPLITS:
            self.splits[name] = SplitState.from_json(json.loads(json.dumps(self.splits[name].to_json())))
        else:
            written = json.dumps(self.processors[name].to_json())
            self.processors[name] = ProcessorState.from_json(json.loads(written))

    @invariant()
    def every_group_is_somewhere_and_active_twice_only_while_it_is_doubled(self) -> None:
        moving = {g: move for move in self.manager.moves for g in move.groups}
        for state in self.splits.values():
            for group, entry in enumerate(state.table):
                if group not in moving:
                    assert entry == split.Entry(self.manager.owners[group])
                elif entry.second is not None:
                    protocol = protocol_of(moving[group].protocol)
                    assert protocol.phase_of(moving[group]).name in protocol.doubled
        for group in range(GROUPS):
            holders = [name for name, held in self.holds.items() if group in held]
            assert holders, f"nobody holds group {group}"
            if group not in moving:
                assert holders == [self.manager.owners[group]]

    def teardown(self) -> None:
        """Without more faults everything ends."""
        for _ in range(400):
            if not self.manager.moves:
                break
            self._send("manager", manager.resend(self.manager))
            while self.under_way:
                self._deliver(*self.under_way.pop(0))
            for source, name in self.queues:
                while self.queues[source, name]:
                    self._flag(source, name)
            self.time += 10
            for name in PROCESSORS:
                self._observe(name, frozenset(), self.time)
        assert not self.manager.moves
        self.every_group_is_somewhere_and_active_twice_only_while_it_is_doubled()
        assert not any(state.holds_back for state in self.splits.values())

    def _send(self, sender: str, sends: tuple[Send, ...]) -> None:
        self.under_way += [(sender, send.to, send.message) for send in sends]

    def _deliver(self, sender: str, to: str, message: Message) -> None:
        self.delivered.append((sender, to, message))
        if to == "manager":
            self.manager, sends = manager.receive(self.manager, sender, message)
            self._send("manager", sends)
        elif to in self.splits:
            self.splits[to], actions = split.receive(self.splits[to], message, latest_end=self.time)
            for action in actions:
                match action:
                    case PutFlag(processor=name, flag=flag):
                        self.queues[to, name].append(flag)
                    case Answer(message=answer):
                        self.under_way.append((to, "manager", answer))
                    case Release():
                        pass
        else:
            self._go_on(to, processor.receive(self.processors[to], message))

    def _flag(self, source: str, name: str) -> None:
        flag = self.queues[source, name].popleft()
        if isinstance(flag, StartOfDuplicates):
            self.holds[name] |= set(flag.groups)
        self._go_on(name, processor.flag(self.processors[name], source, flag))

    def _observe(self, name: str, old: frozenset[int], passed: int) -> None:
        facts = Facts({g: 1.0 for g in self.holds[name]}, old, passed, passed)
        self._go_on(name, processor.observe(self.processors[name], facts))

    def _go_on(self, name: str, result: tuple[ProcessorState, tuple[processor.Action, ...]]) -> None:
        self.processors[name], actions = result
        for action in actions:
            match action:
                case Send(to=to, message=message):
                    self.under_way.append((name, to, message))
                case Drop(groups=groups):
                    self.holds[name] -= set(groups)
                case Ship(move=move, groups=groups, receiver=receiver):
                    assert set(groups) <= self.holds[name]
                    self.under_way.append((name, receiver, ReceivePartitions(move, groups, None)))
                case Install(move=move, groups=groups):
                    assert not set(groups) & self.holds[name], "installed twice"
                    self.holds[name] |= set(groups)
                    self._go_on(name, processor.installed(self.processors[name], move))


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=150, stateful_step_count=40)
