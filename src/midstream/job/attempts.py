"""Running a batch: queries that a value stops are left out of it, if the job may go on without them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from midstream.errors import InputError, MidstreamError
from midstream.job.batch import Batch
from midstream.job.cluster import Cluster, Rows
from midstream.job.faults import at_fault, named, suspects
from midstream.job.migrating import cancel_migration
from midstream.job.state import JobState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempts:
    """Attempts at a batch; `make` gives it, with rows that cannot be used set aside for some queries."""

    cluster: Cluster
    state: JobState
    make: Callable[[frozenset[str]], Batch]

    def run(self, rows: Rows) -> Batch:
        """The batch, run."""
        sifted: frozenset[str] = frozenset()
        while True:
            batch = self.make(sifted)
            try:
                self._run(batch, rows)
                return batch
            except InputError as error:
                failed = at_fault(suspects(batch.reports), error, partial(self._failure, batch, rows))
            sifted |= self._deal_with(failed, sifted, batch.batch_id)

    def _run(self, batch: Batch, rows: Rows) -> None:
        started = time.perf_counter()
        reports = self.cluster.run(batch, rows)
        if not any(report.error for report in reports) and batch.reaches.widened(reports):
            reports = self.cluster.run(batch, rows)
        batch.take(reports, time.perf_counter() - started)

    def _failure(self, batch: Batch, rows: Rows, names: Collection[str]) -> MidstreamError | None:
        """What makes some queries of a batch fail by themselves, if anything does."""
        reports = self.cluster.run(batch.only(names), rows)
        suspects(reports)
        return next((report.error for report in reports if report.error is not None), None)

    def _deal_with(self, failed: Mapping[str, MidstreamError], sifted: frozenset[str], batch_id: int) -> frozenset[str]:
        """Decides what becomes of queries that failed; gives those for which rows are set aside now."""
        faults, queries = self.state.faults, self.state.queries
        for name, error in failed.items():
            if faults.policy(name) == "stop_job":
                raise named(name, error) if len(queries) > 1 else error
        tried = frozenset(n for n in failed if faults.policy(n) == "dead_letter" and n not in sifted)
        for name in failed.keys() - tried:
            migration = queries[name].migration
            if migration is not None and migration.begun is None:
                cancel_migration(self.state, name)
            faults.stop(name, batch_id, failed[name])
            log.warning("query %s is in quarantine since batch %d: %s", name, batch_id, failed[name])
        return tried
