"""A job as plain values: `midstream status --json` prints them, running jobs answer them, the dashboard shows them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from midstream.checkpoint.lease import is_running
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.store import CheckpointStore
from midstream.checkpoint.stored import StoredMigration, StoredQuery

SHOWN = (
    *("name", "cql", "plan", "plans", "time", "results", "advanced_to", "released", "local", "streams", "warnings"),
    *("migrating_to", "verifying", "state_rows", "state_bytes", "shared_with"),
)
"""What a query's record has as it is."""


def job_at(checkpoint: str) -> StoredJob:
    """The job at a checkpoint as of its newest batch; one that runs and has done none yet is told as it begins."""
    store = CheckpointStore(checkpoint)
    if not store.batch_ids() and is_running(store.files):
        return StoredJob(store, Manifest("", -1))
    return StoredJob.open(checkpoint)


def status_record(job: StoredJob) -> dict[str, Any]:
    """A job as of its batch."""
    now, manifest, rates = job.standing, job.manifest, job.rates()
    rows, seconds = job.recent()
    return {
        "name": job.name,
        "checkpoint": job.checkpoint,
        "running": now.runs,
        **now.to_json(),
        "holder": None if job.holder is None else str(job.holder),
        "finished": job.finished,
        "batch": job.batch if job.batch >= 0 else None,
        "batches": list(job.batches),
        "slots": asdict(job.slots),
        "scheduling": job.scheduling,
        "links": job.links,
        "streams": {
            name: {**asdict(stream), "rows_per_second": rates.rows_per_second.get(name, 0.0)}
            for name, stream in job.streams.items()
        },
        "queries": {
            name: {**query_record(job, query), "results_per_second": rates.results_per_second.get(name, 0.0)}
            for name, query in job.queries.items()
        },
        "dropped": {name: declared for name, (declared, now) in manifest.asked.texts.items() if now is None},
        "retention": dict(manifest.settings.retention),
        "dead_letters": job.dead_letter_rows,
        "removed_dead_letters": manifest.outputs.removed_dead_letters,
        "given_up": list(manifest.outputs.given_up),
        "requests": [{**asdict(request), "status": request.status} for request in job.requests],
        "last_batch": None if job.last_batch is None else dict(job.last_batch),
        "rates": asdict(rates),
        "recent": {"rows": rows, "seconds": seconds},
    }


def query_record(job: StoredJob, query: StoredQuery) -> dict[str, Any]:
    """A query as of the job's batch."""
    account, waits = query.account, query.waits_for
    return {
        **{name: getattr(query, name) for name in SHOWN},
        "status": job.standing.of_query(query.status),
        "removed": account.removed,
        "added": account.added is not None,
        "waiting": account.waiting,
        "sinks": [asdict(sink) for sink in job.sinks.get(query.name, ())],
        "behind": job.behind(query.name),
        "latency": job.latencies[query.name],
        "states": [asdict(state) for state in query.states],
        "graph": asdict(query.graph),
        "migration": None if query.migration is None else migration_record(query.migration),
        "history": [migration_record(change) for change in query.history],
        "adaptivity": asdict(query.adaptivity),
        "quarantine": None if query.quarantine is None else asdict(query.quarantine),
        "set_aside": 0 if account.set_aside is None else account.set_aside.rows,
        "waits_for": None if waits is None else asdict(waits),
    }


def migration_record(migration: StoredMigration) -> dict[str, Any]:
    """A change of a query: all that was recorded of it, and what is derived of that."""
    forecast, actual = migration.forecast, migration.actual
    return {
        **migration.record,
        **migration.values(),
        "forecast": None if forecast is None else asdict(forecast),
        "actual": None if actual is None else {**asdict(actual), "duration": actual.duration},
    }
