"""The event loop of a simulation: events in order of virtual time, those of one instant in order of their making."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from math import inf
from random import Random
from typing import Any

from midstream.errors import InternalError
from midstream.lab.simulated_cluster.links import SimulatedLink, SimulatedWire
from midstream.lab.simulated_cluster.machines import Disk, MachineStep, SimulatedMachine, SimulatedProgram

OUTSIDE = "outside"
"""The sender of messages that come from no machine."""

START = "start"
TIMER = "timer"


class Simulation:
    """Machines and links in virtual time. The unit of time is whatever latencies and speeds are given in."""

    def __init__(self, seed: int = 0, link: SimulatedLink | None = None) -> None:
        self.seed = seed
        self.now = 0.0
        self.machines: dict[str, SimulatedMachine] = {}
        self.random = Random(seed)
        self.steps = 0
        self.on_send: Callable[[float, str, str, Any], None] = lambda *_: None
        """Called with every message that is sent: when, by whom, to whom, what."""
        self.default_link = link or SimulatedLink()
        self._links: dict[tuple[str, str], SimulatedLink] = {}
        self._wires: dict[tuple[str, str, str], SimulatedWire] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def add(
        self, name: str, program_of: Callable[[Disk], SimulatedProgram], *, speed: float = 1.0, memory: float = inf
    ) -> SimulatedMachine:
        """Adds a machine and starts it now."""
        if name in self.machines or speed <= 0:
            raise InternalError(f"machine {name!r} is there already or has no speed")
        self.machines[name] = SimulatedMachine(name, program_of, speed, memory)
        self.restart(name)
        return self.machines[name]

    def connect(self, sender: str, receiver: str, link: SimulatedLink) -> None:
        """Sets or changes the link one way."""
        self._links[sender, receiver] = link

    def link(self, sender: str, receiver: str) -> SimulatedLink:
        """The link one way; a machine reaches itself at once."""
        return SimulatedLink() if sender == receiver else self._links.get((sender, receiver), self.default_link)

    def wire(self, sender: str, receiver: str, lane: str = "") -> SimulatedWire:
        """What a lane of the link one way has carried so far."""
        random = Random(" ".join([str(self.seed), sender, receiver, *([lane] if lane else [])]))
        return self._wires.setdefault((sender, receiver, lane), SimulatedWire(random))

    def at(self, moment: float, action: Callable[[], None]) -> None:
        """Does something at a moment that is not past."""
        heapq.heappush(self._events, (max(moment, self.now), next(self._numbers), action))

    def post(self, to: str, message: Any, at: float | None = None, urgent: bool = False) -> None:
        """Delivers a message from outside, at once or at a moment."""
        self.at(self.now if at is None else at, lambda: self._deliver(to, OUTSIDE, message, urgent))

    def crash(self, name: str) -> None:
        """Stops a machine and forgets all but its disk; nothing if it is down."""
        machine = self.machines[name]
        machine.program, machine.at_work, machine.suspended, machine.used.held = None, False, False, 0.0
        machine.life += 1
        machine.inbox.clear()
        machine.urgent.clear()
        machine.timers.clear()

    def restart(self, name: str) -> None:
        """Starts a machine that is down from its disk; nothing if it is up."""
        machine = self.machines[name]
        if not machine.up:
            machine.program = machine.program_of(machine.disk)
            machine.inbox.append((None, START))
            self._begin(machine)

    def suspend(self, name: str) -> None:
        """Has a machine begin nothing new until it is resumed; what arrives waits."""
        self.machines[name].suspended = True

    def resume(self, name: str) -> None:
        """Lets a machine go on that was suspended."""
        self.machines[name].suspended = False
        self._begin(self.machines[name])

    def happen(self) -> bool:
        """Lets the next event happen; False if there is none."""
        if not self._events:
            return False
        self.now, _, action = heapq.heappop(self._events)
        action()
        return True

    def run(self, until: float = inf, most_steps: int | None = None) -> bool:
        """Runs up to and including a moment, or for so many steps; whether nothing is left to happen."""
        last = inf if most_steps is None else self.steps + most_steps
        while self._events and self._events[0][0] <= until and self.steps < last:
            moment, _, action = heapq.heappop(self._events)
            self.now = moment
            action()
        if not self._events and until != inf:
            self.now = max(self.now, until)
        elif self._events and self._events[0][0] > until:
            self.now = until
        return not self._events

    def _deliver(self, to: str, sender: str | None, message: Any, urgent: bool) -> None:
        machine = self.machines[to]
        if machine.up:
            (machine.urgent if urgent else machine.inbox).append((sender, message))
            self._begin(machine)

    def _begin(self, machine: SimulatedMachine) -> None:
        """Starts the next step if the machine is free."""
        waiting = machine.urgent or machine.inbox
        if machine.at_work or machine.suspended or not waiting or machine.program is None:
            return
        sender, message = waiting.popleft()
        step = MachineStep(machine.name, self.now)
        if sender is not None:
            machine.program.receive(step, sender, message)
        elif message == START:
            machine.program.start(step)
        else:
            machine.program.wake(step, message[1])
        self.steps += 1
        machine.at_work = True
        life, took = machine.life, step.units / machine.speed
        self.at(self.now + took, lambda: self._end(machine, life, step, took))

    def _end(self, machine: SimulatedMachine, life: int, step: MachineStep, took: float) -> None:
        """Lets a step take effect, unless the machine has crashed since."""
        if machine.life != life:
            return
        machine.at_work = False
        machine.used.busy += took
        if step.held is not None:
            machine.used.held, machine.used.peak = step.held, max(machine.used.peak, step.held)
            if step.held > machine.memory:
                machine.used.overflowed = True
                self.crash(machine.name)
                return
        machine.disk.update(step.writes)
        for to, message, size, urgent, lane in step.sends:
            self._send(machine.name, to, message, size, urgent, lane)
        for timer, delay in step.timers.items():
            self._set_timer(machine, timer, delay)
        self._begin(machine)

    def _send(self, sender: str, to: str, message: Any, size: float, urgent: bool, lane: str) -> None:
        self.on_send(self.now, sender, to, message)
        for arrival in self.wire(sender, to, lane).arrivals(self.link(sender, to), self.now, size):
            self.at(arrival, lambda: self._deliver(to, sender, message, urgent))

    def _set_timer(self, machine: SimulatedMachine, timer: str, delay: float | None) -> None:
        number = next(self._numbers)
        machine.timers[timer] = number
        if delay is None:
            del machine.timers[timer]
            return

        def due() -> None:
            if machine.timers.get(timer) == number:
                del machine.timers[timer]
                machine.inbox.append((None, (TIMER, timer)))
                self._begin(machine)

        self.at(self.now + delay, due)
