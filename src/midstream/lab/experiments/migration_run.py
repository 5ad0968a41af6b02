"""One run of a query on a virtual processor, with or without a migration, observed after every step of time.

The boxes and strategies are the engine's own. The input comes in steps of application time. Either the processor keeps
up (`pace="application"`), or arrivals wait until it has time for them (`"virtual"`), or all input is there from the
start (`"saturated"`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Literal

import numpy as np
import pyarrow as pa

from midstream.algebra.time import BEGINNING
from midstream.api import ask
from midstream.cluster.local.live_query import Release
from midstream.job.task.ingest import source_elements
from midstream.lab.experiments.virtual_processor import (
    Counts,
    VirtualProcessor,
    combined,
    moved,
    recomputation,
    values,
)
from midstream.migration.execution import Execution, SingleBox
from midstream.migration.moving_state_paced import PacedMove
from midstream.migration.protocol import Decision, Migrating, Situation, Strategy, latest_end
from midstream.operators.base import Operator
from midstream.operators.box import Box
from midstream.operators.elements import Elements, Ticks, concatenate, concatenate_batches, empty_batch
from midstream.optimizer.plans import Plan, plan_query

Pace = Literal["application", "virtual", "saturated"]


@dataclass(frozen=True, slots=True)
class Workload:
    """A query over finite streams by time, in milliseconds; `ends` are the ends of its batches."""

    query: str
    streams: Mapping[str, pa.Table]
    ends: Sequence[int]

    def plan(self, shape: str) -> Plan:
        """The query's plan of a shape."""
        return plan_query(ask(self.query, self.streams).plan, shape)

    def batches(self) -> Iterator[tuple[int, dict[str, tuple[pa.RecordBatch, Ticks]]]]:
        """For each step its end and the rows of each stream that come in it."""
        rows = {name: _one_batch(table) for name, table in self.streams.items()}
        ticks = {name: batch.column("ts").to_numpy() for name, batch in rows.items()}
        for start, end in pairwise([0, *self.ends]):
            parts = {}
            for name, batch in rows.items():
                low, high = np.searchsorted(ticks[name], [start, end])
                if low < high:
                    parts[name] = batch.slice(low, high - low), ticks[name][low:high]
            yield end, parts

    def arrived(self, moment: float) -> int:
        """How many rows have come before a moment."""
        return sum(int(np.searchsorted(t.column("ts").to_numpy(), moment)) for t in self.streams.values())


def every(step: int, end: int) -> list[int]:
    """The ends of batches of equal length.

    >>> every(5, 15)
    [5, 10, 15]
    """
    return list(range(step, end + 1, step))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.to_batches()
    return concatenate_batches(batches) if batches else empty_batch(table.schema)


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen after a step: times, results that left with it, and what is held."""

    application: int
    virtual: float
    released: int
    values: int
    combined: int
    waiting: int
    extra: int


@dataclass(slots=True)
class Migrated:
    """When a migration began and ended, what was decided, and how long a standstill it cost.

    `moved` is what was done for it while the old box went on, `moved_in_a_step` the most time that took in one step.
    """

    decision: Decision
    starts: dict[str, int]
    started: int
    started_virtual: float
    recomputed: Counts = Counts()
    standstill: float = 0.0
    combined_at_standstill: int = 0
    moved: Counts = Counts()
    moved_in_a_step: float = 0.0
    ended: int | None = None
    ended_virtual: float | None = None

    @property
    def duration(self) -> int:
        """How much application time it took."""
        return (self.ended if self.ended is not None else self.started) - self.started


@dataclass(slots=True)
class Observed:
    """All that a run showed."""

    samples: list[Sample] = field(default_factory=list)
    migration: Migrated | None = None
    results: list[Elements] = field(default_factory=list)

    def series(self, name: str) -> list[float]:
        """One field of all samples."""
        return [float(getattr(sample, name)) for sample in self.samples]

    def cumulative(self) -> list[int]:
        """How many results had left by each sample."""
        return list(accumulate(sample.released for sample in self.samples))

    def answer(self) -> list[tuple[object, ...]]:
        """All results with their validity, sorted: what no strategy may change."""
        if not self.results:
            return []
        together = concatenate(self.results)
        columns = [column.to_pylist() for column in together.columns.columns]
        return sorted(zip(*columns, together.valid_from.tolist(), together.valid_to.tolist(), strict=True))

    def longest_silence(self, clock: str, start: float, end: float) -> float:
        """The longest time without a result between two moments of a clock."""
        heard = [float(getattr(s, clock)) for s in self.samples if s.released]
        edges = [start, *(moment for moment in heard if start < moment <= end), end]
        return max(later - earlier for earlier, later in pairwise(edges))


@dataclass(frozen=True, slots=True)
class Change:
    """A migration to be started once the run's clock has reached a moment."""

    at: int
    shape: str
    strategy: Strategy


