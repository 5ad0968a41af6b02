"""A lease that is kept alive: renewed by a thread of its own, because a batch may take longer than a lease lasts."""

from __future__ import annotations

import logging
import threading

from midstream.checkpoint.files import Files
from midstream.checkpoint.lease import Lease
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError

log = logging.getLogger(__name__)

PAUSE = 20.0
"""Seconds between two renewals: two may fail before the lease runs out."""


class Heartbeat:
    """Holds a checkpoint's lease until it is stopped."""

    def __init__(self, files: Files, pause: float = PAUSE) -> None:
        self.lease = Lease.take(files, above=CheckpointStore(files).epoch())
        self.pause = pause
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self._beat, name="midstream-lease", daemon=True)
        self.thread.start()

    @property
    def epoch(self) -> int:
        """The number that manifests made under the lease carry."""
        return self.lease.number

    def check(self) -> None:
        """Fails if somebody else holds the lease by now."""
        self.lease.check()

    def stop(self) -> None:
        """Gives the lease back."""
        self.ending.set()
        self.thread.join()
        self.lease.release()

    def _beat(self) -> None:
        while not self.ending.wait(self.pause):
            try:
                self.lease.beat()
            except (JobError, OSError) as error:
                # A lost lease stays lost, and the next commit fails by it; storage that is away may come back.
                log.warning("the lease could not be renewed: %s", error)
