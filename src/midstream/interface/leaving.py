"""Commands after which something is gone for good: a query, or the job. They return when it is.

A job that does not run cannot be asked; a query is then dropped in its checkpoint, under the lease.
"""

from __future__ import annotations

import time
from typing import Any

from midstream.checkpoint.lease import likely_holder
from midstream.checkpoint.status import is_running
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError
from midstream.interface.asking import asked, checked

PAUSE = 0.2
"""Seconds between two looks at the lease."""


def dropped(checkpoint: str, patience: float, query: str) -> dict[str, Any]:
    """Ends a query of a job, by asking it if it runs; gives its name."""
    from midstream.job.dropping import drop_at_rest

    checked({"command": "drop", "query": query})
    store = CheckpointStore(checkpoint)
    if is_running(store):
        told: dict[str, Any] = asked(checkpoint, patience, command="drop", query=query)
        return told
    if not store.batch_ids():
        raise JobError(f"no job has run at {store.uri}", hint="check the path: it is the job's checkpoint")
    return {"query": query, "batch": drop_at_rest(store, query).batch_id}


def stopped(checkpoint: str, patience: float) -> dict[str, Any]:
    """Stops a running job; returns when its last batch has ended and it has given the checkpoint back."""
    store = CheckpointStore(checkpoint)
    before = likely_holder(store.files)
    told: dict[str, Any] = asked(checkpoint, patience, command="stop")
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
    return {**told, "stopped": True}
