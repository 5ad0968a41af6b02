"""The path of a batch without Spark: the driver's batches and the slots' steps, with a shuffle made of NumPy.

Rows reach slots in a random order, as on a cluster. Everything else is what runs on Spark: fragments, state in files,
exchanges, manifests, released results.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from midstream.adaptation.policy import Policy
from midstream.algebra.declarations import Catalog
from midstream.algebra.plan import Relation, streams_of
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.local.cluster import LocalCluster
from midstream.cluster.local.embedded import StreamProgress, batches
from midstream.job.batch import Batch, finished
from midstream.job.commits import Commits
from midstream.job.events import QueryAdded
from midstream.job.flow import committed_batch, concluded, make
from midstream.job.job import Job
from midstream.job.outputs.results import results_of_query
from midstream.job.plans.local_plans import resumed
from midstream.job.queries.running_query import Cutting, RunningQuery
from midstream.job.slots.moving import Move
from midstream.job.state import JobState
from midstream.job.task.exchange import GROUP_BITS, Layout
from midstream.job.task.memory import Memory
from midstream.job.task.reports import Report
from midstream.optimizer.plans import Plan, plan_query

Migrations = Mapping[int, tuple[str, str]]


@contextmanager
def temporary_checkpoint() -> Iterator[Path]:
    """A folder that is removed once no job merges files in it any more, those that were restarted included."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            yield Path(folder)
        finally:
            for thread in threading.enumerate():
                if thread.name == "midstream-merge":
                    thread.join()


class CountingCluster(LocalCluster):
    """Deals rows in a random order, and counts moves of state."""

    moves = 0

    def move(self, move: Move) -> list[Report]:
        self.moves += 1
        return super().move(move)


@dataclass
class Chain:
    """A query run batch by batch on a checkpoint, in this process; a checkpoint with manifests is resumed."""

    relation: Relation
    catalog: Catalog
    folder: Path | str
    slots: int = 2
    plan: Plan | str | None = None
    emit_every: int | None = None
    seed: int = 0
    adaptive: Policy | None = None
    resize: int | None = None
    memory: Memory | None = None
    bits: int = GROUP_BITS
    shuffled: bool = True
    """Whether rows reach slots in a random order, and reports come back with them; files are then safe by that time."""

    @property
    def manifest(self) -> Manifest:
        """The newest manifest, which there is after the first batch."""
        assert self.driver.manifest is not None
        return self.driver.manifest

    def __post_init__(self) -> None:
        self._open()
        self.driver.memory = self.memory or Memory()
        self.driver.state.group_bits = self.bits
        self.driver.open(self.resize)
        manifest = self.driver.manifest
        plan = plan_query(self.relation, None if manifest else self.plan, self.emit_every)
        if manifest and manifest.queries["q"].plan not in ("", plan.text):
            plan = plan_query(self.relation, manifest.queries["q"].plan, self.emit_every)
        self.driver.apply(QueryAdded(self._running(plan)))
        if manifest:
            self.driver.apply(QueryAdded(resumed(self.query, manifest.account("q").plans, self._by_plan)))
        if self.adaptive is not None:
            self.driver.watchers.watch(self.query, self.adaptive)
        names = sorted({s.name for s in streams_of(self.relation)})
        self.driver.streams = {i: self.catalog.streams[name] for i, name in enumerate(names)}
        driver = self.driver
        self.layout = self.driver.arriving = Layout.of(
            {
                port: pa.schema([d.columns.field(c) for c in columns])
                for port, (d, columns) in zip(driver.streams, driver.needed(), strict=True)
            }
        )

    def _open(self) -> None:
        store = CheckpointStore(str(self.folder))
        shuffle = np.random.default_rng(self.seed) if self.shuffled else None
        self.cluster = CountingCluster(store.files, "test", shuffle, threads=1)
        state = JobState(self.slots)
        self.driver = Job(self.cluster, Commits(store, 3), state)

    @property
    def moves(self) -> int:
        """How many moves of state there were."""
        return self.cluster.moves

    def _running(self, plan: Plan) -> RunningQuery:
        known = self.driver.manifest is not None
        cut = {} if self.driver.manifest is None else self.driver.manifest.slots.merging
        merging = frozenset(cut.get("q", ()))
        cutting = Cutting(self.driver.state.routes, known, self.driver.state.group_bits, merging)
        return RunningQuery.of("q", "", plan, self.catalog.functions, cutting, self.emit_every)

    def _by_plan(self, plan: str) -> RunningQuery:
        return self.driver.state.target(self.query, plan_query(self.relation, plan, self.emit_every))

    @property
    def query(self) -> RunningQuery:
        """The query as it runs now."""
        return self.driver.queries["q"]

    @property
    def next_batch(self) -> int:
        """The batch that comes next."""
        return 0 if self.driver.manifest is None else self.driver.manifest.batch_id + 1

    def migrate(self, plan: str, strategy: str, part: str = "auto", slots: Sequence[int] | None = None) -> None:
        """Starts a migration with the next batch, of all slots or of some."""
        self.driver.begin_migration("q", self._by_plan(plan), strategy, "a test", part, slots)

    def cut(self, inputs: Mapping[str, pa.Table], batch_rows: int) -> list[dict[str, pa.RecordBatch]]:
        """The batches of finite inputs."""
        streams = {d.name: StreamProgress(d) for d in self.driver.streams.values()}
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
        """One batch, committed; sinks are not called."""
        driver, number = self.driver, self.next_batch
        if not end:
            driver.begin_decided()
        registers = finished({} if driver.manifest is None else self.manifest.streams.registers, driver.streams)
        at = driver.circumstances("test", number, driver.manifest, number, registers if end else None)
        notes = driver.notes(driver.manifest, number, number, "")
        return driver.perform(committed_batch(driver.state, at, notes), parts)[0]

    def made(self, number: int | None = None) -> Batch:
        """The next batch, before it is run."""
        number = self.next_batch if number is None else number
        at = self.driver.circumstances("test", number, self.driver.manifest, number)
        return self.driver.perform(make(self.driver.state, at))

    def commit(self, batch: Batch) -> None:
        """Commits a batch whose reports are in."""
        notes = self.driver.notes(batch.before, batch.batch_id, batch.batch_id, "")
        self.driver.perform(concluded(self.driver.state, batch, notes))
