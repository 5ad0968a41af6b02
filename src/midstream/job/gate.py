"""The gate of a session: a batch and whatever else changes it never happen at once, whichever threads call it.

Who waits for a turn waits for the end of a batch. A batch that waits for that very thread (its sink joins it, or asks
for the result of what it works at for a pool) would never end, so the thread is refused. Nor may what runs within a
batch (a sink, a listener, `before_batch`, a function of the user's) begin another one, which would wait for itself.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType, TracebackType

from midstream.errors import JobError

PAUSE = 0.1
"""Seconds between two looks at whether the thread that has the turn waits for one that waits for the turn."""


class Gate:
    """A lock that a thread may take several times, and that knows which thread has it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._thread: int | None = None

    @property
    def is_mine(self) -> bool:
        """Whether this thread has it."""
        return self._thread == threading.get_ident()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Takes it, as `threading.Lock.acquire` does."""
        if not self._lock.acquire(blocking, timeout):
            return False
        self._depth, self._thread = self._depth + 1, threading.get_ident()
        return True

    def release(self) -> None:
        """Gives it back, as often as it was taken."""
        self._depth -= 1
        if not self._depth:
            self._thread = None
        self._lock.release()

    def __enter__(self) -> None:
        while not self.acquire(timeout=PAUSE):
            holder = self._thread
            if holder is not None and is_awaited_by(holder):
                raise JobError(
                    "a session was called from a thread for which a batch of the same session waits",
                    detail="the call waits for the end of the batch, and the batch for the end of the call",
                    hint="have the sink, listener or function not wait for the thread, or call another session",
                )

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.release()


def is_awaited_by(holder: int) -> bool:
    """Whether a thread waits for this one, by `join` or by a future, without a limit of time."""
    working_at = {id(frame.f_locals["self"].future) for frame in _frames(sys._getframe()) if _is_work_item(frame)}
    frames, seen, asked = sys._current_frames(), {holder}, [holder]
    while asked:
        for frame in _frames(frames.get(asked.pop())):
            known = frame.f_locals
            if known.get("timeout") is not None:
                continue
            if frame.f_code is Future.result.__code__ and id(known["self"]) in working_at:
                return True
            if frame.f_code is threading.Thread.join.__code__ and (other := known["self"].ident) not in seen:
                if other == threading.get_ident():
                    return True
                seen.add(other)
                asked.append(other)
    return False


def _is_work_item(frame: FrameType) -> bool:
    """Whether a frame is that of a thread of a pool while it works."""
    return frame.f_code.co_name == "run" and isinstance(getattr(frame.f_locals.get("self"), "future", None), Future)


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


class Turn:
    """Whose turn it is to work in a session: a gate that no thread may pass twice."""

    def __init__(self) -> None:
        self._gate = Gate()

    @contextmanager
    def taken(self, what: str) -> Iterator[None]:
        """Has the turn while inside, after waiting for it; refuses a thread that has it already."""
        if self._gate.is_mine:
            raise JobError(
                f"{what} was called within a batch of the same session",
                detail="a sink, a listener, before_batch or a function cannot begin what has to wait for its own end",
                hint="keep the rows and push them when the batch is done, or push them into another session",
            )
        with self._gate:
            yield

    def take(self, patience: float = -1) -> bool:
        """Waits for the turn, at most for so many seconds if they are given; whether it has come."""
        return self._gate.acquire(timeout=patience)

    def give_back(self) -> None:
        """Lets the next thread have the turn."""
        self._gate.release()
