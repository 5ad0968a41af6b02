"""Turns: a batch and whatever else changes a job never happen at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from midstream.errors import JobError


class PutOff(JobError):
    """A batch has been put off because the session is being stopped; it is repeated when a session goes on."""


@dataclass(slots=True)
class Turns:
    """Who may change a job now: `gate` is held while a batch is under way, and while something is asked for.

    `failure` is what made the last batch fail, if it did. While the backend is `halting`, a batch that waits at the
    gate gives up.
    """

    gate: threading.RLock = field(default_factory=threading.RLock)
    in_batch: bool = False
    halting: bool = False
    failure: BaseException | None = None

    @contextmanager
    def batch(self, number: int) -> Iterator[None]:
        """A batch's turn; what it raises is remembered."""
        while not self.gate.acquire(timeout=0.1):
            if self.halting:
                raise PutOff(f"batch {number} was put off: the session is being stopped")
        try:
            self.in_batch = True
            yield
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self.in_batch = False
            self.gate.release()
