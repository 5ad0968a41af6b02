"""Asking a job for something, wherever people do: the command line and the dashboard ask alike.

A job that does not run cannot be asked. What can then be read in its checkpoint is read there, and what can be done
there is done, under the lease. What ends something returns when it has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from midstream.checkpoint import lease
from midstream.checkpoint.commands import (
    Command,
    CorrectCosts,
    DropQuery,
    ForecastOf,
    ResumeQuery,
    ShowPlan,
    ShowStatus,
    StopJob,
)
from midstream.checkpoint.control import ask
from midstream.checkpoint.lease import is_running, likely_holder
from midstream.checkpoint.status import job_at, status_record
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError
from midstream.interface.stored_plan import stored_plan

PAUSE = 0.2
"""Seconds between two looks at the lease."""


def asked(checkpoint: str, command: Command, patience: float, *, dry_run: bool = False) -> Any:
    """What a job answers to a command; in a dry run, what the command would do."""
    store = CheckpointStore(checkpoint)
    if not dry_run and is_at_rest(store, command):
        return AT_REST[type(command)](store, command)
    if not store.files.list(lease.FOLDER):
        # Asking makes folders, and waits: neither helps where no job has ever run.
        raise no_job(store)
    if isinstance(command, StopJob) and not dry_run:
        return _stopped(store, patience)
    return ask(store.files, (ForecastOf(command) if dry_run else command).to_record(), patience=patience)


def no_job(store: CheckpointStore) -> JobError:
    """Says that there is no checkpoint at a path."""
    return JobError(f"no job has run at {store.uri}", hint="check the path: it is the job's checkpoint")


def is_at_rest(store: CheckpointStore, command: Command) -> bool:
    """Whether the checkpoint alone answers a command: it always tells how far a job is, the rest if no job runs."""
    if isinstance(command, ShowStatus):
        return True
    return type(command) in AT_REST and not is_running(store.files) and bool(store.batch_ids())


def _dropped(store: CheckpointStore, command: DropQuery) -> dict[str, Any]:
    from midstream.job.queries.replacing import drop_at_rest

    return {"query": command.query, "batch": drop_at_rest(store, command.query).batch_id}


def _resumed(store: CheckpointStore, command: ResumeQuery) -> dict[str, Any]:
    from midstream.job.queries.replacing import resume_at_rest

    return {"query": command.query, "batch": resume_at_rest(store, command.query).batch_id}


def _corrected(store: CheckpointStore, command: CorrectCosts) -> dict[str, Any]:
    from midstream.job.queries.replacing import correct_at_rest

    made = correct_at_rest(store, command.factors)
    return {"costs": made.settings.costs, "batch": made.batch_id}


AT_REST: Mapping[type[Command], Callable[[CheckpointStore, Any], dict[str, Any]]] = {
    ShowStatus: lambda store, _: status_record(job_at(store.uri)),
    ShowPlan: lambda store, command: stored_plan(store.uri, command.query),
    DropQuery: _dropped,
    ResumeQuery: _resumed,
    CorrectCosts: _corrected,
    StopJob: lambda store, _: {"stopping": False, "stopped": True},
}
"""The commands that need no running job."""


def _stopped(store: CheckpointStore, patience: float) -> dict[str, Any]:
    """Stops a running job; returns when its last batch has ended and it has given the checkpoint back."""
    before = likely_holder(store.files)
    answer: dict[str, Any] = ask(store.files, StopJob().to_record(), patience=patience)
    until = time.monotonic() + patience
    while (holder := likely_holder(store.files)) is not None:
        if before is None or holder.owner != before.owner:
            break  # the job has ended, and another driver has begun
        if time.monotonic() >= until:
            raise JobError(
                f"the job at {store.uri} stops, and has not ended for {patience:.0f} seconds",
                hint="its last batch takes long; --timeout sets how long to wait",
            )
        time.sleep(PAUSE)
    return {**answer, "stopped": True}