class Run:
    """Takes a workload through a plan, and through a change of plan if there is one."""

    def __init__(
        self, workload: Workload, shape: str, processor: VirtualProcessor, pace: Pace, change: Change | None = None
    ) -> None:
        self.workload, self.pace, self.change = workload, pace, change
        self.processor = processor
        self.plan = workload.plan(shape)
        self.release = Release()
        box = Box(self.plan.physical, {})
        self.execution: Execution = SingleBox(box, self.release, self.processor.schedule)
        self.migrating: Migrating | None = None
        self.observed = Observed()
        self.frontier = BEGINNING
        self.starts: dict[str, int] = {}
        self.taken = 0
        self.moving = 0.0
        self.held = 0

    def run(self) -> Observed:
        """Runs to the end of the input."""
        for end, parts in self.workload.batches():
            if self.pace == "virtual":
                self.processor.idle_until(end)
            self._start_if_due()
            self._step(end, parts)
        return self.observed

    def _step(self, end: int, parts: Mapping[str, tuple[pa.RecordBatch, Ticks]]) -> None:
        self.moving = 0.0
        for source in self.execution.sources:
            if source.stream.name in parts:
                rows, ticks = parts[source.stream.name]
                self.starts[source.stream.alias] = int(ticks[-1])
                self.taken += len(ticks)
                self.execution.feed(source.stream.alias, source_elements(source, rows, ticks))
        self.frontier = end
        self.execution.advance(end)
        if self.observed.migration is not None:
            longest = max(self.observed.migration.moved_in_a_step, self.moving)
            self.observed.migration.moved_in_a_step = longest
        self._charge_held_back()
        self._finish_if_done()
        given = self.release.release(min(end, self.execution.passed))
        if given is not None:
            self.observed.results.append(given)
        self._sample(0 if given is None else len(given))

    def _charge_held_back(self) -> None:
        """A result that is held back is inserted into a buffer."""
        if self.migrating is not None:
            held = sum(state.rows for name, state in self.migrating.named_states() if name.startswith("held/"))
            self.processor.charge(Counts(inserts=max(0, held - self.held)))
            self.held = held

    def _start_if_due(self) -> None:
        if self.change is None or self.observed.migration is not None:
            return
        clock = self.processor.now if self.pace == "virtual" else self.frontier
        if clock >= self.change.at:
            self._start(self.change)

    def _start(self, change: Change) -> None:
        plan = self.workload.plan(change.shape)
        change.strategy.refuse(self.plan, plan, {})
        old = self.execution
        assert isinstance(old, SingleBox)
        registers = {alias: self.frontier for alias in self.starts}
        situation = Situation(old.sources, self.frontier, dict(self.starts), registers, latest_end(old))
        decision = change.strategy.decide(situation)
        new = Box(plan.physical, {})
        self.migrating = change.strategy.open(old, new, decision)
        self.observed.migration = Migrated(decision, dict(self.starts), self.frontier, self.processor.now)
        if isinstance(self.migrating, PacedMove):
            self.migrating.move.on_work = self._charge_move
        self.migrating.begin()
        if self.migrating.done:
            self._stand_still(old.box, new, self.observed.migration)
        self.execution = self.migrating
        self._finish_if_done()

    def _charge_move(self, operator: Operator, port: int, rows: int, joins: bool) -> None:
        """What is moved while the old box goes on is done on the same processor."""
        assert self.observed.migration is not None
        work = moved(operator, port, rows, joins)
        self.observed.migration.moved += work
        self.moving += self.processor.costs.of(work)
        self.processor.charge(work)

    def _stand_still(self, old: Box, new: Box, migration: Migrated) -> None:
        """A migration that is over when it has begun did all its work in between, while nothing else ran."""
        work = recomputation(old, new, self.frontier)
        migration.recomputed = work
        migration.standstill = self.processor.costs.of(work)
        migration.combined_at_standstill = sum(combined(box.states(), self.frontier) for box in (old, new))
        self.processor.charge(work)

    def _finish_if_done(self) -> None:
        if self.migrating is None or not self.migrating.done:
            return
        self.execution = self.migrating.finish()
        self.migrating = None
        assert self.observed.migration is not None
        self.observed.migration.ended = self.frontier
        self.observed.migration.ended_virtual = self.processor.now

    def _sample(self, released: int) -> None:
        states = list(self.execution.states())
        now = self.processor.now
        self.observed.samples.append(
            Sample(
                application=self.frontier,
                virtual=now,
                released=released,
                values=values(states, self.frontier),
                combined=combined(states, self.frontier),
                waiting=self.workload.arrived(now) - self.taken if self.pace == "virtual" else 0,
                extra=self._extra(),
            )
        )

    def _extra(self) -> int:
        """Values held for the migration's sake: all that is not the old box's."""
        if self.migrating is None:
            return 0
        named = self.migrating.named_states()
        return values((state for name, state in named if not name.startswith("old/")), self.frontier)
