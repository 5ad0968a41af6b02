"""Jobs for the dashboard's tests: real batches, real migrations, no Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.job.served import Served

from midstream.adaptation.policy import Policy
from midstream.api import ask
from midstream.checkpoint.file_entries import MetricsFile
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.metrics import table_of
from midstream.checkpoint.names import METRICS, name_for
from midstream.checkpoint.store import CheckpointStore

SECOND = 1_000_000
START = 1_767_225_600 * SECOND
JOIN = (
    "SELECT O.id AS order_id, P.amount, S.carrier "
    "FROM orders [RANGE 20 SECONDS] AS O, payments [RANGE 20 SECONDS] AS P, "
    "shipments [RANGE 20 SECONDS] AS S WHERE O.id = P.id AND P.id = S.id AND P.amount > 5"
)
TOTAL = "SELECT carrier, COUNT(*) AS n FROM shipments [RANGE 30 SECONDS] GROUP BY carrier"
LARGE = "SELECT id, amount FROM payments [RANGE 10 SECONDS] WHERE amount > 80"
OLD, NEW = "((O P) S)", "(O (P S))"
EAGER = Policy("suggest", warm_up=2, patience=1)


def orders(seconds: int = 120, seed: int = 4) -> dict[str, pa.Table]:
    """Orders, payments and shipments, of which some payments come too late."""
    random = np.random.default_rng(seed)

    def table(rate: int, **columns: Any) -> pa.Table:
        ticks = START + np.sort(random.integers(0, seconds * SECOND, rate * seconds))
        ids = (ticks - START) // SECOND * 7 + random.integers(0, 40, len(ticks))
        return pa.table({"id": ids, **{n: make(len(ticks)) for n, make in columns.items()}, "ts": _times(ticks)})

    return {
        "orders": table(12),
        "payments": table(15, amount=lambda n: np.round(random.gamma(2.0, 18.0, n), 2)),
        "shipments": table(9, carrier=lambda n: random.choice(["north", "harbour", "rail"], n)),
    }


def _times(ticks: np.ndarray) -> pa.Array:
    return pa.array(ticks, pa.timestamp("us"))


def shop(folder: Path, slots: int = 3) -> Served:
    """A job of three queries, one of which watches its streams; nothing has run yet."""
    job = Served(catalog=ask(JOIN, orders(1)).catalog, folder=folder, slots=slots)
    job.driver.commits.retained = 40
    job.add("matches", JOIN, wanted=OLD)
    job.driver.watchers.watch(job.driver.queries["matches"], EAGER)
    job.add("by-carrier", TOTAL)
    job.add("large", LARGE)
    return job


def batches(seconds: int = 120, rows: int = 150) -> list[dict[str, pa.RecordBatch]]:
    """The rows of a shop, batch by batch; every tenth batch has a payment from long ago."""
    tables = orders(seconds)
    cut = []
    edges = np.arange(0, seconds + 1, 4) * SECOND + START
    for i, (since, until) in enumerate(zip(edges, edges[1:], strict=False)):
        part = {}
        for name, table in tables.items():
            ticks = table.column("ts").to_numpy().astype("int64")
            part[name] = table.filter(pa.array((ticks >= since) & (ticks < until)))
        if i % 10 == 9:
            late = part["payments"].slice(0, 1).set_column(2, "ts", _times(np.array([START])))
            part["payments"] = pa.concat_tables([part["payments"], late])
        cut.append({name: table.combine_chunks().to_batches()[0] for name, table in part.items() if table.num_rows})
    return cut


def with_long_history(folder: Path, batches_done: int) -> None:
    """Adds many past batches to the metrics table of a checkpoint, and commits."""
    store = CheckpointStore(str(folder))
    newest = store.latest()
    assert newest is not None
    row = newest.outputs.recent[-1]
    rows = [
        {
            **row,
            "batch_id": i,
            "at": row["at"] - (batches_done - i) * 2.0,
            "rows": {name: int(n * (1 + 0.3 * np.sin(i / 90))) for name, n in row["rows"].items()},
        }
        for i in range(batches_done)
    ]
    path = name_for(METRICS, batches_done, 0, 0)
    sink = pa.BufferOutputStream()
    pq.write_table(table_of(rows), sink)
    store.files.write_atomic(path, sink.getvalue(), point="metrics")
    recent = [{**row, "batch_id": batches_done}]
    files = [MetricsFile(path, batches_done, 0, batches_done - 1)]
    store.commit(replace(newest.with_outputs(recent=recent, metrics=files), batch_id=batches_done))


def with_large_counts(folder: Path) -> None:
    """Has a checkpoint tell of many late and unusable rows, and commits."""
    store = CheckpointStore(str(folder))
    newest = store.latest()
    assert newest is not None
    changed = newest.with_streams(late={"orders": 987_654_321}, unusable={"payments": 123_456})
    store.commit(replace(changed, batch_id=newest.batch_id + 1))


def with_wide_plan(folder: Path, operators: int) -> Manifest:
    """Has a checkpoint tell of a plan with many operators: a deep tree of joins."""
    store = CheckpointStore(str(folder))
    newest = store.latest()
    assert newest is not None
    nodes, joins = [], (operators - 1) // 2
    for i in range(joins):
        last = i == joins - 1
        feeding = [f"0.s{i}", f"0.s{joins}" if last else f"0.{i + 1}"]
        nodes.append(_node(f"0.{i}", "HashJoin", f"Join on A{i}.k = A{i + 1}.k", feeding))
    nodes += [_node(f"0.s{i}", "Source", f"Source A{i} [RANGE 100]", [], stream=f"A{i}") for i in range(joins + 1)]
    random = np.random.default_rng(1)
    figures = {
        n["id"]: [int(v) for v in random.integers(1, 10_000, 2)] + [float(random.random()), 10, 1000] for n in nodes
    }
    graph = {**(newest.account("matches").graph or {}), "nodes": nodes, "figures": figures}
    changed = replace(newest.with_account("matches", graph=graph), batch_id=newest.batch_id + 1)
    store.commit(changed)
    return changed


def _node(name: str, kind: str, label: str, inputs: list[str], stream: str | None = None) -> dict[str, Any]:
    told = {"id": name, "kind": kind, "label": label, "stage": 0, "content": name, "inputs": inputs}
    return told if stream is None else {**told, "stream": stream}
