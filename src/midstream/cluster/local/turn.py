"""Whose turn it is to work in a session: any thread may call it, one at a time.

What runs within a batch (a sink, a listener, `before_batch`, a function of the user's) would wait for itself for ever
if it began another one, so that is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from midstream.errors import JobError
from midstream.job.gate import Gate


class Turn:
    """A gate that no thread may pass twice."""

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
