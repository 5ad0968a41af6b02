"""The path of a batch without Spark: the driver's batches and the slots' steps, with a shuffle made of NumPy.

Rows reach slots in a random order, as on a cluster. Everything else is what runs on Spark: fragments, state in files,
exchanges, manifests, released results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.algebra.declarations import Catalog, StreamDeclaration
from midstream.algebra.plan import Relation, streams_of
from midstream.distribution.fragments import Route
from midstream.operators.hashing import hash_columns
from midstream.optimizer.plans import Plan, plan_query
from midstream.runtime.checkpoint.manifest import Manifest
from midstream.runtime.checkpoint.store import CheckpointStore
from midstream.runtime.embedded import Stream, batches
from midstream.runtime.spark.batch import Batch, finished
from midstream.runtime.spark.driver import needed_columns
from midstream.runtime.spark.layout import GROUP, PORT, SLOT, Layout
from midstream.runtime.spark.reports import Report
from midstream.runtime.spark.results import results_of_query
from midstream.runtime.spark.running import RunningQuery
from midstream.runtime.spark.step import GROUPS, StageStep


@dataclass
class Chain:
    """A query run batch by batch on a checkpoint, in this process."""

    relation: Relation
    catalog: Catalog
    folder: Path
    slots: int = 2
    plan: Plan | str | None = None
    emit_every: int | None = None
    seed: int = 0
    manifest: Manifest | None = None
    query: RunningQuery = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.store = CheckpointStore(str(self.folder))
        chosen = plan_query(self.relation, self.plan, self.emit_every)
        self.query = RunningQuery.of("q", "", chosen, self.catalog.functions, {}, self.emit_every)
        names = sorted({s.name for s in streams_of(self.relation)})
        self.streams: dict[int, StreamDeclaration] = {i: self.catalog.streams[name] for i, name in enumerate(names)}
        self.layout = Layout.of(
            {
                port: pa.schema([d.columns.field(c) for c in needed_columns({"q": self.query}, d)])
                for port, d in self.streams.items()
            }
        )

    def run(self, inputs: Mapping[str, pa.Table], batch_rows: int) -> pa.Table:
        """All results over finite inputs."""
        streams = {d.name: Stream(d) for d in self.streams.values()}
        for parts in batches(streams, inputs, batch_rows):
            self.batch(parts)
        self.batch({}, end=True)
        return self.results()

    def results(self) -> pa.Table:
        """What is released by now."""
        assert self.manifest is not None
        return results_of_query(self.store.files, self.manifest, "q", self.query.plan)

    def batch(self, parts: Mapping[str, pa.RecordBatch], end: bool = False) -> Batch:
        """One batch, committed."""
        batch_id = 0 if self.manifest is None else self.manifest.batch_id + 1
        batch = Batch(
            self.store.uri, "test", batch_id, self.manifest, {"q": self.query}, self.streams, self.layout, self.slots
        )
        if end:
            batch.registers_now = finished(batch.registers, self.streams)
        batch.reports = self._reports(batch.steps(), self._arriving(parts))
        for report in batch.reports:
            if report.error is not None:
                raise report.error
        self.store.commit(batch.manifest("", {}))
        self.manifest = self.store.read(batch_id)
        return batch

    def _arriving(self, parts: Mapping[str, pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
        """Each slot's rows, in some order."""
        slots: list[list[pa.RecordBatch]] = [[] for _ in range(self.slots)]
        for port, declaration in self.streams.items():
            rows = parts.get(declaration.name)
            if rows is None or rows.num_rows == 0:
                continue
            route = self.query.staged.routes.get(declaration.name, Route(None))
            groups = self._groups(route, rows)
            columns = [rows.column(name) for name in self.layout.schemas[port].names]
            fixed = [pa.array(np.full(rows.num_rows, port, np.int32)), pa.array(groups)]
            names = [PORT, GROUP, *(f.name for f in self.layout.columns)]
            table = pa.RecordBatch.from_arrays([*fixed, *self.layout.wide(port, columns, rows.num_rows)], names=names)
            owners = np.where(groups < 0, 0, groups * self.slots // GROUPS)
            _deal(self.random, table, owners, slots)
        return slots

    def _groups(self, route: Route, rows: pa.RecordBatch) -> Any:
        if route.is_one_slot:
            return np.full(rows.num_rows, -1, np.int32)
        if route.key is None:
            return self.random.integers(0, GROUPS, rows.num_rows).astype(np.int32)
        # Any hash will do for arrival as long as equal keys agree; another one than that of exchanges, as on Spark.
        hashes = hash_columns([rows.column(name) for name in route.key])
        return np.asarray(hashes & np.uint64(GROUPS - 1)).astype(np.int32)

    def _reports(self, steps: Sequence[StageStep], slots: list[list[pa.RecordBatch]]) -> list[Report]:
        for step in steps:
            given: list[list[pa.RecordBatch]] = [[] for _ in range(self.slots)]
            for slot in range(self.slots):
                for rows in step.run(slot, iter(slots[slot])):
                    if rows.num_rows:
                        _deal(self.random, rows, rows.column(SLOT).to_numpy(), given)
            slots = given
        return [Report.from_bytes(note) for rows in slots[0] for note in rows.column("#note").to_pylist()]


def _deal(random: np.random.Generator, rows: pa.RecordBatch, owners: np.ndarray, slots: list) -> None:
    for slot in np.unique(owners):
        chosen = random.permutation(np.flatnonzero(owners == slot))
        for part in np.array_split(chosen, 2):
            if len(part):
                slots[int(slot)].append(rows.take(pa.array(part)))
