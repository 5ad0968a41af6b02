"""Runs of one query over recorded streams, with what each batch cost."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from midstream.adaptation.adaptive import Adaptive
from midstream.adaptation.plan_changes import Decision
from midstream.adaptation.policy import Policy
from midstream.api import Question, ask
from midstream.cluster.local.embedded import StreamProgress, batches
from midstream.cluster.local.live_query import LiveQuery
from midstream.operators.base import Operator, Work
from midstream.optimizer.plans import Plan, plan_query


@dataclass(slots=True)
class Run:
    """Per batch: where time was after it, the work done in it, and the processor seconds it took."""

    plan: str
    moments: list[int] = field(default_factory=list)
    work: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    migrations: list[tuple[int, str, str]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    results: int = 0
    plans: list[str] = field(default_factory=list)

    def total(self, start: int = 0, end: int | None = None) -> int:
        """The work of batches that end within a span of time."""
        return sum(w for m, w in zip(self.moments, self.work, strict=True) if start < m and (end is None or m <= end))

    def time_in(self, start: int, end: int) -> float:
        """The processor seconds of batches that end within a span of time."""
        return sum(s for m, s in zip(self.moments, self.seconds, strict=True) if start < m <= end)

    @property
    def time(self) -> float:
        """All processor seconds."""
        return sum(self.seconds)


class Meter:
    """Counts what all operators do that are built while it is open: also those of a migration and of its two boxes."""

    def __init__(self) -> None:
        self.counted: list[Work] = []

    def __enter__(self) -> Meter:
        self._built = built = Operator.__init__

        def counted(operator: Operator, schema: pa.Schema) -> None:
            built(operator, schema)
            self.counted.append(operator.work)

        Operator.__init__ = counted  # type: ignore[method-assign,assignment]
        return self

    def __exit__(self, *_: object) -> None:
        Operator.__init__ = self._built  # type: ignore[method-assign]

    def read(self) -> int:
        """All work so far."""
        return sum(work.probed + work.inserted for work in self.counted)


def question_of(query: str, tables: Mapping[str, pa.Table]) -> Question:
    """A query over recorded streams."""
    return ask(query, dict(tables))


def drive(question: Question, plan: Plan | str | None, batch_rows: int, policy: Policy | None = None) -> Run:
    """Runs a query from beginning to end; adaptively if there is a policy."""
    chosen = plan if isinstance(plan, Plan) else plan_query(question.plan, plan)
    with Meter() as meter:
        return _driven(question, chosen, batch_rows, policy, meter)


def _driven(question: Question, chosen: Plan, batch_rows: int, policy: Policy | None, meter: Meter) -> Run:
    query = LiveQuery(chosen, question.catalog.functions)
    if policy is not None:
        query.adaptive = Adaptive(chosen, policy, question.catalog.functions, time.monotonic)
    streams = {name: StreamProgress(question.catalog.streams[name]) for name in sorted(query.streams)}
    run, before = Run(chosen.text), 0
    running = chosen
    for parts in batches(streams, {name: question.tables[name] for name in streams}, batch_rows):
        start = time.process_time()
        for name, rows in parts.items():
            query.feed(name, *streams[name].accept(rows))
        for stream in streams.values():
            stream.raise_register()
        given = query.advance({name: s.register for name, s in streams.items()})
        run.seconds.append(time.process_time() - start)
        run.results += 0 if given is None else len(given)
        done = meter.read()
        run.work.append(done - before)
        run.moments.append(max(s.latest for s in streams.values()))
        run.plans.append(query.plan.text)
        before = done
        if query.plan is not running:
            run.migrations.append((run.moments[-1], running.text, query.plan.text))
            running = query.plan
    if query.adaptive is not None:
        run.decisions = list(query.adaptive.history)
    return run
