"""Tasks that stay alive between batches leave the same manifests and results as tasks opened anew for every batch."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.job.many import Many
from tests.job.test_sharing import ASKED, CATALOG, rows_at
from tests.profiles import always
from tests.scheduling.watched import table

from midstream.checkpoint.packs import SegmentEntry
from midstream.job.batch import Batch
from midstream.job.events import Scheduled
from midstream.job.task.kept_tasks import KeptTasks
from midstream.job.task.memory import Memory
from midstream.job.task.task import Task
from midstream.scheduling import scheduler

JOINS = [cql for cql in ASKED if cql.count("RANGE") == 3 and "C.v AS u" in cql]
PLANS = ("((A B) C)", "(A (B C))")
STRATEGIES = ("moving_state", "moving_state_paced", "genmig", "parallel_track")


class Forgetful(dict[tuple[int, int], KeptTasks[Any]]):
    """Keeps no tasks."""

    def setdefault(self, key: tuple[int, int], default: KeptTasks[Any]) -> KeptTasks[Any]:
        return default


class Twins:
    """Two jobs that are told the same: one keeps its tasks, the other opens them anew for every batch."""

    def __init__(self, folder: Path, slots: int, seed: int, memory: Memory) -> None:
        self.folder, self.slots, self.seed, self.memory = folder, slots, seed, memory
        self.open()

    def open(self) -> None:
        """Takes both up from their checkpoints."""
        self.both = [
            Many(catalog=CATALOG, folder=self.folder / name, slots=self.slots, seed=self.seed)
            for name in ("kept", "anew")
        ]
        for many in self.both:
            many.driver.memory = self.memory
            many.cluster.shuffle = many.cluster._slots.shuffle = np.random.default_rng(self.seed)
        self.both[1].cluster._tasks = Forgetful()

    def batch(self, rows: dict[str, pa.RecordBatch], end: bool = False) -> None:
        """The same batch for both, which must leave the same behind."""
        kept, anew = ({"work": work_in(many.batch(rows, end)), **manifest_of(many)} for many in self.both)
        assert kept == anew

    def fail(self, rows: dict[str, pa.RecordBatch]) -> None:
        """An attempt at a batch that is not committed."""
        for many in self.both:
            many.cluster.run(many.made(), rows)


def manifest_of(many: Many) -> dict[str, Any]:
    """What a manifest says of state and results, with the drawn part of names left out."""
    manifest = many.manifest
    return {
        "states": {
            (query, fragment, slot): [_entry(entry) for entry in entries]
            for query, fragments in manifest.segments.items()
            for fragment, slots in fragments.items()
            for slot, entries in slots.items()
        },
        "advanced_to": dict(manifest.advanced_to),
        "released": dict(manifest.released),
        "registers": dict(manifest.streams.registers),
        "migration": sorted(n for n, account in manifest.accounts.items() if account.plans.migration),
        "results": {name: many.table(name).to_pydict() for name in many.driver.queries},
    }


def work_in(batch: Batch) -> dict[tuple[object, ...], tuple[object, ...]]:
    """What slots report of a batch, without times."""
    return {
        (report.stage, report.slot, *name): (
            part.rows_in,
            part.rows_out,
            part.work.probed,
            part.work.inserted,
            part.passed,
        )
        for report in batch.reports
        for name, part in report.fragments.items()
    }


def _entry(entry: SegmentEntry) -> tuple[object, ...]:
    bounds = (entry.bucket, entry.born, entry.earliest_from, entry.earliest_to, entry.latest_to)
    file = entry.file.rpartition("-")[0]
    return (entry.state, entry.key, file, entry.offset, entry.rows, *bounds, entry.checksum, entry.hash_from)


@pytest.mark.parametrize("seed", always(1, range(4)))
def test_kept_tasks_leave_the_manifests_and_results_of_tasks_opened_anew(seed, tmp_path, monkeypatch):
    rng = random.Random(seed)
    went_on: Counter[bool] = Counter()
    monkeypatch.setattr(Task, "go_on", _counted(Task.go_on, went_on))
    monkeypatch.setattr(scheduler, "TUPLE_ROWS", 2)
    # Every other job has so little memory that what is kept in memory is mapped after most batches.
    twins = Twins(tmp_path, 1 + seed % 3, seed, Memory(2**12) if seed % 2 else Memory())
    first = (JOINS[0], *rng.sample(ASKED[:9], 3))
    for many in twins.both:
        for i, cql in enumerate(first):
            many.add(f"q{i}", cql)
    for step in range(4, 20):
        _happens(rng, twins, step)
        # A stream that is silent holds the frontier up: an attempt then differs from the last batch by its rows alone.
        drawn = {name: rows for name, rows in rows_at(rng, 3 * step).items() if rng.random() < 0.7}
        rows = {name: table(some).combine_chunks().to_batches()[0] for name, some in drawn.items()}
        if rng.random() < 0.4:
            twins.fail(rows)
        twins.batch(rows)
    twins.batch({}, end=True)
    assert went_on.total() > 10


def _happens(rng: random.Random, twins: Twins, step: int) -> None:
    """Something that may befall a job between two batches."""
    kept, anew = twins.both
    what = rng.choice(["add", "drop", "schedule", "migrate", "restart", "route", *["nothing"] * 6])
    names = sorted(kept.driver.queries)
    if what == "add":
        cql = rng.choice(ASKED)
        for many in twins.both:
            many.add(f"q{step}", cql)
    elif what == "drop" and len(names) > 1:
        name = rng.choice(names)
        for many in twins.both:
            many.drop(name)
    elif what == "schedule":
        table_name = rng.choice(["dfs", "bfs", "rr", "batch:2", "chain"])
        for many in twins.both:
            many.driver.apply(Scheduled(table_name))
    elif what == "migrate" and step > 4 and "q0" in names and kept.driver.queries["q0"].migration is None:
        plan = next(plan for plan in PLANS if plan != kept.driver.queries["q0"].plan.text)
        strategy = rng.choice(STRATEGIES)
        for many in twins.both:
            many.migrate_query("q0", plan, strategy)
    elif what == "restart" and step > 4:
        twins.open()
    elif what == "route" and step > 4:
        slots = rng.choice([1, 2, 3])
        for many in twins.both:
            many.driver.rescale(slots)


def _counted(go_on: Any, went_on: Counter[bool]) -> Any:
    """Counts how often tasks go on, those of a shared graph and others."""

    def counted(self: Task, *arguments: Any) -> None:
        went_on[self.work.shares] += 1
        go_on(self, *arguments)

    return counted
