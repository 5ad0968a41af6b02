"""Changes of plans on simulated machines without rows: every message of modification and migration, in virtual time.

Members are the ones that run with rows. A window is asked for and copied like there, as so many bytes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from midstream.lab.experiments.nos_workload import CHANGING, HIGH, LINE, LOW, at_rate, setting, statistics
from midstream.lab.papers.node_operator_sets import member as members
from midstream.lab.papers.node_operator_sets.calls import Called, Measured, MemberEvent, Repair
from midstream.lab.papers.node_operator_sets.greedy import greedy_plan
from midstream.lab.papers.node_operator_sets.member import centralized_members, distributed_members
from midstream.lab.papers.node_operator_sets.membership import Member
from midstream.lab.papers.node_operator_sets.node_sets import Update
from midstream.lab.papers.node_operator_sets.track import PREPARING, Full, Prepare
from midstream.lab.simulated_cluster import Disk, MachineStep, SimulatedLink, Simulation

MODIFICATION = ("Report", "Prepare", "Request", "Granted", "Repair", "Called", "NewEpoch")
SYNCHRONISATION = ("LocalReady", "GlobalReady")
REQUESTS = ("Wanted", "Passed")

Mode = str


@dataclass(frozen=True, slots=True)
class Wanted:
    """Asks a stream's home for its window."""

    stream: str
    node: str


@dataclass(frozen=True, slots=True)
class Passed:
    """A home without the window asks a keeper to send it."""

    stream: str
    node: str


@dataclass(frozen=True, slots=True)
class Contents:
    """A window's rows."""

    stream: str


@dataclass
class Tally:
    """What a change has cost: messages by kind, bytes and seconds of transmission by part, and how long it took."""

    messages: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    repairs: Counter[str] = field(default_factory=Counter)
    switched: float = 0.0

    def count(self, kinds: tuple[str, ...]) -> int:
        """How many messages of some kinds were sent."""
        return sum(self.messages[kind] for kind in kinds)

    @property
    def modification(self) -> int:
        """Messages until all affected nodes have their new sets."""
        return self.count(MODIFICATION)

    @property
    def synchronisation(self) -> int:
        """Messages of the two phases."""
        return self.count(SYNCHRONISATION)

    @property
    def migration(self) -> int:
        """Requests for windows, and the two phases."""
        return self.synchronisation + self.count(REQUESTS)


class ProtocolNode:
    """A member and the windows that it holds, by name only."""

    def __init__(self, member: Member, run: ProtocolRun, disk: Disk) -> None:
        self.member, self.run = member, run
        self.windows = self._needed()
        self.asked: set[str] = set()

    def _needed(self) -> set[str]:
        every = [o for share in self.member.track.shares.values() for o in share.operators]
        return {o.target for o in every if isinstance(o, Update)}

    def start(self, step: MachineStep) -> None:
        """Nothing happens by itself."""

    def wake(self, step: MachineStep, timer: str) -> None:
        """No timer is set: nothing is lost here."""

    def receive(self, step: MachineStep, sender: str, message: Any) -> None:
        """Takes a request, a window, or what members say."""
        match message:
            case Wanted(stream, node):
                keepers = self.member.track.shares[min(self.member.track.shares)].keepers
                keeper = self.member.node if self.member.node in keepers else next(k for k in keepers if k != node)
                if keeper == self.member.node:
                    self.run.send(step, node, Contents(stream))
                else:
                    self.run.send(step, keeper, Passed(stream, node))
            case Passed(stream, node):
                self.run.send(step, node, Contents(stream))
            case Contents(stream):
                self.asked.discard(stream)
                self.windows.add(stream)
            case _:
                self._control(step, message)
        self._fill(step)

    def _control(self, step: MachineStep, event: MemberEvent) -> None:
        before = self.member.track.epoch
        self.member, sent = members.step(self.member, event, self.run.setting)
        for message in sent:
            self.run.send(step, message.to, message)
        if self.member.track.epoch != before:
            self.run.tally.switched = max(self.run.tally.switched, step.now)

    def _fill(self, step: MachineStep) -> None:
        move = self.member.track.move
        if move is None or move.phase != PREPARING:
            return
        for stream in sorted(self._needed() - self.windows - self.asked):
            self.asked.add(stream)
            self.run.send(step, self.run.setting.costs.network.home(stream), Wanted(stream, self.member.node))
        if not self.asked:
            self._control(step, Full(move.change))


class ProtocolRun:
    """One change of a stream's rate, from the report of it until all nodes have switched."""

    def __init__(self, count: int, mode: Mode, old: float, new: float) -> None:
        self.setting = setting(count)
        known = statistics(count, old)
        plan = greedy_plan(self.setting.conditions, known, self.setting.costs)
        self.tally = Tally()
        making = centralized_members if mode == "centralized" else distributed_members
        # The leader is not the node whose rate changes, and nobody loses patience where nothing is lost.
        made = making(plan, known, self.setting, "S1", float("inf"))
        self.simulation = Simulation(0, SimulatedLink(LINE.latency, LINE.rate))
        for node, member in made.items():
            self.simulation.add(node, partial(ProtocolNode, member, self))
        self.simulation.post(CHANGING, Measured(at_rate(new)))
        self.simulation.run()

    def send(self, step: MachineStep, to: str, message: Any) -> None:
        """Sends a message and counts it."""
        kind, size = type(message).__name__, message_size(message)
        part = "modification" if kind in MODIFICATION else "migration"
        if isinstance(message, Repair):
            self.tally.repairs[type(message.message).__name__] += 1
        if to == step.machine:  # a home that asks itself
            step.send(to, message, 0.0)
            return
        self.tally.messages[kind] += 1
        self.tally.bytes[part] += int(size)
        self.tally.seconds[part] += LINE.time(size)
        step.send(to, message, size)

    def members(self) -> dict[str, Member]:
        """All members at the end."""
        programs = {name: machine.program for name, machine in self.simulation.machines.items()}
        return {name: program.member for name, program in programs.items() if isinstance(program, ProtocolNode)}


def message_size(message: Any) -> float:
    """Bytes: 64, 8 per stream that is named, 16 per operator; a window has all its rows."""
    match message:
        case Contents(stream):
            return 64.0 + at_rate(HIGH if stream == CHANGING else 100.0).rows * 150.0
        case Repair(message=inner):
            token = getattr(inner, "token", None)
            return 64.0 + 8.0 * (len(token.order) if token is not None else 1)
        case Prepare(members=taking_part, share=share):
            return 64.0 + 8.0 * len(taking_part) + 16.0 * len(share.operators)
        case Called(members=taking_part, orders=orders):
            return 64.0 + 8.0 * len(taking_part) + 8.0 * sum(map(len, orders.values()))
    return 64.0


def change(count: int, mode: Mode, up: bool) -> ProtocolRun:
    """One change of the rate, upwards or downwards."""
    return ProtocolRun(count, mode, *((LOW, HIGH) if up else (HIGH, LOW)))
