"""Processes in virtual time: each runs a program of its own, and of all of them one runs at a time.

A program is plain code that blocks. It runs in a thread, but only while it has the turn, and gives it back when it has
done as many operations as it was given; so the order in which everything happens is drawn, and can be repeated. A
process that is killed ends at the operation at which it has the turn next, and does nothing any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from midstream.checkpoint.process import Machine, Process, RepeatedCall, running_as
from midstream.errors import InternalError
from midstream.lab.simulated_cluster.kernel import Simulation

BESIDE_BATCHES = frozenset({"midstream-lease"})
"""What is repeated while a batch is under way too; the rest waits until there is none."""

EPOCH = 1_700_000_000.0
"""What wall clocks show when a simulation begins, in seconds since 1970."""


class Killed(BaseException):
    """The process is no more."""


@dataclass(slots=True)
class Host:
    """A machine as processes know it: `boot` is another one after each start, and with it the monotonic clock."""

    name: str
    boot: int = 0
    booted: float = 0.0
    ahead: float = 0.0
    """By how much its wall clock is wrong."""

    @property
    def machine(self) -> Machine:
        """Its identity."""
        return Machine(self.name, f"{self.name}/{self.boot}", "all", "all")


@dataclass(eq=False, slots=True)
class _Repeated:
    action: Callable[[], None]
    pause: float
    name: str
    due: float
    ended: bool = False

    def stop(self, patience: float | None = None) -> None:
        self.ended = True


class _Later(Future[None]):
    """Something that is done when it is waited for, or before."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self.action = action

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.work()
        return super().exception()

    def result(self, timeout: float | None = None) -> None:
        self.work()
        super().result()

    def work(self) -> None:
        """Does it, if it is not done."""
        if not self.done():
            try:
                self.action()
            except Exception as error:
                self.set_exception(error)
            else:
                self.set_result(None)


class SimulatedProcess(Process):
    """A process on a simulated machine."""

    numbers = 0

    def __init__(self, name: str, host: Host, simulation: Simulation, random: Random) -> None:
        self.name = name
        self.at = host
        self.boot = host.boot
        self.simulation = simulation
        self.random = random
        self.dead = False
        self.repeated: list[_Repeated] = []
        self.waiting: list[_Later] = []

    @property
    def host(self) -> str:
        return self.at.name

    @property
    def number(self) -> int:
        return int(self.name.rpartition("-")[2])

    @property
    def started(self) -> str:
        return f"{self.at.boot}/{self.name}"

    @property
    def machine(self) -> Machine:
        return self.at.machine

    def lives(self, number: int, started: str) -> bool:
        return self.alive_here(number)

    alive_here: Callable[[int], bool] = staticmethod(lambda number: True)
    """Whether a process of the same machine and boot is there; set by whoever knows all of them."""

    def now(self) -> float:
        return EPOCH + self.simulation.now + self.at.ahead

    def monotonic(self) -> float:
        return self.simulation.now - self.at.booted

    def steady(self) -> float:
        return self.monotonic()

    def processor(self) -> float:
        return self.monotonic()

    def sleep(self, seconds: float) -> None:
        until = self.simulation.now + seconds
        self.simulation.at(until, lambda: None)
        self.wait_until(lambda: self.simulation.now >= until)

    def token(self, size: int) -> str:
        return self.random.randbytes(size).hex()

    def begin(self, action: Callable[..., None], *arguments: object) -> Future[None]:
        begun = _Later(lambda: action(*arguments))
        begun.work()
        return begun

    def aside(self, action: Callable[[], None], name: str) -> Future[None]:
        begun = _Later(action)
        self.waiting.append(begun)
        if self.random.random() < 0.5:
            begun.work()
        return begun

    def repeat(self, action: Callable[[], None], pause: float, name: str) -> RepeatedCall:
        made = _Repeated(action, pause, name, self.simulation.now + pause)
        self.repeated.append(made)
        return made

    def operate(self) -> None:
        """One more operation; fails if the process is no more."""
        if self.dead:
            raise Killed(self.name)

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Lets time go on until something is true."""
        while not done():
            self.operate()
            self.keep_up(BESIDE_BATCHES)
            if not done() and not self.simulation.happen():
                raise InternalError(f"{self.name} waits, and nothing is left to happen")

    def keep_up(self, only: frozenset[str] | None = None) -> None:
        """Does what is to be repeated by now; without `only` also what waits until no batch is under way."""
        self.repeated = [r for r in self.repeated if not r.ended]
        for repeated in self.repeated:
            if repeated.due <= self.simulation.now and (only is None or repeated.name in only):
                repeated.due = self.simulation.now + repeated.pause
                repeated.action()
        if only is None:
            waiting, self.waiting = self.waiting, []
            for one in waiting:
                one.work()


class Actor(SimulatedProcess):
    """A process with a program, which has the turn for some operations at a time."""

    def __init__(
        self, name: str, host: Host, simulation: Simulation, random: Random, program: Callable[[Actor], None]
    ) -> None:
        super().__init__(name, host, simulation, random)
        self.failure: BaseException | None = None
        self.ended = False
        self.stopped_until: float | None = None
        self._left = 0
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(program,), name=name, daemon=True)
        self._thread.start()

    def _run(self, program: Callable[[Actor], None]) -> None:
        self._go.acquire()
        try:
            with suppress(Killed), running_as(self):
                self.operate()
                program(self)
        except BaseException as error:
            self.failure = error
        self.ended = self.dead = True
        self._back.release()

    def proceed(self, operations: int) -> None:
        """Gives it the turn for some operations, or until it ends."""
        self._left = operations
        self._go.release()
        self._back.acquire()

    def end_turn(self) -> None:
        """Gives the turn back before its operations are used up."""
        self._left = 0
        self.operate()

    def kill(self) -> None:
        """Ends it where it is."""
        self.dead = True
        while not self.ended:
            self.proceed(1_000_000)

    def operate(self) -> None:
        if not self.dead and threading.current_thread() is self._thread:
            self._left -= 1
            if self._left <= 0:
                self._back.release()
                self._go.acquire()
        super().operate()
