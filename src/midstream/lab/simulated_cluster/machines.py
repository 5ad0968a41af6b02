"""A machine: a program, its speed and memory, and a disk that outlives crashes.

A machine has one processor. What arrives while a step is at work waits in the inbox. A crash loses the program, its
inbox, its timers and the step under way; a restart rebuilds the program from the disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

Disk = dict[str, Any]
"""What a machine has written; values must not be changed once written."""


class SimulatedProgram(Protocol):
    """What runs on a machine. It may keep state of its own, which a crash loses."""

    def start(self, step: MachineStep) -> None:
        """Runs once when the machine starts, and again after each restart."""

    def receive(self, step: MachineStep, sender: str, message: Any) -> None:
        """Takes a message."""

    def wake(self, step: MachineStep, timer: str) -> None:
        """Takes a timer that is due."""


@dataclass(slots=True)
class MachineStep:
    """What a program can do in a step; all of it takes effect when the step's work is done."""

    machine: str
    now: float
    units: float = 0.0
    sends: list[tuple[str, Any, float, bool, str]] = field(default_factory=list)
    writes: Disk = field(default_factory=dict)
    timers: dict[str, float | None] = field(default_factory=dict)
    held: float | None = None

    def work(self, units: float) -> None:
        """Spends some work; a machine of speed 2 does two units per unit of time."""
        self.units += units

    def send(self, to: str, message: Any, size: float = 0.0, urgent: bool = False, lane: str = "") -> None:
        """Sends a message along the link to another machine, or to this one at once.

        Where it arrives, an urgent message is taken before all that are not. Messages wait for those before them on the
        same lane of the link only, as on connections of their own.
        """
        self.sends.append((to, message, size, urgent, lane))

    def write(self, key: str, value: Any) -> None:
        """Writes to the disk."""
        self.writes[key] = value

    def set_timer(self, timer: str, delay: float) -> None:
        """Wakes the program some time after the step; replaces a timer of the same name."""
        self.timers[timer] = delay

    def cancel_timer(self, timer: str) -> None:
        """Takes a timer back."""
        self.timers[timer] = None

    def hold(self, memory: float) -> None:
        """Says how much memory the program now holds."""
        self.held = memory


@dataclass(slots=True)
class Usage:
    """What a machine has used: time at work, memory held now and at most, and whether that was more than it has."""

    busy: float = 0.0
    held: float = 0.0
    peak: float = 0.0
    overflowed: bool = False


@dataclass(slots=True)
class SimulatedMachine:
    """A machine's condition. `life` counts starts: what belongs to an earlier life has no effect any more."""

    name: str
    program_of: Callable[[Disk], SimulatedProgram]
    speed: float = 1.0
    memory: float = inf
    disk: Disk = field(default_factory=dict)
    program: SimulatedProgram | None = None
    life: int = 0
    at_work: bool = False
    suspended: bool = False
    used: Usage = field(default_factory=Usage)
    inbox: deque[tuple[str | None, Any]] = field(default_factory=deque)
    urgent: deque[tuple[str | None, Any]] = field(default_factory=deque)
    timers: dict[str, int] = field(default_factory=dict)

    @property
    def up(self) -> bool:
        """Whether it runs."""
        return self.program is not None

    @property
    def idle(self) -> bool:
        """Whether it has nothing to do."""
        return not self.at_work and not self.inbox and not self.urgent
