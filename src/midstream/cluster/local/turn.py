"""Whose turn it is to work in a session: any thread may call it, one at a time.

What runs within a batch (a sink, a listener, `before_batch`, a function of the user's) would wait for itself for ever
if it began another one, so that is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from midstream.errors import JobError


class Turn:
    """A lock that knows which thread has it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: int | None = None

    @contextmanager
    def taken(self, what: str) -> Iterator[None]:
        """Has the turn while inside, after waiting for it; refuses a thread that has it already."""
        if self._thread == threading.get_ident():
            raise JobError(
                f"{what} was called within a batch of the same session",
                detail="a sink, a listener, before_batch or a function cannot begin what has to wait for its own end",
                hint="keep the rows and push them when the batch is done, or push them into another session",
            )
        self.take()
        try:
            yield
        finally:
            self.give_back()

    def take(self, patience: float = -1) -> bool:
        """Waits for the turn, at most for so many seconds if they are given; whether it has come."""
        if not self._lock.acquire(timeout=patience):
            return False
        self._thread = threading.get_ident()
        return True

    def give_back(self) -> None:
        """Lets the next thread have the turn."""
        self._thread = None
        self._lock.release()
