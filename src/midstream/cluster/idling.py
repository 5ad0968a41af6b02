"""Idle sources: what waits only for another batch is released although no rows come.

A batch works with the registers of the one before it, so results that depend on absence leave a batch later. When a
source has had nothing for a while, one batch without rows takes that place. It leaves nothing that waits, so no other
follows it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from midstream.algebra.time import TimeDomain, ticks
from midstream.errors import JobError, MidstreamError
from midstream.job.commits import PutOff
from midstream.job.ending import release_in_turn
from midstream.job.job import Job

QUIET = 1.0
"""After how many seconds without a batch a source is idle, unless its trigger is longer."""

LOOK = 0.1
"""How many seconds lie between two looks."""


def trigger_seconds(trigger: str | None) -> float:
    """How many seconds a trigger waits between batches; 0 if there is none."""
    if trigger is None or trigger == "available":
        return 0.0
    try:
        return ticks(trigger, TimeDomain(pa.timestamp("us"))) / 1e6
    except MidstreamError as error:
        raise JobError(f"the trigger {trigger!r} is not a duration", hint='write "5 seconds" or "available"') from error


@dataclass(slots=True)
class IdleTurns:
    """A thread beside a source that calls the job by itself; `failed` is called if a turn fails."""

    job: Job
    quiet: float
    failed: Callable[[], None]
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to look."""
        self._thread = threading.Thread(target=self._watch, name="midstream-idle", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends between two turns."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _watch(self) -> None:
        seen, since = self.job.manifest, time.monotonic()
        while not self._stop.wait(LOOK):
            now = time.monotonic()
            if self.job.turns.in_batch or self.job.manifest is not seen:
                seen, since = self.job.manifest, now
            elif now - since >= self.quiet:
                since = now
                if not self._take_turn():
                    return

    def _take_turn(self) -> bool:
        try:
            release_in_turn(self.job)
        except PutOff:
            return False
        except BaseException:  # the turn has remembered it
            self.failed()
            return False
        return True
