"""Attempts at a batch: queries that a value stops are left out of it, if the job may go on without them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import partial

from midstream.errors import InputError, MidstreamError
from midstream.job.actions import Flow, RunSteps
from midstream.job.batch import Batch
from midstream.job.events import QueryStopped
from midstream.job.making import Circumstances, make
from midstream.job.queries.faults import at_fault, named, suspects
from midstream.job.state import JobState

log = logging.getLogger(__name__)


def attempt(state: JobState, at: Circumstances) -> Flow[tuple[JobState, Batch]]:
    """Runs a batch until no query fails in it; gives it, and the state without the queries that were stopped."""
    sifted: frozenset[str] = frozenset()
    while True:
        batch = yield from make(state, at, sifted)
        try:
            yield from _run(batch)
            return state, batch
        except InputError as error:
            failed = yield from at_fault(suspects(batch.reports), error, partial(_failure, batch))
        tried = _sifted_next(state, failed, sifted)
        for name in failed.keys() - tried:
            state = yield QueryStopped(name, batch.batch_id, failed[name])
            log.warning("query %s is in quarantine since batch %d: %s", name, batch.batch_id, failed[name])
        sifted |= tried


def _run(batch: Batch) -> Flow[None]:
    reports, seconds = yield RunSteps(batch)
    if not any(report.error for report in reports) and batch.incoming.reaches.widened(reports):
        reports, more = yield RunSteps(batch)
        seconds += more
    batch.take(reports, seconds)


def _failure(batch: Batch, names: Collection[str]) -> Flow[MidstreamError | None]:
    """What makes some queries of a batch fail by themselves, if anything does."""
    reports, _ = yield RunSteps(batch.only(names))
    suspects(reports)
    return next((report.error for report in reports if report.error is not None), None)


def _sifted_next(state: JobState, failed: Mapping[str, MidstreamError], sifted: frozenset[str]) -> frozenset[str]:
    """Those of the queries that failed for which rows are set aside in the next attempt; the others are stopped."""
    for name, error in failed.items():
        if state.faults.policy(name) == "stop_job":
            raise named(name, error) if len(state.queries) > 1 else error
    return frozenset(n for n in failed if state.faults.policy(n) == "dead_letter" and n not in sifted)
