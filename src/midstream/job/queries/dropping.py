"""A query leaves a checkpoint only by its name: in a running job, or while no job runs.

What a program or a job file no longer declares is not dropped by that: it goes on as the checkpoint has it. While no
job runs, the next manifest is the last one without the query, under the lease of the process that drops it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from midstream.checkpoint.lease import Lease
from midstream.checkpoint.manifest import Manifest, QueryEntry
from midstream.checkpoint.names import copy_name, query_of
from midstream.checkpoint.source_batches import of_our_own
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError, MidstreamError, QueryError
from midstream.job.queries.faults import QUARANTINED, resumed
from midstream.job.queries.replacing import mapped

RUNNING = "running"

ALIVE = (RUNNING, QUARANTINED)
"""The states of queries that the job still has."""


def undeclared(manifest: Manifest | None, declared: Collection[str]) -> dict[str, QueryEntry]:
    """The queries that a checkpoint runs and nobody has declared."""
    known = {} if manifest is None else manifest.queries
    return {name: entry for name, entry in known.items() if entry.status in ALIVE and name not in declared}


def cannot_go_on(name: str, entry: QueryEntry, error: MidstreamError) -> JobError:
    """Says that a query of the checkpoint is declared no longer, and cannot go on as it is either."""
    return JobError(
        f"query {name} of the checkpoint is no longer declared and cannot continue: {error.message}",
        detail=f"it is: {entry.cql}; rows that it does not see would be missing in its results",
        hint=f"declare what it needs, or end it by name: --drop {name}, or midstream drop CHECKPOINT {name}",
    )


def without_query(manifest: Manifest, name: str) -> Manifest:
    """The manifest without a query, or without the results of one that was replaced."""
    if name not in manifest.queries:
        known = ", ".join(manifest.queries) or "none"
        raise QueryError(f"there is no query {name}", detail=f"the queries are {known}")
    # A migration's new plan, and a copy by which it is verified, are under the query's name with a sign after it.
    gone = (name, copy_name(name))
    left = mapped(manifest, lambda by_query: {q: value for q, value in by_query.items() if query_of(q) not in gone})
    if manifest.queries[name].status not in ALIVE or manifest.account(name).added is not None:
        return left
    declared, _ = left.asked.texts.get(name, (manifest.queries[name].cql, None))
    return replace(left, asked=replace(left.asked, texts={**left.asked.texts, name: (declared, None)}))


def drop_at_rest(store: CheckpointStore, name: str) -> Manifest:
    """Drops a query of a job that does not run; fails if one does."""
    return _changed_at_rest(store, lambda manifest: without_query(manifest, name))


def resume_at_rest(store: CheckpointStore, name: str) -> Manifest:
    """Takes a query of a job that does not run out of quarantine; fails if one does."""
    return _changed_at_rest(store, lambda manifest: resumed(manifest, name))


def _changed_at_rest(store: CheckpointStore, change: Callable[[Manifest], Manifest]) -> Manifest:
    with Lease.take(store.files, above=store.epoch()) as lease:
        manifest = store.latest()
        if manifest is None:
            raise JobError(
                f"no batch is done at {store.uri}", hint="is this the checkpoint that the job was started with?"
            )
        made = replace(of_our_own(manifest, change(manifest)), epoch=lease.number)
        store.commit(made)
        return made
