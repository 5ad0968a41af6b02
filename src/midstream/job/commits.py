"""Commits: a batch's manifest made tidy and written, once, under the lease; what nobody names any more is removed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.checkpoint.believed_time import BelievedTime
from midstream.checkpoint.collect import collect
from midstream.checkpoint.files import Files
from midstream.checkpoint.lease import LostLease
from midstream.checkpoint.lists import shorten
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.merging import adopt
from midstream.checkpoint.metrics import completed, remember
from midstream.checkpoint.origin import identified
from midstream.checkpoint.released_results import counted, must_be_read, still_waiting
from midstream.checkpoint.retention import Retention, carried
from midstream.checkpoint.source_batches import own_batches
from midstream.checkpoint.stops import RunStop, record_error
from midstream.checkpoint.store import FOR_A_REPLAY, CheckpointStore
from midstream.errors import JobError, MidstreamError
from midstream.job.batch import Batch
from midstream.job.compaction import Compactor
from midstream.job.heartbeat import Heartbeat
from midstream.job.outputs.progress import metrics_row, progress_of
from midstream.operators.vectors import Numbers


@dataclass(slots=True)
class Commits:
    """The checkpoint of a job, as its driver writes it."""

    store: CheckpointStore
    retained: int
    metrics_retained: int = 100_000
    retention: Retention = field(default_factory=lambda: Retention({}))
    lease: Heartbeat | None = None
    under_way: int | None = None
    """The batch whose commit has begun and not ended: if its manifest is there, what the driver knows is behind it."""
    seconds: dict[str, float] = field(default_factory=dict)
    """What the last batch took, as far as it is known only since its commit."""
    progress: dict[str, Any] = field(default_factory=dict)
    """What the last batch did."""
    time: BelievedTime = field(default_factory=BelievedTime)
    """What time it is to the job."""
    starts: dict[tuple[str, str], Numbers] = field(default_factory=dict)
    """When results start that wait, of files that steps of this process have written."""
    compactor: Compactor = field(init=False)

    def __post_init__(self) -> None:
        self.compactor = Compactor(self.files)

    @property
    def files(self) -> Files:
        """The checkpoint's files."""
        return self.store.files

    @property
    def epoch(self) -> int:
        """The number of the lease; 0 without one."""
        return 0 if self.lease is None else self.lease.epoch

    def check_lease(self) -> None:
        """Fails if somebody else drives the job by now."""
        if self.lease is not None:
            self.lease.check()

    def begin(self, batch: Batch, made: Manifest, written: Callable[[], None] = lambda: None) -> Manifest:
        """Writes a batch's manifest, tidied, once its files are `written`; gives it."""
        for report in batch.reports:
            self.starts |= {(report.results[n].path, report.results[n].part): s for n, s in report.starts.items()}
        if must_be_read(made, self.starts):
            written()
        made = counted(self.files, made, batch.before, batch.queries, self.starts)
        self.starts = dict(still_waiting(made, self.starts))
        manifest = self._tidied(batch, made)
        if self.lease is not None:
            manifest = replace(manifest, epoch=self.lease.epoch)
        self.check_lease()
        self.under_way = manifest.batch_id
        self.store.commit(manifest, written)
        return manifest

    def end(self, manifest: Manifest) -> None:
        """Removes what nobody names any more, and merges small files beside the next batch."""
        self.store.retain(max(self.retained, FOR_A_REPLAY + own_batches(manifest)), self.check_lease)
        if self._collects(manifest.batch_id):
            collect(self.store, self.files, self.check_lease)
        self.compactor.begin(manifest)
        self.under_way = None

    def _collects(self, batch_id: int) -> bool:
        return batch_id % self.retained == 0

    def _tidied(self, batch: Batch, manifest: Manifest) -> Manifest:
        """The manifest with small files merged, old ones in lists, and the batch in the metrics table."""
        now = self.time.now()
        # Before unreferenced files are collected nothing may be half made.
        manifest = adopt(manifest, self.compactor.take(wait=self._collects(batch.batch_id)), now)
        self.progress = progress_of(batch, manifest)
        row = metrics_row(self.progress, manifest, now)
        whole = completed(manifest, self.seconds)
        self.seconds = {}
        known = remember(self.files, whole, row, self.metrics_retained)
        known = identified(carried(known, batch.before), batch.before)
        return shorten(self.files, self._within_limits(known, now))

    def _within_limits(self, manifest: Manifest, now: float) -> Manifest:
        """The manifest without what has outlived its retention; looked at when files are collected."""
        if not self.retention.limits or not self._collects(manifest.batch_id):
            return manifest
        retained = self.store.batch_ids()
        if not retained:
            return manifest
        return self.retention.applied(self.files, manifest, self.store.read(retained[0]), now)

    @property
    def torn(self) -> bool:
        """Whether a commit was interrupted after its manifest was there, so that the checkpoint must be read again."""
        return self.under_way is not None and max(self.store.batch_ids(), default=-1) >= self.under_way

    def require_whole(self) -> None:
        """Fails if a commit was interrupted."""
        if self.torn:
            raise JobError(
                f"the commit of batch {self.under_way} was interrupted, and this session's view of it is incomplete",
                hint="stop the session and start it again: it resumes from the checkpoint",
            )

    def record_error(self, error: BaseException, batch: int | None) -> None:
        """Writes down what ends the run, so that whoever looks at the checkpoint knows; `batch` is the newest done.

        A driver that has lost the lease leaves that to the one that has it. Storage may be what fails.
        """
        if self.lease is None or self.lease.lost or isinstance(error, LostLease) or not isinstance(error, Exception):
            return
        with suppress(MidstreamError, OSError):
            record_error(self.files, RunStop.by_error(error, self.time.now(), batch))

    def stop(self) -> None:
        """Lets go of the checkpoint."""
        try:
            self.compactor.take(wait=True)
            self.store.wait()
        finally:
            if self.lease is not None:
                self.lease.stop()
                self.lease = None
