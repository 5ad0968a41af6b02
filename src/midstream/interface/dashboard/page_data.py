"""What the page is told of a job: plain values that JSON has, made of what the checkpoint tells."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from midstream.checkpoint.manifest import Manifest, QueryEntry
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.records import QueryAccount, Settings, Streams
from midstream.checkpoint.retention import RemovedWarning
from midstream.checkpoint.status import migration_record, status_record
from midstream.checkpoint.stored import StoredMigration
from midstream.inputs.json_values import json_value
from midstream.interface.plain_values import is_number, plain
from midstream.optimizer.plan_graph import join_tree

SAMPLES = 40
"""How many dead letters the page shows."""

PREVIEWED = 50
"""How many results of a query the page shows."""

LONGEST_VALUE = 400
"""How many characters of a value of a result the page shows."""

LONGEST_ROW = 2000
"""How many characters of a dead row the page shows."""

Record = dict[str, Any]


def job_summary(job: StoredJob, complete: bool = True) -> Record:
    """A job as of the batch that it was read at; one that is not `complete` is told by the metrics table alone."""
    record = status_record(job)
    summary: Record = plain(
        {
            **record,
            "complete": complete,
            "queries": [{**query, "waits": query["waits_for"]} for query in record["queries"].values()],
            "streams": list(record["streams"].values()),
            "dead_letters": {"rows": job.dead_letter_rows, "samples": _dead(job)},
            "sizes": {**asdict(job.sizes), "checkpoint": job.sizes.checkpoint} if complete else None,
        }
    )
    return summary


def job_summary_at(job: StoredJob, batch: int) -> Record:
    """A job as of an earlier batch: all of it where the manifest is retained, else what the metrics table says."""
    if batch in job.batches:
        return job_summary(job.at(batch))
    table = job.metrics()
    rows = table.filter(pc.equal(table.column("batch_id"), batch)).to_pylist()
    return _from_metrics(job, rows[0]) if rows else job_summary(job)


def _from_metrics(job: StoredJob, row: Mapping[str, Any]) -> Record:
    """What a row of the metrics table tells of a job, as the manifest of that batch would."""
    going = dict(row["migrations"])
    entries, accounts = dict[str, QueryEntry](), dict[str, QueryAccount]()
    for name, plan in dict(row["plans"]).items():
        known = job.manifest.queries.get(name, QueryEntry("", plan))
        graph = job.manifest.account(name).graph if known.plan == plan else None
        entries[name] = replace(known, plan=plan, status="running")
        accounts[name] = QueryAccount(
            results=dict(row["results"]).get(name, 0), graph=None if graph is None else {**graph, "figures": {}}
        )
    streams: Record = {kind: dict(row[kind] or ()) for kind in ("registers", "latest", "rows", "late", "unusable")}
    then = Manifest(
        job.manifest.query_id,
        row["batch_id"],
        settings=Settings(job.name),
        streams=Streams(**streams),
        queries=entries,
        accounts=accounts,
        released=dict(row["released"]),
    )
    summary = job_summary(StoredJob(job.store, then), complete=False)
    for query in summary["queries"]:
        name, new = query["name"], going.get(query["name"])
        if new is not None:
            query["migration"] = plain(migration_record(_then(job, name, query["plan"], new, then.batch_id)))
        query["adaptivity"]["mode"] = "unknown"
    return {**summary, "slots": None, "rates": None, "requests": []}


def _then(job: StoredJob, name: str, old: str, new: str, batch: int) -> StoredMigration:
    """A migration that was under way at an earlier batch, as far as the history tells of it."""
    for past in job.history:
        begun, ended = past.start_batch, past.end_batch
        known = past.query == name and past.new_plan == new and begun is not None and ended is not None
        if known and (begun or 0) <= batch <= (ended or 0):
            return past
    return StoredMigration(name, old, new, "", "under way", "", None, target=join_tree(new))


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
