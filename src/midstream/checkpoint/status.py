"""A job's progress as plain values, which `midstream status --json` prints and a running job answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from midstream.checkpoint.lease import is_running
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.store import CheckpointStore
from midstream.checkpoint.stored import StoredMigration, StoredQuery


def job_at(checkpoint: str) -> StoredJob:
    """The job at a checkpoint as of its newest batch; one that runs and has done none yet is told as it begins."""
    store = CheckpointStore(checkpoint)
    if not store.batch_ids() and is_running(store.files):
        return StoredJob(store, Manifest("", -1))
    return StoredJob.open(checkpoint)


def status_record(job: StoredJob) -> dict[str, Any]:
    """How far a job is, as of its batch."""
    now, manifest, slots, rates = job.standing, job.manifest, job.slots, job.rates()
    rows, seconds = job.recent()
    requests = [{**asdict(request), "status": request.status} for request in job.requests]
    return {
        "name": job.name,
        "checkpoint": job.checkpoint,
        "running": now.runs,
        **now.to_json(),
        "holder": None if job.holder is None else str(job.holder),
        "finished": job.finished,
        "batch": job.batch if job.batch >= 0 else None,
        "slots": slots.count,
        "slots_hold": [
            {"groups": slots.routing.count(slot), "rows": rows, "state_bytes": held}
            for slot, (rows, held) in enumerate(zip(slots.rows, slots.bytes, strict=True))
        ],
        "spread": [asdict(group) for group in slots.spread],
        "key_classes": [asdict(known) for known in slots.key_classes],
        "slot_decisions": list(slots.decisions),
        "moves": [move.record for move in slots.moves],
        "moving": None if slots.moving is None else asdict(slots.moving),
        "scheduling": job.scheduling,
        "links": job.links,
        "streams": {
            name: {**asdict(stream), "rows_per_second": rates.rows_per_second.get(name, 0.0)}
            for name, stream in job.streams.items()
        },
        "queries": {
            name: {**_query(job, query), "results_per_second": rates.results_per_second.get(name, 0.0)}
            for name, query in job.queries.items()
        },
        "dropped": {name: declared for name, (declared, now) in manifest.asked.texts.items() if now is None},
        "retention": dict(manifest.settings.retention),
        "dead_letters": job.dead_letter_rows,
        "removed_dead_letters": manifest.outputs.removed_dead_letters,
        "given_up": list(manifest.outputs.given_up),
        "requests": {
            "waiting": [request for request in requests if request["status"] == "waiting"],
            "done": [request for request in requests if request["status"] in ("done", "refused")],
        },
        "last_batch": None if job.last_batch is None else dict(job.last_batch),
        "rates": asdict(rates),
        "recent": {"rows": rows, "seconds": seconds},
    }


def _query(job: StoredJob, query: StoredQuery) -> dict[str, Any]:
    under_way = [] if query.migration is None else [query.migration]
    decisions = query.decisions
    adaptivity = {
        "mode": query.adaptivity.mode,
        "decision": decisions[-1].record if decisions else None,
    }
    return {
        "cql": query.cql,
        "plan": query.plans,
        "status": query.status,
        "migrating_to": query.migrating_to,
        "verifying": None if query.verifying is None else {"plan": query.verifying},
        "removed": query.account.removed,
        "added": query.account.added is not None,
        "results": query.results,
        "waiting": query.account.waiting,
        "sinks": [asdict(sink) for sink in job.sinks.get(query.name, ())],
        "time": query.time,
        "released": query.released,
        "behind": job.behind(query.name),
        "latency": job.latencies[query.name],
        "state_rows": query.state_rows,
        "state_bytes": query.state_bytes,
        "history": [_change(change) for change in (*query.history, *under_way)],
        "adaptivity": adaptivity,
        "quarantine": None if query.quarantine is None else asdict(query.quarantine),
        "set_aside": 0 if query.account.set_aside is None else query.account.set_aside.rows,
        "waits_for": None if query.waits_for is None else asdict(query.waits_for),
        "shared_with": dict(query.shared_with),
        "warnings": list(query.warnings),
    }


def _change(change: StoredMigration) -> dict[str, Any]:
    return {**change.values(), "target": None, **change.record}
