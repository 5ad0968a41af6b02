"""What a process has from the machine it runs on: clocks, chance, an identity, and threads that work beside it.

Everything that a job does besides computing goes through here. A simulation puts a process of its own in place, whose
clocks are virtual and whose chance comes from a seed, so that a run can be repeated exactly.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from midstream.algebra.time import seconds as duration


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine's id, that of its boot, and its namespaces of processes and of clocks; empty where unknown."""

    machine: str = ""
    boot: str = ""
    processes: str = ""
    clocks: str = ""

    def has_processes_of(self, other: Machine) -> bool:
        """Whether a process number of the other one means the same process here."""
        known = bool(self.machine and self.boot and self.processes)
        return known and (self.machine, self.boot, self.processes) == (other.machine, other.boot, other.processes)

    def has_clock_of(self, other: Machine) -> bool:
        """Whether both read one monotonic clock, which counts since the boot."""
        return bool(self.boot and self.clocks) and (self.boot, self.clocks) == (other.boot, other.clocks)


def this_machine() -> Machine:
    """The machine that this process runs on."""
    if sys.platform != "linux":
        # There is one space of processes; without an id of the boot a number may have been used again since.
        return Machine(f"{uuid.getnode():012x}", "unknown", "all")
    return Machine(
        _content("/etc/machine-id") or _content("/var/lib/dbus/machine-id") or f"{uuid.getnode():012x}",
        _content("/proc/sys/kernel/random/boot_id"),
        _target("/proc/self/ns/pid"),
        # Kernels before 5.6 have one clock for all.
        _target("/proc/self/ns/time") or "all",
    )


def start_of(pid: str) -> str:
    """When a process started, in the machine's own count, so that a number used again is not taken for it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return f"{_content('/proc/sys/kernel/random/boot_id')}/{stat.rpartition(')')[2].split()[19]}"


def _content(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


AT_ONCE = 4
"""How many files of a process are written at a time."""

_pools: dict[int, ThreadPoolExecutor] = {}


class _RandomBytes:
    """Random bytes of the system, asked for many at a time; a forked process begins with others than its parent."""

    AT_ONCE = 1_024

    def __init__(self) -> None:
        self.forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Begins anew."""
        self._lock, self._left = threading.Lock(), b""

    def take(self, size: int) -> bytes:
        """So many bytes, which nobody is given again."""
        with self._lock:
            if len(self._left) < size:
                self._left = os.urandom(max(size, self.AT_ONCE))
            taken, self._left = self._left[:size], self._left[size:]
        return taken


_random = _RandomBytes()

_STEADY: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""On Linux the monotonic clock stops while the machine sleeps, and this one does not."""


class RepeatedCall(Protocol):
    """Something that is done again and again until it is stopped."""

    def stop(self, patience: float | None = None) -> None:
        """Ends the repetition and waits for a run under way, at most for so many seconds if they are given."""


class Process:
    """This process, as the system has it."""

    @property
    def host(self) -> str:
        """The name of the machine, for people."""
        return socket.gethostname()

    @property
    def number(self) -> int:
        """The number of the process on its machine."""
        return os.getpid()

    @property
    def started(self) -> str:
        """When the process started, so that a number used again is not taken for it."""
        return start_of("self")

    @property
    def machine(self) -> Machine:
        """The machine it runs on."""
        return this_machine()

    def lives(self, number: int, started: str) -> bool:
        """Whether a process of this machine is still there."""
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return not started or start_of(str(number)) == started

    def now(self) -> float:
        """The wall clock, in seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """A clock that is never set, in seconds."""
        return time.monotonic()

    def steady(self) -> float:
        """A clock that is never set and goes on while the machine sleeps, in seconds."""
        return time.monotonic() if _STEADY is None else time.clock_gettime(_STEADY)

    def processor(self) -> float:
        """What this thread has taken of the processor, in seconds."""
        return time.thread_time()

    def sleep(self, seconds: float) -> None:
        """Waits."""
        time.sleep(seconds)

    def token(self, size: int) -> str:
        """A text of `size` random bytes that nobody else has."""
        return _random.take(size).hex()

    def begin(self, action: Callable[..., None], *arguments: object) -> Future[None]:
        """Starts something short while the caller goes on."""
        pool = _pools.get(os.getpid())  # threads do not survive a fork
        if pool is None:
            pool = _pools[os.getpid()] = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="midstream-files")
        return pool.submit(action, *arguments)

    def aside(self, action: Callable[[], None], name: str) -> Future[None]:
        """Starts something long in a thread of its own."""
        future: Future[None] = Future()
        threading.Thread(target=_into, args=(future, action), name=name, daemon=True).start()
        return future

    def repeat(self, action: Callable[[], None], pause: float, name: str) -> RepeatedCall:
        """Does something again and again, each time after a pause in seconds."""
        return _Repeating(action, pause, name)


