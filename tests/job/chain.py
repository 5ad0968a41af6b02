"""The path of a batch without Spark: the driver's batches and the slots' steps, with a shuffle made of NumPy.

Rows reach slots in a random order, as on a cluster. Everything else is what runs on Spark: fragments, state in files,
exchanges, manifests, released results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.adaptation.policy import Policy
from midstream.algebra.declarations import Catalog
from midstream.algebra.plan import Relation, streams_of
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.local.embedded import Stream, batches
from midstream.cluster.spark.frames.results import results_of_query
from midstream.distribution.fragments import Route
from midstream.job.batch import Batch, finished
from midstream.job.driver import Driver, needed_columns
from midstream.job.moving import Move
from midstream.job.running_query import MigrationUnderWay, RunningQuery
from midstream.job.task.arrival_hash import arrival_hash
from midstream.job.task.exchange import GROUPS, groups_of
from midstream.job.task.layout import GROUP, PORT, SLOT, Layout
from midstream.job.task.memory import Memory
from midstream.job.task.move_steps import FillStep, SendStep
from midstream.job.task.reports import Report
from midstream.job.task.step import StageStep
from midstream.optimizer.plans import Plan, plan_query

Migrations = Mapping[int, tuple[str, str]]


@dataclass
class Chain:
    """A query run batch by batch on a checkpoint, in this process; a checkpoint with manifests is resumed."""

    relation: Relation
    catalog: Catalog
    folder: Path
    slots: int = 2
    plan: Plan | str | None = None
    emit_every: int | None = None
    seed: int = 0
    adaptive: Policy | None = None
    resize: int | None = None
    memory: Memory | None = None

    @property
    def manifest(self) -> Manifest:
        """The newest manifest, which there is after the first batch."""
        assert self.driver.manifest is not None
        return self.driver.manifest

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.moves = 0
        self.driver = Driver(None, CheckpointStore(str(self.folder)), self.slots, 3)  # type: ignore[arg-type]
        self.driver.memory = self.memory or Memory()
        self.driver.open(self.resize)
        self.driver.run_move = self._move
        manifest = self.driver.manifest
        plan = plan_query(self.relation, None if manifest else self.plan, self.emit_every)
        if manifest and manifest.queries["q"].plan not in ("", plan.text):
            plan = plan_query(self.relation, manifest.queries["q"].plan, self.emit_every)
        self.driver.queries["q"] = self._running(plan)
        if manifest and "q" in manifest.migration:
            self._resume_migration(manifest.migration["q"])
        if self.adaptive is not None:
            self.driver.watchers.watch(self.query, self.adaptive)
        names = sorted({s.name for s in streams_of(self.relation)})
        self.driver.streams = {i: self.catalog.streams[name] for i, name in enumerate(names)}
        driver = self.driver
        self.layout = self.driver.arriving = Layout.of(
            {
                port: pa.schema([d.columns.field(c) for c in needed_columns(driver.queries, d, driver.watchers)])
                for port, d in driver.streams.items()
            }
        )

    def _running(self, plan: Plan) -> RunningQuery:
        known = self.driver.manifest is not None
        query = RunningQuery.of("q", "", plan, self.catalog.functions, self.driver.routes, self.emit_every, known)
        self.driver.routes.update(query.staged.routes)
        return query

    def _resume_migration(self, told: Mapping[str, Any]) -> None:
        target = self.driver.target(self.query, plan_query(self.relation, told["plan"], self.emit_every))
        self.query.migration = MigrationUnderWay.resumed(target, told)

    @property
    def query(self) -> RunningQuery:
        """The query as it runs now."""
        return self.driver.queries["q"]

    @property
    def next_batch(self) -> int:
        """The batch that comes next."""
        return 0 if self.driver.manifest is None else self.driver.manifest.batch_id + 1

    def migrate(self, plan: str, strategy: str, part: str = "auto") -> None:
        """Starts a migration with the next batch."""
        target = self.driver.target(self.query, plan_query(self.relation, plan, self.emit_every))
        self.driver.begin_migration("q", target, strategy, "a test", part)

    def cut(self, inputs: Mapping[str, pa.Table], batch_rows: int) -> list[dict[str, pa.RecordBatch]]:
        """The batches of finite inputs."""
        streams = {d.name: Stream(d) for d in self.driver.streams.values()}
        return list(batches(streams, inputs, batch_rows))

    def run(
        self,
        inputs: Mapping[str, pa.Table],
        batch_rows: int,
        migrations: Migrations | None = None,
        part: str = "auto",
    ) -> pa.Table:
        """All results over finite inputs, from where the checkpoint is; `migrations` are by batch."""
        parts = self.cut(inputs, batch_rows)
        for i in range(self.next_batch, len(parts)):
            if migrations and i in migrations and self.query.migration is None:
                self.migrate(*migrations[i], part)
            self.batch(parts[i])
        self.batch({}, end=True)
        return self.results()

    def results(self) -> pa.Table:
        """What is released by now."""
        manifest = self.driver.manifest
        assert manifest is not None
        return results_of_query(self.driver.files, manifest, "q", self.query.plan)

    def batch(self, parts: Mapping[str, pa.RecordBatch], end: bool = False) -> Batch:
        """One batch, committed."""
        if not end:
            self.driver.begin_decided()
        batch = self.driver._batch("test", self.next_batch, self.driver.manifest)
        if end:
            batch.registers_now = finished(batch.registers, self.driver.streams)
        batch.reports = self._reports(batch.steps(), self._arriving(batch, parts), batch.slots)
        for report in batch.reports:
            if report.error is not None:
                raise report.error
        self.driver._commit(batch, "")
        return batch

    def _arriving(self, batch: Batch, parts: Mapping[str, pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
        """Each slot's rows, in some order."""
        slots: list[list[pa.RecordBatch]] = [[] for _ in range(batch.slots)]
        for port, declaration in self.driver.streams.items():
            rows = parts.get(declaration.name)
            if rows is None or rows.num_rows == 0:
                continue
            route = self.driver.routes.get(declaration.name, Route(None))
            groups = self._groups(route, rows)
            columns = [rows.column(name) for name in self.layout.schemas[port].names]
            fixed = [pa.array(np.full(rows.num_rows, port, np.int32)), pa.array(groups)]
            names = [PORT, GROUP, *(f.name for f in self.layout.columns)]
            table = pa.RecordBatch.from_arrays([*fixed, *self.layout.wide(port, columns, rows.num_rows)], names=names)
            owners = np.where(groups < 0, 0, np.asarray(batch.routing)[groups])
            _deal(self.random, table, owners, slots)
        return slots

    def _groups(self, route: Route, rows: pa.RecordBatch) -> Any:
        if route.is_one_slot:
            return np.full(rows.num_rows, -1, np.int32)
        if route.key is None:
            return self.random.integers(0, GROUPS, rows.num_rows).astype(np.int32)
        return groups_of(arrival_hash([rows.column(name) for name in route.key])).astype(np.int32)

    def _move(self, move: Move) -> list[Report]:
        """A move of state, with the same shuffle."""
        self.moves += 1
        sending, filling = move.steps()
        slots: list[list[pa.RecordBatch]] = [[] for _ in range(max(move.old.slots, move.new.slots))]
        return self._reports([sending, *filling], slots, len(slots))

    def _reports(
        self, steps: Sequence[StageStep | SendStep | FillStep], slots: list[list[pa.RecordBatch]], count: int
    ) -> list[Report]:
        for step in steps:
            given: list[list[pa.RecordBatch]] = [[] for _ in range(count)]
            for slot, arrived in enumerate(slots):
                for rows in step.run(slot, iter(arrived)):
                    if rows.num_rows:
                        _deal(self.random, rows, _owners(rows), given)
            slots = given
        return [Report.from_bytes(note) for rows in slots[0] for note in rows.column("#note").to_pylist()]


def _owners(rows: pa.RecordBatch) -> np.ndarray:
    """The slots that rows go to; what the last step gives goes to the driver."""
    return rows.column(SLOT).to_numpy() if SLOT in rows.schema.names else np.zeros(rows.num_rows, np.int32)


def _deal(random: np.random.Generator, rows: pa.RecordBatch, owners: np.ndarray, slots: list) -> None:
    for slot in np.unique(owners):
        chosen = random.permutation(np.flatnonzero(owners == slot))
        for part in np.array_split(chosen, 2):
            if len(part):
                slots[int(slot)].append(rows.take(pa.array(part)))
