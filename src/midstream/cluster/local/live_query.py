"""A live query: its execution, and the results waiting for their time.

Results leave in order of `valid_from`, once the frontier has passed it: everything that could still come starts later.
What is emitted but not yet released belongs to the query, not to the plan that computed it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from midstream.adaptation.adaptive import Adaptive
from midstream.algebra.declarations import UserFunction
from midstream.algebra.physical import SourceNode
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.cluster.local.rehearsal import Rehearsal, WantedMigration
from midstream.errors import InputError, MigrationError
from midstream.job.task.ingest import reached, source_elements
from midstream.job.task.results import result_table
from midstream.migration.contents import kept_windows
from midstream.migration.execution import Execution, SingleBox
from midstream.migration.history import MigrationRecord, Recorder
from midstream.migration.in_part import copied, way
from midstream.migration.live_statistics import live_statistics
from midstream.migration.predict import predicted
from midstream.migration.protocol import Decision, Migrating, Situation, Strategy, latest_end, latest_ends
from midstream.migration.registry import strategy_named
from midstream.migration.verified import Verified, can_be_adopted
from midstream.operators.box import Box
from midstream.operators.elements import Elements, Ticks, concatenate
from midstream.operators.ordering import stable_order
from midstream.optimizer.plans import Plan
from midstream.scheduling.schedule import Schedule
from midstream.scheduling.scheduler import Scheduler


class Release:
    """Holds emitted results back until the frontier has passed their start, then gives them in order."""

    def __init__(self) -> None:
        self.waiting: list[Elements] = []

    def __call__(self, batch: Elements) -> None:
        """Takes a batch of emitted results."""
        self.waiting.append(batch.without_hashes())

    def release(self, frontier: int) -> Elements | None:
        """All results that start before the frontier, ordered by start."""
        if not self.waiting:
            return None
        together = concatenate(self.waiting)
        if not bool((together.valid_from[1:] >= together.valid_from[:-1]).all()):
            together = together.take(stable_order(together.valid_from))
        count = int(together.valid_from.searchsorted(frontier)) if frontier < INFINITY else len(together)
        self.waiting = [together.slice(count, len(together) - count)] if count < len(together) else []
        return together.slice(0, count) if count else None


@dataclass(frozen=True, slots=True)
class Running:
    """A migration under way."""

    plan: Plan
    strategy: Strategy
    decision: Decision
    execution: Migrating
    recorder: Recorder
    windows: frozenset[str] | None = None
    """The windows that the old plan keeps as they came, if the new plan's are derived from what the old one keeps."""


class Migrations:
    """The migrations of one query: at most one running, some waiting, and the records of those that have ended."""

    def __init__(self) -> None:
        self.running: Running | None = None
        self.waiting: list[WantedMigration] = []
        self.history: list[MigrationRecord] = []

    def batch(self, frontier: int, released: int) -> None:
        """Notes the end of a batch."""
        if self.running is not None:
            self.running.recorder.batch(frontier, released)

    def close(self, outcome: str) -> None:
        """Ends the running migration's record."""
        assert self.running is not None
        self.history.append(self.running.recorder.close(outcome, self.running.execution.figures))
        self.running = None


