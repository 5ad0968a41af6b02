"""Commits: a batch's manifest made tidy and written, once, under the lease; what nobody names any more is removed."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from midstream.checkpoint.collect import garbage, remove
from midstream.checkpoint.files import Files, begin, wait_for
from midstream.checkpoint.lease import Heartbeat, LostLease
from midstream.checkpoint.lists import shorten
from midstream.checkpoint.manifest import Manifest, identified, own_batches
from midstream.checkpoint.merging import FEWEST, AnyMerge, Made, MetricsMerge, SharedMerge, adopt, due
from midstream.checkpoint.metrics import remember, write_together
from midstream.checkpoint.names import DEAD_LETTERS, METRICS, RESULTS, name_for
from midstream.checkpoint.outputs import QUERY, checksum_of, counted, must_be_read, read_whole, still_waiting
from midstream.checkpoint.process import BelievedTime, this_process
from midstream.checkpoint.retention import Retention
from midstream.checkpoint.stops import RunStop, record_error
from midstream.checkpoint.store import FOR_A_REPLAY, CheckpointStore
from midstream.errors import JobError, MidstreamError
from midstream.job.batch import Batch
from midstream.job.gate import PAUSE, Gate
from midstream.job.outputs.progress import metrics_row, progress_of
from midstream.job.task.memory import ParquetSpool
from midstream.job.task.results import shared_parquet
from midstream.operators.vectors import Numbers

log = logging.getLogger(__name__)

HELD = 64 * 2**20
"""How many bytes a merge holds before it writes a row group."""


class Compactor:
    """One round of merges at a time, in a thread of its own."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.round: Future[None] | None = None
        self.done: list[tuple[AnyMerge, Made]] = []
        self.turn = 0

    def begin(self, manifest: Manifest) -> None:
        """Starts a round on what the manifest names, if something is due and no round is under way."""
        if self.round is not None:
            return
        merges = due(manifest, self.turn)
        self.turn += 1
        if merges:
            self.round = this_process().aside(partial(self._run, merges, manifest.batch_id + 1), "midstream-merge")

    def take(self, wait: bool = False) -> list[tuple[AnyMerge, Made]]:
        """What the last round has merged, once it has ended; waits for its end if asked to."""
        if self.round is None or not (wait or self.round.done()):
            return []
        wait_for([self.round])
        self.round, done, self.done = None, self.done, []
        return done

    def _run(self, merges: Sequence[AnyMerge], batch_id: int) -> None:
        done: list[tuple[AnyMerge, Made]] = []
        _let_others_first()
        try:
            for merge in merges:
                done.append((merge, merge.merged(*write_merged(self.files, merge, batch_id))))
        except (MidstreamError, pa.ArrowException, OSError) as error:
            log.warning("small files stay as they are for now: %s", error)
        self.done = done


