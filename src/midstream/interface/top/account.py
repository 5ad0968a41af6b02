"""What the terminal view tells of a job, as plain values: one object, which `midstream top --json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.stops import Standing
from midstream.checkpoint.stored import StoredMigration, StoredQuery

RECENT = 60
"""How many batches the view shows in its rows of bars."""

Record = dict[str, Any]


def account_of(job: StoredJob) -> Record:
    """A job as of a batch: rates, streams, queries, migrations under way and slots."""
    rates, holder, now, latencies = job.rates(), job.holder, job.standing, job.latencies
    recent = job.metrics(RECENT).to_pylist()[-RECENT:]
    return {
        "name": job.name,
        "checkpoint": job.checkpoint,
        "batch": job.batch,
        "running": now.runs,
        **now.to_json(),
        "holder": None if holder is None else str(holder),
        "finished": job.finished,
        "batch_seconds": rates["batch_seconds"],
        "rows_per_second": sum(rates["rows_per_second"].values()),
        "results_per_second": sum(rates["results_per_second"].values()),
        "state_bytes": job.sizes.state,
        "checkpoint_bytes": job.sizes.checkpoint,
        "commit_bytes": job.sizes.commit,
        "dead_letters": job.dead_letter_rows,
        "streams": [_stream(job, name, rates) for name in job.streams],
        "queries": [
            _query(job, query, rates, now) | {"latency": latencies[query.name]} for query in job.queries.values()
        ],
        "migrations": [_migration(q.migration, q) for q in job.queries.values() if q.migration is not None],
        "slots": _slots(job),
        "recent": {
            "rows": [sum(dict(row["rows"]).values()) for row in recent],
            "seconds": [dict(row["seconds"]).get("batch", dict(row["seconds"]).get("job")) for row in recent],
        },
    }


def _stream(job: StoredJob, name: str, rates: Mapping[str, Any]) -> Record:
    stream = job.streams[name]
    return {
        "name": name,
        "rows": stream.rows,
        "rows_per_second": rates["rows_per_second"].get(name, 0.0),
        "late": stream.late,
        "unusable": stream.unusable,
        "register": stream.register,
        "time": stream.time,
    }


def _query(job: StoredJob, query: StoredQuery, rates: Mapping[str, Any], now: Standing) -> Record:
    waits = job.manifest.streams.waits.get(query.name)
    return {
        "name": query.name,
        "status": now.of_query(query.status),
        "plan": query.plan,
        "plans_of_slots": {str(slot): plan for slot, plan in query.local.items()},
        "time": query.time,
        "results": query.results,
        "results_per_second": rates["results_per_second"].get(query.name, 0.0),
        "behind": behind(job, query),
        "state_rows": sum(state.rows for state in query.states),
        "state_bytes": sum(state.bytes for state in query.states),
        "adaptivity": query.adaptivity.mode,
        "migrating_to": None if query.migration is None else query.migration.new_plan,
        "waits_for": None if waits is None else waits.get("stream"),
        "quarantine": None if query.quarantine is None else query.quarantine.reason,
    }


def behind(job: StoredJob, query: StoredQuery) -> int | None:
    """How far its complete results are behind the newest row of its streams, in ticks; None before there are any."""
    newest = [s.latest for name, s in job.streams.items() if name in query.streams and s.latest is not None]
    if not newest or query.released is None:
        return None
    return max(0, max(newest) - query.released)


def _migration(migration: StoredMigration, query: StoredQuery) -> Record:
    actual = migration.actual
    return {
        "query": query.name,
        "from": migration.old_plan,
        "to": migration.new_plan,
        "strategy": migration.strategy,
        "status": migration.status,
        "start_batch": migration.start_batch,
        "trigger": migration.trigger,
        "progress": progress(migration, query.advanced_to),
        "batches": None if actual is None else actual.batches,
        "seconds": None if actual is None else actual.wall_seconds,
    }


def progress(migration: StoredMigration, reached: int | None) -> float | None:
    """How much of the way to its split time a migration has behind it; None for strategies that have none."""
    begun = None if migration.actual is None else migration.actual.started_at
    if migration.split_time is None or begun is None or reached is None:
        return None
    way = migration.split_time - begun
    return 1.0 if way <= 0 else min(1.0, max(0.0, (reached - begun) / way))


def _slots(job: StoredJob) -> list[Record]:
    slots = job.slots
    return [
        {
            "slot": number,
            "groups": sum(slot == number for slot in slots.routing),
            "rows": slots.rows[number],
            "state_bytes": slots.bytes[number] if number < len(slots.bytes) else 0,
        }
        for number in range(slots.count)
    ]
