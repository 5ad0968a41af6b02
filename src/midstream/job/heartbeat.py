"""A lease that is kept alive: renewed by a thread of its own, because a batch may take longer than a lease lasts."""

from __future__ import annotations

import logging
from collections.abc import Callable

from midstream.checkpoint.files import Files
from midstream.checkpoint.lease import Lease, LostLease
from midstream.checkpoint.process import this_process
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError

log = logging.getLogger(__name__)

PAUSE = 20.0
"""Seconds between two renewals: two may fail before the lease runs out."""


class Heartbeat:
    """Holds a checkpoint's lease until it is stopped.

    `on_lost` is called when a renewal finds that somebody else has taken the lease, and again with every later one.
    """

    def __init__(
        self, files: Files, on_lost: Callable[[LostLease], None] = lambda _: None, pause: float = PAUSE
    ) -> None:
        self.lease = Lease.take(files, above=CheckpointStore(files).epoch())
        self.on_lost = on_lost
        self.lost = False
        self.beating = this_process().repeat(self._beat, pause, "midstream-lease")

    @property
    def epoch(self) -> int:
        """The number that manifests made under the lease carry."""
        return self.lease.number

    def check(self) -> None:
        """Fails if somebody else holds the lease by now."""
        self.lease.check()

    def work(self) -> None:
        """Says that batches can come from now on."""
        self.lease.work()

    def stop(self) -> None:
        """Gives the lease back."""
        self.beating.stop()
        self.lease.release()

    def _beat(self) -> None:
        try:
            self.lease.beat()
        except LostLease as error:
            self.lost = True
            self.on_lost(error)
        except (JobError, OSError) as error:
            # Storage that is away may come back.
            log.warning("the lease could not be renewed: %s", error)
