"""The judgement of a chaos run by DuckDB: every snapshot of every query, from the rows that were fed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.algebra.declarations import Catalog
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError
from midstream.inputs import StreamSettings
from midstream.job.outputs.results import results_of_query
from midstream.lab.chaos.job import checkpoint_in, sink_in
from midstream.lab.chaos.queries import COMING, DELIVERED, LONGEST, OTHERWISE, QUERIES, Judged
from midstream.language import parse
from midstream.optimizer.plans import plan_query

BY_TEXT: dict[str, Judged] = {judged.cql: judged for judged in (*QUERIES.values(), *COMING.values(), OTHERWISE)}


def differences(folder: Path, fed: Mapping[str, pa.Table], since: Mapping[str, int]) -> dict[str, str]:
    """What is wrong, by query or its sink; `since` says from which instant on each query is judged."""
    checkpoint = str(checkpoint_in(folder))
    store = CheckpointStore(checkpoint)
    manifest = store.latest()
    if manifest is None:
        raise JobError("the chaos job has committed nothing")
    database = database_of(fed)
    found = {}
    for name, entry in manifest.queries.items():
        if entry.status == "running" and name in since:
            got = _results(store, manifest, name, entry.cql, fed)
            wrong = difference(database, BY_TEXT[entry.cql], got, since[name])
            if wrong is not None:
                found[name] = wrong
            if name in DELIVERED:
                held = _held(folder, name, manifest, got)
                wrong = difference(database, BY_TEXT[entry.cql], held, since[name])
                if wrong is not None:
                    found[f"the sink of {name}"] = wrong
    return found


def _held(folder: Path, name: str, manifest: Manifest, like: pa.Table) -> pa.Table:
    """What the folder of a query's sink has of it; not of one that had its name before."""
    found = [pq.read_table(path, partitioning=None) for path in sorted(sink_in(folder, name).glob("*.parquet"))]
    identity = manifest.account(name).identity
    mine = [table for table in found if json.loads(table.schema.metadata[b"midstream"])["query_identity"] == identity]
    return pa.concat_tables([table.cast(like.schema) for table in mine]) if mine else like[:0]


def empty_database() -> Any:
    """A database in memory; of one thread, since what is judged at a time is small."""
    try:
        import duckdb
    except ImportError as error:
        raise JobError("DuckDB is the judge, and it is missing", hint="pip install duckdb") from error
    return duckdb.connect(config={"threads": 1, "order_by_non_integer_literal": True})


def database_of(fed: Mapping[str, pa.Table], database: Any = None) -> Any:
    """A database with the streams, and the instants from 0 on; the one that is given forgets those it had."""
    database = empty_database() if database is None else database
    for name, table in fed.items():
        database.register(f"{name}_fed", table)
        database.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM {name}_fed")
    last = max(int(table["ts"].to_numpy().max()) for table in fed.values() if table.num_rows)
    database.execute(f"CREATE OR REPLACE TABLE i AS SELECT t FROM range(0, {last + LONGEST + 2}) x(t)")
    return database


def _results(store: CheckpointStore, manifest: Manifest, name: str, cql: str, fed: Mapping[str, pa.Table]) -> pa.Table:
    catalog = Catalog({n: StreamSettings("ts").declaration(n, table.schema) for n, table in fed.items()}, {})
    plan = plan_query(parse(cql, catalog), None, manifest.queries[name].emit_every)
    return results_of_query(store.files, manifest, name, plan)


def difference(database: Any, judged: Judged, got: pa.Table, since: int) -> str | None:
    """How results differ from what DuckDB computes, from an instant on; None if they do not."""
    columns = ", ".join(judged.columns)
    database.register("r_given", got)
    database.execute("CREATE OR REPLACE TABLE r AS SELECT * FROM r_given")
    database.execute(f"CREATE OR REPLACE TABLE e AS SELECT t, {columns} FROM ({judged.sql}) WHERE t >= {since}")
    if judged.is_stream:
        snapshots = f"SELECT ts AS t, {columns} FROM r WHERE ts >= {since}"
    else:
        snapshots = (
            f"SELECT i.t, {columns} FROM i JOIN r ON r.valid_from <= i.t AND (r.valid_to IS NULL OR i.t < r.valid_to)"
            f" WHERE i.t >= {since}"
        )
    database.execute(f"CREATE OR REPLACE TABLE g AS {snapshots}")
    for what, left, right in (("misses", "e", "g"), ("has too much", "g", "e")):
        rows = database.execute(f"SELECT * FROM {left} EXCEPT ALL SELECT * FROM {right} ORDER BY 1 LIMIT 3").fetchall()
        if rows:
            return f"it {what} (t, {columns}): {rows}"
    return None
