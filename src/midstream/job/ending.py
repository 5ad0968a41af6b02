"""Batches of our own, without rows: what waited only for another batch is released, or all streams have ended.

A finished job takes in nothing more. A process that opens its checkpoint gives sinks what they have not had of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.manifest import Manifest, source_batch
from midstream.job.batch import finished
from midstream.job.circumstances import is_finished
from midstream.job.job import Job
from midstream.job.queries.succession import reached_behind_old


def release(job: Job) -> bool:
    """Releases what the registers permit and waited for another batch, and fills windows; false if nothing waits."""
    with job.gate:
        before = job.manifest
        if before is None or is_finished(before) or not _waits(job, before):
            return False
        _batch_of_our_own(job, before, dict(before.streams.registers))
        return True


def release_in_turn(job: Job) -> bool:
    """The same between two batches of a running source; given up, as a batch is, while the session is being stopped."""
    with job.turns.batch(source_batch(job.manifest)):
        return release(job)


def finish(job: Job) -> None:
    """Declares that all streams have ended; of a job that has been finished, ends what that left undone."""
    with job.gate:
        before = job.manifest
        if not is_finished(before):
            registers = finished({} if before is None else before.streams.registers, job.streams)
            _batch_of_our_own(job, before, registers, ended=True)
        else:
            job.deliver(before)


def is_delivered(job: Job) -> bool:
    """Whether the sinks of a finished job have been given its last results."""
    return job.manifest is None or not job.deliveries.owes(job.files, job.manifest, job.commits.epoch)


def _waits(job: Job, before: Manifest) -> bool:
    # Those in quarantine go no further, however many batches come.
    at_work = {name: query for name, query in job.queries.items() if name not in job.state.faults.stopped}
    return any(map(before.fills, at_work)) or any(
        reached_behind_old(before, query, query.reached(before.streams.registers))
        > before.advanced_to.get(name, BEGINNING)
        for name, query in at_work.items()
        if query.migrates or any(own.waits for own in query.plans)
    )


def _batch_of_our_own(job: Job, before: Manifest | None, registers: Mapping[str, int], **more: bool) -> None:
    number, query_id = (0, "") if before is None else (before.batch_id + 1, before.query_id)
    job.run_batch(job.no_rows(), query_id, number, before, source_batch(before), registers, **more)
