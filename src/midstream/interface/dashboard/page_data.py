"""What the page is told of a job: plain values that JSON has, made of what the checkpoint tells."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from midstream.checkpoint.plan_graphs import join_tree
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.retention import RemovedWarning
from midstream.checkpoint.stops import JobStanding
from midstream.checkpoint.stored import PlanGraph, StoredMigration, StoredQuery
from midstream.inputs.json_values import json_value
from midstream.interface.plain_values import is_number, plain

SAMPLES = 40
"""How many dead letters the page shows."""

PREVIEWED = 50
"""How many results of a query the page shows."""

LONGEST_VALUE = 400
"""How many characters of a value of a result the page shows."""

LONGEST_ROW = 2000
"""How many characters of a dead row the page shows."""

Record = dict[str, Any]


def job_summary(job: StoredJob) -> Record:
    """A job as of the batch that it was read at."""
    holder, now = job.holder, job.standing
    summary: Record = plain(
        {
            "name": job.name,
            "checkpoint": job.checkpoint,
            "batch": job.batch,
            "batches": list(job.batches),
            "complete": True,
            "running": now.runs,
            **now.to_json(),
            "holder": None if holder is None else str(holder),
            "finished": job.finished,
            "scheduling": job.scheduling,
            "queries": [_query(query, now) | _progress(job, query.name) for query in job.queries.values()],
            "streams": [asdict(stream) for stream in job.streams.values()],
            "slots": asdict(job.slots),
            "requests": [{**asdict(request), "status": request.status} for request in job.requests],
            "dead_letters": {"rows": job.dead_letter_rows, "samples": _dead(job)},
            "rates": asdict(job.rates()),
            "sizes": {**asdict(job.sizes), "checkpoint": job.sizes.checkpoint},
        }
    )
    return summary


def job_summary_at(job: StoredJob, batch: int) -> Record:
    """A job as of an earlier batch: all of it where the manifest is retained, else what the metrics table says."""
    if batch in job.batches:
        return job_summary(job.at(batch))
    table = job.metrics()
    rows = table.filter(pc.equal(table.column("batch_id"), batch)).to_pylist()
    if not rows:
        return job_summary(job)
    summary: Record = plain(_from_metrics(job, rows[0]))
    return summary


def _from_metrics(job: StoredJob, row: Mapping[str, Any]) -> Record:
    now = job.standing
    plans, going = dict(row["plans"]), dict(row["migrations"])
    registers, released = dict(row["registers"]), dict(row["released"])
    queries = []
    for name, plan in plans.items():
        known = job.queries.get(name)
        queries.append(
            {
                "name": name,
                "cql": "" if known is None else known.cql,
                "plan": plan,
                "time": "integer" if known is None else known.time,
                "status": now.of_query("running"),
                "results": dict(row["results"]).get(name, 0),
                "sinks": [],
                "advanced_to": None,
                "released": released.get(name),
                "streams": [] if known is None else known.streams,
                "graph": asdict(_like(known, plan)),
                "migration": _migration(_then(job, name, plan, going[name], row["batch_id"]))
                if name in going
                else None,
                "adaptivity": {"mode": "unknown", "decisions": [], "alternatives": [], "statistics": {}},
                "history": [],
                "states": [],
                "quarantine": None,
                "latency": None,
                "waits": None,
            }
        )
    latest = dict(row["latest"] or ())
    streams = [
        {"name": s.name, "register": registers.get(s.name), "latest": latest.get(s.name), "time": s.time}
        | {kind: dict(row[kind]).get(s.name, 0) for kind in ("rows", "late", "unusable")}
        for s in job.streams.values()
    ]
    return {
        **{name: None for name in ("holder", "slots", "rates", "sizes")},
        "name": job.name,
        "checkpoint": job.checkpoint,
        "batch": row["batch_id"],
        "batches": list(job.batches),
        "complete": False,
        "running": now.runs,
        **now.to_json(),
        "finished": False,
        "scheduling": "",
        "queries": queries,
        "streams": streams,
        "requests": [],
        "dead_letters": {"rows": 0, "samples": []},
    }


def _like(known: StoredQuery | None, plan: str) -> PlanGraph:
    """The operators of a plan if it still runs, without what they do now; else its join tree."""
    if known is None or known.plan != plan:
        return join_tree(plan)
    nodes = ({**asdict(node), "figures": None} for node in known.graph.nodes)
    return PlanGraph(plan, tuple(type(known.graph.nodes[0])(**node) for node in nodes))


def _then(job: StoredJob, name: str, old: str, new: str, batch: int) -> StoredMigration:
    """A migration that was under way at an earlier batch, as far as the history tells of it."""
    for past in job.history:
        begun, ended = past.start_batch, past.end_batch
        known = past.query == name and past.new_plan == new and begun is not None and ended is not None
        if known and (begun or 0) <= batch <= (ended or 0):
            return past
    return StoredMigration(name, old, new, "", "under way", "", None, target=join_tree(new))


def _query(query: StoredQuery, now: JobStanding) -> Record:
    shown = ("name", "cql", "plan", "plans", "time", "results", "advanced_to", "released", "local", "streams", "states")
    adaptivity = asdict(query.adaptivity)
    for decision in adaptivity["decisions"]:
        del decision["record"]
    return {
        **{name: getattr(query, name) for name in shown},
        "status": now.of_query(query.status),
        "quarantine": query.quarantine,
        "graph": asdict(query.graph),
        "adaptivity": adaptivity,
        "migration": _migration(query.migration),
        "history": [_migration(past) for past in query.history],
    }


def _progress(job: StoredJob, query: str) -> Record:
    """How long its results take by the clock, for which stream it waits, and what its sinks are owed."""
    waits, sinks = job.manifest.streams.waits.get(query), [asdict(sink) for sink in job.sinks.get(query, ())]
    return {"latency": job.latencies[query], "waits": waits, "sinks": sinks}


def _migration(migration: StoredMigration | None) -> Record | None:
    if migration is None:
        return None
    forecast, actual, target = migration.forecast, migration.actual, migration.target
    return {
        **migration.values(),
        "forecast": None if forecast is None else asdict(forecast),
        "actual": None if actual is None else {**asdict(actual), "duration": actual.duration},
        "target": None if target is None else asdict(target),
    }


def _dead(job: StoredJob) -> list[Record]:
    rows = job.dead_letters(SAMPLES).to_pylist()
    return [{**row, "row": (row["row"] or "")[:LONGEST_ROW]} for row in rows]


def results_preview(job: StoredJob, query: str) -> Record:
    """The newest released results of a query as texts, newest first; NULL is null."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RemovedWarning)  # the page shows no more than the newest anyway
        table = job.newest_results(query, PREVIEWED)
    columns = [{"name": field.name, "number": is_number(field.type)} for field in table.schema]
    texts = [[_text(value) for value in _values(column)] for column in table.columns]
    return {"query": query, "batch": job.batch, "columns": columns, "rows": list(zip(*texts, strict=True))[::-1]}


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; times as texts, because Python's end with the year 9999."""
    return list((column.cast(pa.string()) if pa.types.is_temporal(column.type) else column).to_pylist())


def _text(value: Any) -> str | None:
    """A value as text: numbers with all their digits, which a browser's numbers lack."""
    if value is None:
        return None
    text = str(value).lower() if isinstance(value, bool) else str(json_value(value))
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
