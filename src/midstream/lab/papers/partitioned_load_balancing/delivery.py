"""Queues of rows between machines: every payload once and in order, whatever links do and whoever crashes.

Payloads are numbered and kept until the receiver has acknowledged them; the receiver keeps what comes early and drops
what it has had. Both ends are written down with the steps that use them. The paper takes such queues for granted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from midstream.lab.simulated_cluster.machines import MachineStep


@dataclass(frozen=True, slots=True)
class Packet:
    """A numbered payload."""

    number: int
    payload: Any
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Received:
    """Says that all packets below a number have come."""

    below: int


@dataclass(frozen=True, slots=True)
class Ends:
    """Both ends of a machine's queues as they are written down."""

    next: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, tuple[Packet, ...]] = field(default_factory=dict)
    expected: Mapping[str, int] = field(default_factory=dict)
    early: Mapping[tuple[str, int], Packet] = field(default_factory=dict)


class Queues:
    """A machine's ends of its queues; `sure` says that links lose nothing and nobody crashes, so nothing is kept."""

    def __init__(self, sure: bool, ends: Ends | None = None) -> None:
        ends = ends or Ends()
        self.sure = sure
        self.next, self.kept = dict(ends.next), dict(ends.kept)
        self.expected, self.early = dict(ends.expected), dict(ends.early)

    def ends(self) -> Ends:
        """What is to be written down."""
        return Ends(dict(self.next), dict(self.kept), dict(self.expected), dict(self.early))

    def put(self, step: MachineStep, to: str, payload: Any, size: float = 0.0) -> None:
        """Sends a payload after all others to this machine."""
        number = self.next.get(to, 0)
        self.next[to] = number + 1
        packet = Packet(number, payload, size)
        if not self.sure:
            self.kept[to] = (*self.kept.get(to, ()), packet)
        step.send(to, packet, size)

    def take(self, step: MachineStep, sender: str, packet: Packet) -> list[Any]:
        """The payloads that can be processed now, in order."""
        if self.sure:
            return [packet.payload]
        expected = self.expected.get(sender, 0)
        if packet.number >= expected:
            self.early[sender, packet.number] = packet
        ready = []
        while (sender, expected) in self.early:
            ready.append(self.early.pop((sender, expected)).payload)
            expected += 1
        self.expected[sender] = expected
        step.send(sender, Received(expected))
        return ready

    def acknowledged(self, sender: str, received: Received) -> None:
        """Forgets what has come to its receiver."""
        self.kept[sender] = tuple(p for p in self.kept.get(sender, ()) if p.number >= received.below)

    @property
    def pending(self) -> bool:
        """Whether something has not been acknowledged."""
        return any(self.kept.values())

    def again(self, step: MachineStep) -> None:
        """Sends everything that has not been acknowledged once more."""
        for to, packets in self.kept.items():
            for packet in packets:
                step.send(to, packet, packet.size)