def _let_others_first() -> None:
    """Lowers this thread's priority below that of batches; only Linux has priorities of single threads."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # some containers forbid it, and merging matters more
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def write_merged(files: Files, merge: AnyMerge, batch_id: int) -> tuple[str, int, int]:
    """Writes one file with the rows of all; gives its name, its checksum and its size."""
    if isinstance(merge, SharedMerge):
        return _write_shared(files, merge, batch_id)
    if isinstance(merge, MetricsMerge):
        write_together(files, path := name_for(METRICS, batch_id, 0, 0), merge.old)
        return path, 0, 0
    spool = ParquetSpool(HELD)
    for file in merge.old:
        spool.add(read_whole(files, file))
    content = spool.content()
    assert content is not None
    path = name_for(DEAD_LETTERS if merge.query is None else f"{RESULTS}/{merge.query}", batch_id, 0, 0)
    files.write_atomic(path, content, point="merge")
    return path, checksum_of(content), content.size


def _write_shared(files: Files, merge: SharedMerge, batch_id: int) -> tuple[str, int, int]:
    owners: dict[str, dict[str, str]] = {}
    shared = {file.path: file for old in merge.old.values() for file in old}
    for query, old in merge.old.items():
        for file in old:
            owners.setdefault(file.path, {})[file.part] = query
    rows = pa.concat_tables([_owned(read_whole(files, shared[path]), whose) for path, whose in owners.items()])
    rows = rows.take(pc.sort_indices(rows, sort_keys=[(QUERY, "ascending")]))
    path = name_for(merge.folder, batch_id, 0, 0)
    content = shared_parquet(rows.drop_columns([QUERY]), rows.column(QUERY))
    files.write_atomic(path, content, point="merge")
    return path, checksum_of(content), content.size


def _owned(rows: pa.Table, whose: Mapping[str, str]) -> pa.Table:
    """The rows of some parts, under the names of their queries."""
    place = rows.column_names.index(QUERY)
    number = pc.index_in(rows.column(QUERY), value_set=pa.array(list(whose)))
    names = pa.array(list(whose.values())).take(number)
    return rows.set_column(place, QUERY, names).filter(pc.is_valid(number))


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
    removing: list[Future[None]] = field(default_factory=list)
    """The removal of unreferenced files that was begun last, beside the batches after it."""
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
        """Now and then removes what nobody names any more, and merges small files beside the next batch."""
        if self._collects(manifest.batch_id):
            self.store.retain(max(self.retained, FOR_A_REPLAY + own_batches(manifest)), self.check_lease)
            self._collect(manifest)
        if self._tidies(manifest.batch_id):
            self.compactor.begin(manifest)
        self.under_way = None

    def _collects(self, batch_id: int) -> bool:
        return batch_id % self.retained == 0

    def _tidies(self, batch_id: int) -> bool:
        """Whether it is time to look for small files to merge, and for long lists; no sooner can there be some."""
        return batch_id % FEWEST == 0 or self._collects(batch_id)

    def _collect(self, newest: Manifest) -> None:
        """Begins to remove what nobody names any more, under a lease that is held once it is known what that is.

        What nobody named while the lease was held is never named again, however long this process is paused before it
        removes it.
        """
        self._wait_for_removal()
        if found := garbage(self.store, self.files, newest):
            self.check_lease()
            self.removing = [begin(remove, self.files, found)]

    def _wait_for_removal(self) -> None:
        removing, self.removing = self.removing, []
        wait_for(removing)

    def _tidied(self, batch: Batch, manifest: Manifest) -> Manifest:
        """The manifest with small files merged, old ones in lists, and the batch in the metrics table."""
        now = self.time.now()
        tidies = self._tidies(batch.batch_id)
        # Before unreferenced files are collected nothing may be half made.
        if (merged := self.compactor.take(wait=self._collects(batch.batch_id))) or tidies:
            manifest = adopt(manifest, merged, now)
        self.progress = progress_of(batch, manifest)
        row = metrics_row(self.progress, manifest, now)
        known = remember(self.files, manifest, row, self.seconds, self.metrics_retained)
        self.seconds = {}
        known = identified(known)
        return shorten(self.files, self._within_limits(known, now)) if tidies else known

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
            self._wait_for_removal()
        finally:
            if self.lease is not None:
                self.lease.stop()
                self.lease = None


class PutOff(JobError):
    """A batch has been put off because the session is being stopped; it is repeated when a session goes on."""


@dataclass(slots=True)
class Turns:
    """Who may change a job now: `gate` is held while a batch is under way, and while something is asked for.

    `failure` is what made the last batch fail, if it did. While the backend is `halting`, a batch that waits at the
    gate gives up.
    """

    gate: Gate = field(default_factory=Gate)
    in_batch: bool = False
    halting: bool = False
    failure: BaseException | None = None

    @contextmanager
    def batch(self, number: int) -> Iterator[None]:
        """A batch's turn; what it raises is remembered."""
        while not self.gate.acquire(timeout=PAUSE):
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
