"""Commands after which something is gone for good: a query, the rows that one missed, or the job.

They return when it is. A job that does not run cannot be asked; a query is then dropped or resumed in its checkpoint,
under the lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from midstream.checkpoint.lease import likely_holder
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.status import is_running
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError
from midstream.interface.asking import asked, checked

PAUSE = 0.2
"""Seconds between two looks at the lease."""


def dropped(checkpoint: str, patience: float, query: str) -> dict[str, Any]:
    """Ends a query of a job, by asking it if it runs; gives its name."""
    from midstream.job.queries.dropping import drop_at_rest

    return _done("drop", checkpoint, patience, query, drop_at_rest)


def resumed(checkpoint: str, patience: float, query: str) -> dict[str, Any]:
    """Has a query of a job go on without the rows that it missed in quarantine, by asking it if it runs."""
    from midstream.job.queries.dropping import resume_at_rest

    return _done("resume", checkpoint, patience, query, resume_at_rest)


def repaired(checkpoint: str, give_up: bool) -> dict[str, Any]:
    """Puts back what a checkpoint has lost where that can be done; gives what is lost up if asked to."""
    from midstream.job.repairing import repair_at_rest

    store = CheckpointStore(checkpoint)
    if not store.batch_ids():
        raise JobError(f"no job has run at {store.uri}", hint="check the path: it is the job's checkpoint")
    found = repair_at_rest(store, give_up)
    return {
        "restored": list(found.restored),
        "lost": [{"path": store.files.full(output.path), "rows": output.rows} for output in found.lost],
        "given_up": found.given_up,
        "whole": found.is_whole,
    }


def _done(
    command: str, checkpoint: str, patience: float, query: str, at_rest: Callable[[CheckpointStore, str], Manifest]
) -> dict[str, Any]:
    checked({"command": command, "query": query})
    store = CheckpointStore(checkpoint)
    if is_running(store):
        answer: dict[str, Any] = asked(checkpoint, patience, command=command, query=query)
        return answer
    if not store.batch_ids():
        raise JobError(f"no job has run at {store.uri}", hint="check the path: it is the job's checkpoint")
    return {"query": query, "batch": at_rest(store, query).batch_id}


def stopped(checkpoint: str, patience: float) -> dict[str, Any]:
    """Stops a running job; returns when its last batch has ended and it has given the checkpoint back.

    Of a job that does not run there is nothing to stop, and `stopping` is false.
    """
    store = CheckpointStore(checkpoint)
    before = likely_holder(store.files)
    if before is None and store.batch_ids():
        return {"stopping": False, "stopped": True}
    answer: dict[str, Any] = asked(checkpoint, patience, command="stop")
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