class _Repeating:
    def __init__(self, action: Callable[[], None], pause: float, name: str) -> None:
        self.action = action
        self.pause = pause
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.ending.wait(self.pause):
            self.action()

    def stop(self, patience: float | None = None) -> None:
        self.ending.set()
        if threading.current_thread() is not self.thread:
            self.thread.join(patience)


def _into(future: Future[None], action: Callable[[], None]) -> None:
    try:
        action()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(None)


_current: ContextVar[Process] = ContextVar("process", default=Process())  # noqa: B039


def this_process() -> Process:
    """The process that runs this."""
    return _current.get()


@contextmanager
def running_as(process: Process) -> Iterator[None]:
    """Replaces the current process for the code inside, but not for threads that it starts by other means."""
    before = _current.set(process)
    try:
        yield
    finally:
        _current.reset(before)


log = logging.getLogger(__name__)

TOLERANCE = 5.0
"""By how many seconds the wall clock may differ from what is expected: time services move it a little all the time."""

DRIFT = 1e-3
"""How much of the time that has gone by a clock may have gained or lost without being set."""

CONFIRMED_AFTER = 300.0
"""For how many seconds a clock that was set must agree with the steady one before it is believed."""

CONFIRMED_BY, APART = 3, 30.0
"""And in how many looks at least, which are so many seconds apart."""

LONGEST_REST = 366 * 86400.0
"""For how many seconds a job can have rested, as far as a first look at the clock is believed."""


@dataclass(slots=True)
class _Candidate:
    """Another reading of the wall clock that may come to be believed: its distance from the steady clock."""

    distance: float
    since: float
    looked: float
    looks: int = 1


class BelievedTime:
    """What time it is, in seconds since 1970."""

    def __init__(self) -> None:
        self._distance: float | None = None
        """By how much the wall clock is ahead of the steady one, as far as it is believed."""
        self._looked = 0.0
        self._candidate: _Candidate | None = None

    def begin_after(self, last: float | None) -> None:
        """Begins with a checkpoint whose newest batch was done then; what is far from that is not believed at first."""
        process = this_process()
        wall, steady = process.now(), process.steady()
        believable = last is None or last - TOLERANCE <= wall <= last + LONGEST_REST
        self._distance = (wall if believable or last is None else last) - steady
        self._looked, self._candidate = steady, None
        self.now()

    def now(self) -> float:
        """The time that is believed."""
        process = this_process()
        wall, steady = process.now(), process.steady()
        away = wall - steady
        if self._distance is None:
            self._distance = away
        elif abs(away - self._distance) > TOLERANCE:
            self._consider(away, steady)
        else:
            self._candidate = None
            most = (steady - self._looked) * DRIFT
            self._distance += max(-most, min(most, away - self._distance))
        self._looked = steady
        return wall if self._candidate is None else self._distance + steady

    def at_most(self, ticks: int | None) -> int | None:
        """An instant in microseconds that another clock may have given, but not after the time that is believed."""
        return None if ticks is None else min(ticks, int((self.now() + TOLERANCE) * 1e6))

    def _consider(self, away: float, steady: float) -> None:
        known = self._candidate
        if known is None or abs(known.distance - away) > TOLERANCE + (steady - known.since) * DRIFT:
            self._candidate = _Candidate(away, steady, steady)
            step = away - (self._distance or 0.0)
            log.warning(
                "the clock has stepped %s by %s: it is not believed until it has gone on from there for %s",
                "ahead" if step > 0 else "back",
                duration(abs(step)),
                duration(CONFIRMED_AFTER),
            )
            return
        if steady - known.looked >= APART:
            known.looks, known.looked = known.looks + 1, steady
        if known.looks >= CONFIRMED_BY and steady - known.since >= CONFIRMED_AFTER:
            log.warning("the clock is believed as it is now: it has gone on for %s", duration(steady - known.since))
            self._distance, self._candidate = away, None