class LiveQuery:
    """One query, its execution and its waiting results."""

    def __init__(
        self,
        plan: Plan,
        functions: Mapping[str, UserFunction] | None = None,
        schedule: str | Schedule = "dfs",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plan = plan
        self.functions = dict(functions or {})
        self.clock = clock
        self.release = Release()
        self.frontier = BEGINNING
        self.registers: dict[str, int] = {}
        self.starts: dict[str, int] = {}
        self.firsts: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.batches = 0
        box = Box(plan.physical, self.functions)
        self.execution: Execution = SingleBox(box, self.release, partial(Scheduler, schedule=schedule))
        self.migrations = Migrations()
        self.rehearsal: Rehearsal[LiveQuery] | None = None
        """A copy that goes over to another plan while both are compared."""
        self.own_until = BEGINNING
        """Before this instant its windows may hold less than their ids say; only this query cannot tell."""
        self.adaptive: Adaptive | None = None

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """What it must be fed with now."""
        return self.execution.sources

    @property
    def streams(self) -> frozenset[str]:
        """The streams it reads."""
        return frozenset(source.stream.name for source in self.sources)

    @property
    def history(self) -> tuple[MigrationRecord, ...]:
        """All migrations that have ended."""
        return tuple(self.migrations.history)

    def feed(self, stream: str, rows: pa.RecordBatch, ticks: Ticks) -> None:
        """Takes rows of a stream with their times."""
        if len(ticks) == 0:
            return
        if self.frontier == INFINITY:
            raise InputError(f"the query has ended, rows of stream {stream} come too late")
        self.count(stream, len(ticks), int(ticks.min()), int(ticks.max()))
        for source in self.sources:
            if source.stream.name == stream:
                elements = source_elements(source, rows, ticks)
                if self.adaptive is not None:
                    self.adaptive.take(source.stream.alias, elements, ticks)
                if len(elements):
                    self.execution.feed(source.stream.alias, elements)
        if self.rehearsal is not None:
            self.rehearsal.feed(stream, rows, ticks)

    def count(self, stream: str, rows: int, earliest: int, latest: int) -> None:
        """Notes that rows of a stream have come, and their times."""
        for alias in [source.stream.alias for source in self.sources if source.stream.name == stream]:
            self.starts[alias] = max(self.starts.get(alias, latest), latest)
            self.firsts[alias] = min(self.firsts.get(alias, earliest), earliest)
            self.counts[alias] = self.counts.get(alias, 0) + rows

    def advance(self, registers: Mapping[str, int]) -> Elements | None:
        """Learns how far the streams are; gives the results that leave because of it."""
        self.registers = dict(registers)
        self.batches += 1
        frontier = reached(self.sources, registers)
        if frontier > self.frontier:
            self.frontier = frontier
            self.execution.advance(frontier)
        ended = self._leave_if_done()
        given = self.release.release(self.complete)
        self.migrations.batch(self.frontier, 0 if given is None else len(given))
        if ended:
            self._end()
        if self.rehearsal is not None:
            self._compare(self.rehearsal, given)
        if self.adaptive is not None and self.frontier < INFINITY:
            self.adaptive.after_batch(self)
        return given

    @property
    def complete(self) -> int:
        """The instant before which all results are known."""
        return min(self.frontier, self.execution.passed)

    @property
    def migrating_to(self) -> Plan | None:
        """The plan that it goes over to, or that a copy of it is being verified with."""
        if self.rehearsal is not None:
            return self.rehearsal.wanted.plan
        return None if self.migrations.running is None else self.migrations.running.plan

    def migrate(
        self,
        plan: Plan,
        strategy: str | Strategy = "auto",
        *,
        part: str = "auto",
        trigger: str = "asked for",
        queue: bool = False,
        verify: int | None = None,
    ) -> None:
        """Starts to go over to another plan; while another migration runs, refuses to or waits for its end.

        Only the part in which the plans differ migrates, unless `part` is "whole". The strategy must be legal for both
        plans; with the part "smallest" it is enough that it is legal for the part. With `verify`, a copy migrates, is
        compared for so many ticks more, and takes the query's place if nothing differs.
        """
        wanted = WantedMigration(plan, strategy, trigger, part, verify)
        under_way = self.migrating_to
        if under_way is not None:
            if not queue:
                raise MigrationError(
                    "another migration of this query is running",
                    hint="wait for its end, cancel it, or have this one queued",
                )
            # Refused now: later nobody would receive the error.
            before = self.migrations.waiting[-1].plan if self.migrations.waiting else under_way
            way(_strategy(strategy), before, plan, self.functions, part)
            self.migrations.waiting.append(wanted)
            return
        self._start(wanted)

    def cancel_migration(self) -> None:
        """Goes back to the old plan; nothing is lost. What was queued behind the migration is forgotten."""
        running = self.migrations.running
        if self.rehearsal is not None:
            self.migrations.history.append(self.rehearsal.cancelled())
            self.rehearsal = None
            self.migrations.waiting.clear()
            return
        if running is None:
            raise MigrationError("no migration of this query is running")
        self.execution = running.execution.cancel()
        self.migrations.close("cancelled")
        self.migrations.waiting.clear()

    def copy(self) -> LiveQuery:
        """The same query, as it is, on states of its own; copying costs nothing."""
        assert isinstance(self.execution, SingleBox)
        made = LiveQuery(self.plan, self.functions, clock=self.clock)
        made.execution = self.execution.beside(copied(self.execution.box), made.release)
        made.frontier, made.registers = self.frontier, dict(self.registers)
        made.starts, made.firsts, made.counts = dict(self.starts), dict(self.firsts), dict(self.counts)
        made.batches, made.own_until = self.batches, self.own_until
        made.release.waiting = list(self.release.waiting)
        return made

    def _compare(self, rehearsal: Rehearsal[LiveQuery], given: Elements | None) -> None:
        """Follows a rehearsal; what it ends with is what the query goes on with."""
        record = rehearsal.advance(self.registers, self, given)
        if record is None:
            return
        self.rehearsal = None
        if record.outcome != "done" or can_be_adopted(self.plan, rehearsal.wanted.plan):
            self.migrations.history.append(record)
            if record.outcome == "done":
                self._go_on_as(rehearsal.copy)
            elif self.adaptive is not None:
                self.adaptive.called_off(rehearsal.wanted.plan, f"its verification ended with: {record.outcome}")
            if self.migrations.waiting:
                self._start(self.migrations.waiting.pop(0))
        else:
            self._start(replace(rehearsal.wanted, verify=None), record.verified)

    def _go_on_as(self, copy: LiveQuery) -> None:
        """Goes on with a copy's plan and states; what has been emitted and waits is the same in both."""
        copy.release.waiting = self.release.waiting
        self.release, self.execution, self.plan = copy.release, copy.execution, copy.plan
        self.own_until = copy.own_until

    def _start(self, wanted: WantedMigration, verified: Verified | None = None) -> None:
        if wanted.verify is not None:
            self.rehearsal = Rehearsal(self, wanted)
            return
        plan, strategy, trigger, part = wanted.plan, wanted.strategy, wanted.trigger, wanted.part
        chosen = way(_strategy(strategy), self.plan, plan, self.functions, part)
        assert isinstance(self.execution, SingleBox)
        situation = self.situation(plan)
        decision = chosen.decide(situation)
        name = decision.get("strategy", chosen.name)
        recorder = Recorder(
            trigger, (self.plan.text, plan.text), name, decision.get("split_after"), self.frontier, self.clock
        )
        recorder.part, recorder.verified = decision.get("part"), verified
        recorder.predicted = predicted(name, decision, situation)
        moved = kept_windows(self.execution.box) if name.startswith("moving_state") else None
        migrating = chosen.open(self.execution, Box(plan.physical, self.functions), decision)
        migrating.begin()
        self.execution = migrating
        self.migrations.running = Running(
            plan, chosen, decision, migrating, recorder, None if moved is None else frozenset(moved)
        )
        if self._leave_if_done():
            self._end()

    def situation(self, target: Plan | None = None) -> Situation:
        """Where the query stands, as strategies ask for it."""
        assert isinstance(self.execution, SingleBox)
        registers = {s.stream.alias: self.registers.get(s.stream.name, BEGINNING) for s in self.sources}
        return Situation(
            self.sources,
            self.frontier,
            dict(self.starts),
            registers,
            latest_end(self.execution),
            self.plan,
            target,
            self.functions,
            live_statistics(self.execution.box, self.counts, self.firsts, self.starts, self._batch_ticks),
            latest_ends(self.execution),
        )

    @property
    def _batch_ticks(self) -> float | None:
        if not self.firsts or not self.batches:
            return None
        return max(1.0, (max(self.starts.values()) - min(self.firsts.values())) / self.batches)

    def _leave_if_done(self) -> bool:
        """Goes on with the new plan alone, if the migration has come that far."""
        running = self.migrations.running
        if running is None or not running.execution.done:
            return False
        self.execution = running.execution.finish()
        self.plan = running.plan
        if running.windows is not None and not kept_windows(self.execution.box) <= running.windows:
            self.own_until = max(self.own_until, latest_end(self.execution))
        return True

    def _end(self) -> None:
        self.migrations.close("done")
        if self.migrations.waiting:
            self._start(self.migrations.waiting.pop(0))

    def table(self, elements: Elements | None) -> pa.Table:
        """Results as users see them."""
        return result_table(self.plan, elements)


def _strategy(wanted: str | Strategy) -> Strategy:
    return strategy_named(wanted) if isinstance(wanted, str) else wanted
