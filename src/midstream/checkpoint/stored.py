"""What a checkpoint tells of a job, as values: queries, plans, migrations, decisions, streams, slots, requests.

Application times are ticks, None where there is no beginning or no end. Nothing here is alive: a value is what one
manifest says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from midstream.algebra.time import TimeDomain, amount, instant, length, size
from midstream.checkpoint.inspect import StoredState
from midstream.checkpoint.manifest import QueryEntry
from midstream.checkpoint.records import Fault, QueryAccount, StreamWait
from midstream.distribution.plan_texts import plan_text_beside
from midstream.html import Records, escaped, preformatted, section, table
from midstream.migration.corrections import Prediction
from midstream.migration.history import MeasuredCosts
from midstream.optimizer.plan_graph import PlanGraph, change_html, shapes_html

VERIFYING = "verifying"
"""The status of a migration that a copy of its query goes through."""


@dataclass(frozen=True, slots=True)
class Period:
    """When a migration took place: in which batches, and the instant from which on the new plan answers, if it has one.

    `time` says whether instants are integers or timestamps.
    """

    start_batch: int | None = None
    end_batch: int | None = None
    split_time: float | None = None
    time: str = "integer"


@dataclass(frozen=True, slots=True)
class StoredMigration:
    """A migration of a query, past or under way; or, with the status `started`, the query's own start."""

    COLUMNS: ClassVar = ("query", "status", "strategy", "old_plan", "new_plan", "start_batch", "end_batch", "trigger")

    query: str
    old_plan: str
    new_plan: str
    strategy: str
    status: str
    trigger: str
    part: str | None
    period: Period = field(default_factory=Period)
    forecasts: tuple[Prediction, ...] = ()
    actual: MeasuredCosts | None = None
    target: PlanGraph | None = None
    note: str = ""
    record: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """All that was recorded of it."""
    slots: tuple[int, ...] | None = None
    """The slots that migrated by themselves; None: all of them together."""
    verified: Mapping[str, Any] | None = None
    """What was compared where the migration was verified, and the first difference, if there is one."""

    @property
    def start_batch(self) -> int | None:
        """The batch with which it began."""
        return self.period.start_batch

    @property
    def end_batch(self) -> int | None:
        """The batch with which it ended; None while it is under way."""
        return self.period.end_batch

    @property
    def split_time(self) -> float | None:
        """The instant from which on the new plan answers, if there is one."""
        return self.period.split_time

    @property
    def time(self) -> str:
        """Whether instants are integers or timestamps."""
        return self.period.time

    def values(self) -> dict[str, Any]:
        """All that is known of it as plain values, those of its period under their own names."""
        found = asdict(self)
        period = found.pop("period")
        del found["record"]  # its attributes say the same
        return {**found, **period}

    @property
    def forecast(self) -> Prediction | None:
        """What its strategy was predicted to take."""
        return next((record for record in self.forecasts if record.strategy == self.strategy), None)

    def _repr_html_(self) -> str:
        return self.html()

    def html(self, running: PlanGraph | None = None) -> str:
        """Both plans, what was predicted and what was measured; `running` is the old plan, if it is known."""
        title = f"{self.query}: {self.strategy or self.status}, {self.status}, {self.trigger}"
        if not self.strategy:
            return section(title, f"<p>{escaped(self.note)}</p>")
        target = self.target
        if running is not None and target is not None and running.complete and target.complete:
            plans = change_html((running.plan, running.trees(True)), (target.plan, target.trees(True)))
        else:
            plans = shapes_html(self.old_plan, self.new_plan)
        headings = ("", "took", "rows of work", "rows held", "longest silence")
        return section(title, plans, table(headings, self._figures()))

    def _figures(self) -> Iterator[list[str]]:
        predicted, actual, domain = self.forecast, self.actual, TimeDomain.of_word(self.time)

        def row(name: str, took: float | None, work: float, held: float, silence: float) -> list[str]:
            return [name, length(took or 0, domain), amount(work), amount(held), length(silence, domain)]

        if predicted is not None:
            yield row("predicted", predicted.duration, predicted.work, predicted.rows, predicted.silence)
        if actual is not None:
            twice, held = actual.processed_twice, actual.peak_extra_rows
            yield row("measured", actual.duration, twice, held, actual.longest_silence)


