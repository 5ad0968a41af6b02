"""A run of a session's job: its backend at work, from the start to the stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from midstream.algebra.declarations import StreamDeclaration
from midstream.checkpoint.lease import LostLease
from midstream.cluster.backend import Backend, Input
from midstream.errors import ClusterError, JobError
from midstream.job.circumstances import require_unfinished
from midstream.job.ending import finish, is_delivered
from midstream.job.job import Job

log = logging.getLogger(__name__)

START_AGAIN = "start the job again: it resumes where it was"


@dataclass(slots=True)
class Run:
    """The backend of a session, the driver that it calls, and the streams that it reads.

    `stopping` is set to have the run end after the batch under way, `over` when it has been stopped or cannot go on.
    While a backend is halted no batch can come, but the run is not over: only an event ends it.
    """

    backend: Backend
    job: Job
    inputs: dict[str, Input] = field(default_factory=dict)
    started: bool = False
    trigger: str | None = None
    stopping: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def declarations(self) -> list[StreamDeclaration]:
        """The streams, as they were declared."""
        return [stream.declaration for stream in self.inputs.values()]

    @property
    def held(self) -> bool:
        """Whether this process holds the checkpoint's lease."""
        return self.job.commits.lease is not None

    def begin(self) -> None:
        """Starts the backend."""
        self.job.streams = dict(enumerate(self.declarations))
        self.started = True
        self.backend.begin(self.job, list(self.inputs.values()), self.trigger)
        if self.job.commits.lease is not None:
            self.job.commits.lease.work()

    def lacks(self, streams: Collection[str]) -> list[str]:
        """Which of some streams were declared after the backend has begun, so that batches do not bring them."""
        brought = {declaration.name for declaration in self.job.streams.values()}
        return sorted({*streams} - brought) if self.backend.active else []

    def restart(self) -> None:
        """Has batches bring the streams that were declared since the backend has begun; the gate is held."""
        self.halt()
        try:
            self.begin()
        except BaseException as error:
            self.job.turns.failure = error
            self.job.record_error(error)
            self.over.set()
            raise

    def halt(self) -> None:
        """Stops the backend while no batch is under way; the gate is held."""
        self.job.turns.halting = True
        try:
            self.backend.halt()
        finally:
            self.job.turns.halting = False

    def deliver_last(self) -> None:
        """Calls the sinks of a finished job that have not had its last results; there is nothing else to start."""
        if is_delivered(self.job):
            require_unfinished(self.job.manifest, self.job.store.uri)
        finish(self.job)
        self.started = True
        self.stopping.set()

    def wait(self, until: float | None) -> bool:
        """Waits for the end, at most until a moment; false if it has not come. What made a batch fail is raised."""
        while not self.stopping.is_set():
            if self._ended():
                return True
            if until is not None and time.monotonic() >= until:
                return False
        return True

    def _ended(self) -> bool:
        """Waits a moment for the end; what made a batch fail is raised."""
        if not self.started:
            raise JobError("the session has not been started")
        try:
            ended = self.over.is_set() or self.backend.ended(self.job)
            if ended and self.job.turns.failure is not None:
                raise self.job.turns.failure
            if ended and not self.over.is_set() and self.trigger != "available":
                raise ClusterError("no batches come any more, although nobody has stopped the job", hint=START_AGAIN)
            return ended
        except Exception as error:
            if self.stopping.is_set():
                return False
            self.job.record_error(error)
            raise

    def take_in_the_rest(self) -> None:
        """Works through what the streams of a running session have now."""
        self.trigger = "available"
        with self.job.gate:
            self.halt()
            self.job.turns.failure = None
            self.begin()
        self.wait(None)

    def lose(self, error: LostLease) -> None:
        """Ends the run, because somebody else drives the job; `wait` raises the reason.

        A batch that is under way ends by itself: it cannot be committed.
        """
        job = self.job
        if job.turns.in_batch or not job.gate.acquire(blocking=False):
            return
        try:
            if job.turns.failure is None:
                log.error("the job ends here: %s", error)
                job.turns.failure = error
            self.halt()
            self.over.set()
        finally:
            job.gate.release()

    def stop(self) -> None:
        """Ends the run between two batches, and lets go of the checkpoint."""
        job = self.job
        with job.gate:
            self.halt()
            self.over.set()
        job.deliveries.close()
        job.commits.stop()
