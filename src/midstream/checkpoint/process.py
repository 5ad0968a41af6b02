"""What a process has from the machine it runs on: clocks, chance, an identity, and threads that work beside it.

Everything that a job does besides computing goes through here. A simulation puts a process of its own in place, whose
clocks are virtual and whose chance comes from a seed, so that a run can be repeated exactly.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from midstream.checkpoint.machine import Machine, start_of, this_machine

AT_ONCE = 4
"""How many files of a process are written at a time."""

_pools: dict[int, ThreadPoolExecutor] = {}

_STEADY: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""On Linux the monotonic clock stops while the machine sleeps, and this one does not."""


class Repeated(Protocol):
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
        return secrets.token_hex(size)

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

    def repeat(self, action: Callable[[], None], pause: float, name: str) -> Repeated:
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
