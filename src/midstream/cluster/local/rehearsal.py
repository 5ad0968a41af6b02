"""A verified migration in this process: a copy of a query migrates beside it, and both answers are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar

import pyarrow as pa

from midstream.algebra.snapshots_so_far import Comparison
from midstream.errors import MidstreamError
from midstream.migration.history import MigrationRecord
from midstream.migration.protocol import Strategy
from midstream.migration.verified import DIFFERS, FAILED, Stretch, Verified
from midstream.operators.elements import Elements, Ticks
from midstream.optimizer.plans import Plan


class Rehearsed(Protocol):
    """What is asked of a query whose copy migrates."""

    migrations: Any

    @property
    def complete(self) -> int:
        """The instant before which all results are known."""

    def copy(self) -> Self:
        """The same query on states of its own."""

    def feed(self, stream: str, rows: pa.RecordBatch, ticks: Ticks) -> None:
        """Takes rows of a stream with their times."""

    def advance(self, registers: Mapping[str, int]) -> Elements | None:
        """Learns how far the streams are; gives the results that leave because of it."""

    def migrate(self, plan: Plan, strategy: str | Strategy = ..., *, part: str = ..., trigger: str = ...) -> None:
        """Starts to go over to another plan."""

    def table(self, elements: Elements | None) -> pa.Table:
        """Results as users see them."""


Q = TypeVar("Q", bound=Rehearsed)


@dataclass(frozen=True, slots=True)
class WantedMigration:
    """A migration as it was asked for; `verify` is for how many ticks it is to be verified."""

    plan: Plan
    strategy: str | Strategy
    trigger: str
    part: str
    verify: int | None = None


class Rehearsal(Generic[Q]):
    """A copy of a query on its way to another plan, and what is compared."""

    def __init__(self, query: Q, wanted: WantedMigration) -> None:
        assert wanted.verify is not None
        self.wanted = wanted
        self.stretch = Stretch(wanted.verify)
        self.copy: Q = query.copy()
        self.since = query.complete
        self.comparison = Comparison(self.since)
        self.failure: MidstreamError | None = None
        self.copy.migrate(wanted.plan, wanted.strategy, part=wanted.part, trigger=wanted.trigger)

    def feed(self, stream: str, rows: pa.RecordBatch, ticks: Ticks) -> None:
        """Gives the copy what the query is given."""
        if self.failure is None:
            try:
                self.copy.feed(stream, rows, ticks)
            except MidstreamError as error:
                self.failure = error

    def advance(self, registers: Mapping[str, int], query: Q, given: Elements | None) -> MigrationRecord | None:
        """Compares what the query has released with what its copy has; gives the record once there is a verdict."""
        if self.failure is None:
            try:
                self._take(query, given, self.copy.advance(registers))
            except MidstreamError as error:
                self.failure = error
        if self.failure is not None:
            return self._record(FAILED, Verified.failing(self.since, self.comparison.since, self.failure))
        until = min(query.complete, self.copy.complete)
        found = self.comparison.compare(until)
        if not found:
            tick = self.comparison.differs_at
            verified = Verified.differing(self.since, self.comparison.since, found, tick)
            return self._record(DIFFERS, replace(verified, answers=self.comparison.answers))
        if self.stretch.is_over(self.copy.migrations.running is None, self.comparison.since):
            return self._record("done", Verified(self.since, self.comparison.since))
        return None

    def _take(self, query: Q, old: Elements | None, new: Elements | None) -> None:
        if old is not None:
            self.comparison.x.append(query.table(old))
        if new is not None:
            self.comparison.y.append(query.table(new))

    def cancelled(self) -> MigrationRecord:
        """The record of a rehearsal that somebody ended."""
        return self._record("cancelled", Verified(self.since, self.comparison.since))

    def _record(self, outcome: str, verified: Verified) -> MigrationRecord:
        if self.copy.migrations.running is not None:
            self.copy.migrations.close(outcome)
        rehearsed: MigrationRecord = self.copy.migrations.history[-1]
        return replace(rehearsed, outcome=outcome, verified=verified)
