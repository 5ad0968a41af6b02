"""Runs a query over signed tuples, and answers it as the interval representation does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from midstream.algebra.declarations import Catalog, UserFunction
from midstream.algebra.plan import Relation, ToStream
from midstream.algebra.time import BEGINNING
from midstream.cluster.finite_run import FiniteRun
from midstream.cluster.local.embedded import played, streams_read
from midstream.cluster.local.planned_changes import PlannedChange, planned_changes
from midstream.errors import MigrationError
from midstream.job.task.ingest import reached, report, source_elements
from midstream.job.task.results import result_table
from midstream.lab.papers.positive_negative.signed_box import SignedBox
from midstream.lab.papers.positive_negative.signed_genmig import SignedGenMig
from midstream.lab.papers.positive_negative.signs import intervals, repeated
from midstream.migration.history import MigrationRecord, Recorder
from midstream.migration.split import split_after
from midstream.operators.elements import Elements, Ticks, concatenate
from midstream.operators.ordering import total_order
from midstream.optimizer.plans import Plan, plan_query

STRATEGIES = ("genmig", "auto")


class SignedQuery:
    """One query over signed tuples; its answer is put together from the signs when it has ended."""

    def __init__(self, plan: Plan, functions: Mapping[str, UserFunction] | None = None) -> None:
        self.plan = plan
        self.functions = dict(functions or {})
        self.output: list[Elements] = []
        self.execution: SignedBox | SignedGenMig = SignedBox(plan.physical, self.functions, self.output.append)
        self.starts: dict[str, int] = {}
        self.registers: dict[str, int] = {}
        self.waiting: list[tuple[Plan, str]] = []
        self.target: Plan | None = None
        self.recorder: Recorder | None = None
        self.history: list[MigrationRecord] = []

    def feed(self, stream: str, rows: pa.RecordBatch, ticks: Ticks) -> None:
        """Takes rows of a stream with their times."""
        for source in self.execution.sources:
            if source.stream.name == stream and len(ticks):
                alias = source.stream.alias
                self.starts[alias] = max(self.starts.get(alias, BEGINNING), int(ticks.max()))
                self.execution.feed(alias, source_elements(source, rows, ticks))

    def advance(self, registers: Mapping[str, int]) -> None:
        """Learns how far the streams are."""
        self.registers = dict(registers)
        before, frontier = len(self.output), reached(self.execution.sources, registers)
        self.execution.advance(frontier)
        if isinstance(self.execution, SignedGenMig):
            assert self.target is not None and self.recorder is not None
            self.recorder.batch(frontier, len(self.output) - before)
            if self.execution.done:
                self.history.append(self.recorder.close("done", self.execution.figures))
                self.execution = self.execution.finish()
                self.plan = self.target
                if self.waiting:
                    self.migrate(*self.waiting.pop(0))

    def migrate(self, plan: Plan, trigger: str = "asked for") -> None:
        """Goes over to another plan; waits for the end of a migration under way."""
        if isinstance(self.execution, SignedGenMig):
            self.waiting.append((plan, trigger))
            return
        registers = {s.stream.alias: self.registers.get(s.stream.name, BEGINNING) for s in self.execution.sources}
        last = split_after(self.execution.sources, self.starts, registers)
        self.target = plan
        plans = self.plan.text, plan.text
        self.recorder = Recorder(trigger, plans, "genmig", last, self.execution.frontier, time.monotonic)
        self.execution = SignedGenMig(self.execution, partial(SignedBox, plan.physical, self.functions), last)

    def table(self) -> pa.Table:
        """The whole answer, as the interval representation gives it."""
        if not self.output:
            return result_table(self.plan, None)
        given = concatenate(self.output)
        elements = repeated(given) if isinstance(self.plan.query, ToStream) else intervals(given)
        order = total_order(elements.columns, [elements.valid_from, elements.valid_to])
        return result_table(self.plan, elements if order is None else elements.take(order))


def run_signed(plan_of: Relation, inputs: Mapping[str, pa.Table], catalog: Catalog, how: FiniteRun) -> pa.Table:
    """Runs a query over finite tables in the positive-negative representation."""
    require_signed([change.strategy for change in how.migrations])
    if any(change.verify is not None for change in how.migrations):
        raise MigrationError("migrations of the positive-negative representation are not verified")
    query = SignedQuery(plan_query(plan_of, how.plan, how.emit_every), catalog.functions)
    genmig = [replace(change, strategy="genmig", part="whole") for change in how.migrations]
    changes = planned_changes(query.plan, genmig, how.emit_every, catalog)
    for came in played(query, streams_read(plan_of, catalog), inputs, changes, how):
        if isinstance(came, PlannedChange):
            query.migrate(came.plan, f"planned at {came.at}")
    return report(query.table(), how.told.dead_letters)


def require_signed(strategies: Sequence[str]) -> None:
    """Refuses migration strategies that work on intervals only."""
    for strategy in strategies:
        if strategy not in STRATEGIES:
            raise MigrationError(
                f"{strategy} does not migrate the positive-negative representation", hint="use strategy genmig"
            )