@dataclass(frozen=True, slots=True)
class StoredDecision:
    """What was decided about a query's plan at an instant of application time, and why."""

    COLUMNS: ClassVar = ("query", "when", "action", "plan", "target", "reason")

    query: str
    moment: int
    action: str
    plan: str
    target: str
    cost: float
    target_cost: float
    migration_cost: float
    evidence: float
    reason: str
    time: str = "integer"
    """Whether the moment is an integer or a timestamp."""

    @property
    def when(self) -> str:
        """The moment as people read it."""
        return instant(self.moment, TimeDomain.of_word(self.time))

    def _repr_html_(self) -> str:
        plans = "" if self.plan == self.target else shapes_html(self.plan, self.target)
        return section(f"{self.query}: {self.action}", f"<p>{escaped(self.reason)}</p>", plans)


@dataclass(frozen=True, slots=True)
class PlanAlternative:
    """A plan that has been better lately: by how much in all, and in how many looks on end."""

    plan: str
    gained: float
    looks: int


@dataclass(frozen=True, slots=True)
class StoredStream:
    """A stream: how far it promises to be, its newest time, and what came of it."""

    name: str
    register: int | None
    latest: int | None
    rows: int
    late: int
    unusable: int
    time: str = "integer"
    """Whether instants are integers or timestamps."""
    lag: int | None = None
    """How many rows waited in its source when it was last asked; None if that is not known."""

    @property
    def domain(self) -> TimeDomain:
        """How its instants are read."""
        return TimeDomain.of_word(self.time)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What an adaptive query knows and has decided; `mode` is off, suggest or auto."""

    mode: str = "off"
    decisions: Records[StoredDecision] = field(default_factory=Records)
    alternatives: tuple[PlanAlternative, ...] = ()
    statistics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A query; `advanced_to` is its frontier, before `released` its results are complete."""

    name: str
    entry: QueryEntry = field(repr=False)
    account: QueryAccount = field(repr=False)
    advanced_to: int | None
    released: int | None
    graph: PlanGraph
    adaptivity: Knowledge
    migration: StoredMigration | None
    history: Records[StoredMigration]
    states: tuple[StoredState, ...]
    waits_for: StreamWait | None = None
    shared_with: Mapping[str, int] = field(default_factory=dict)
    """How many rows of its state other queries keep too, by their names."""

    @property
    def cql(self) -> str:
        """Its text."""
        return self.entry.cql

    @property
    def plan(self) -> str:
        """The plan that it runs by."""
        return self.entry.plan

    @property
    def time(self) -> str:
        """Whether its instants are integers or timestamps."""
        return self.entry.time

    @property
    def status(self) -> str:
        """Whether it runs, is in quarantine, or was replaced."""
        return self.entry.status

    @property
    def results(self) -> int:
        """How many results are released; `account.waiting` are computed and wait."""
        return self.account.results

    @property
    def quarantine(self) -> Fault | None:
        """Why it takes in nothing, and since which batch; None if it is at work."""
        return self.account.fault

    @property
    def local(self) -> Mapping[int, str]:
        """The plans of slots that run by another one than `plan`, by slot."""
        return self.account.plans.of_slots

    @property
    def warnings(self) -> tuple[str, ...]:
        """What of its state grows without bound."""
        return tuple((self.account.graph or {}).get("warnings", ()))

    @property
    def plans(self) -> str:
        """The plan that runs, with those of slots that run by another one, in one line."""
        return plan_text_beside(self.plan, self.local)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it reads."""
        return tuple(dict.fromkeys(node.stream for node in self.graph.nodes if node.stream is not None))

    @property
    def decisions(self) -> Records[StoredDecision]:
        """What was decided about its plan, oldest first."""
        return self.adaptivity.decisions

    @property
    def migrating_to(self) -> str | None:
        """The plan that it migrates to, if it does."""
        return None if self.migration is None or self.verifying else self.migration.new_plan

    @property
    def verifying(self) -> str | None:
        """The plan that it is verified with, if it is."""
        return self.migration.new_plan if self.migration is not None and self.migration.status == VERIFYING else None

    @property
    def domain(self) -> TimeDomain:
        """How its instants are read."""
        return TimeDomain.of_word(self.time)

    @property
    def state_rows(self) -> int:
        """How many rows its states hold."""
        return sum(state.rows for state in self.states)

    @property
    def state_bytes(self) -> int:
        """How many bytes its states hold."""
        return sum(state.bytes for state in self.states)

    def _repr_html_(self) -> str:
        held = f"{self.state_rows:,} rows, {size(self.state_bytes)}"
        facts = [self.status, self.results, self.adaptivity.mode, held]
        return section(
            f"query {self.name}",
            preformatted(self.cql),
            table(["status", "results", "adaptivity", "state"], [facts]),
            self.graph._repr_html_() if self.migration is None else self.migration.html(self.graph),
            self.history._repr_html_() if self.history else "",
        )
