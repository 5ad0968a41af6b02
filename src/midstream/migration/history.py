"""What happened in a migration, measured while it ran."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.html import escaped, section
from midstream.migration.verified import Verified
from midstream.optimizer.plan_graph import shapes_html

if TYPE_CHECKING:
    from midstream.migration.protocol import Figures

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """What a migration has cost: stream time, time by the clock, rows of work and of memory, time without a result."""

    started_at: int | None
    ended_at: int | None
    wall_seconds: float
    batches: int
    processed_twice: int
    peak_extra_rows: int
    longest_silence: int
    longest_silence_seconds: float

    @property
    def duration(self) -> int | None:
        """How much application time it took; 0 if it ended where it began."""
        return None if self.started_at is None or self.ended_at is None else max(0, self.ended_at - self.started_at)


@dataclass(frozen=True, slots=True)
class MigrationRecord(MeasuredCosts):
    """One migration, after its end, and what it has cost.

    Application times are ticks; `split_time` lies half a tick after `split_after`.
    """

    COLUMNS: ClassVar = ("outcome", "strategy", "old_plan", "new_plan", "started_at", "ended_at", "trigger")

    trigger: str
    old_plan: str
    new_plan: str
    strategy: str
    outcome: str
    split_after: int | None
    predicted: dict[str, Any] | None = None
    part: str | None = None
    """Which part of the plans migrated, as the old and the new plan have it; None: all of it."""
    verified: Verified | None = None
    """What was found where the migration was rehearsed before; its figures are then those of the rehearsal."""

    @property
    def split_time(self) -> float | None:
        """The split time of a strategy that has one."""
        return None if self.split_after is None else self.split_after + 0.5

    def comparison(self) -> str:
        """What was predicted beside what was measured."""
        measured = f"took {self.duration} ticks, {self.processed_twice} rows twice, {self.peak_extra_rows} rows held"
        measured += f", {self.longest_silence} ticks silent"
        if self.predicted is None:
            return f"{self.strategy} {measured}"
        text = f"{self.predicted['duration']:.4g} ticks, {self.predicted['work']:.4g} rows of work"
        text += f", {self.predicted['rows']:.4g} rows held, {self.predicted['silence']:.4g} ticks silent"
        return f"{self.strategy} {measured}; predicted {text}"

    def _repr_html_(self) -> str:
        plans = shapes_html(self.old_plan, self.new_plan)
        title = f"{self.strategy}, {self.outcome}, {self.trigger}"
        return section(title, plans, f"<p>{escaped(self.comparison())}</p>")

    def as_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        plain = asdict(replace(self, verified=None))
        verified = None if self.verified is None else self.verified.to_json()
        return {**plain, "verified": verified, "split_time": self.split_time, "duration": self.duration}


@dataclass(frozen=True, slots=True)
class Account:
    """A migration from batch to batch. Times of the stream are ticks, those of the clock seconds.

    `heard` is when results last left.
    """

    started_at: int
    ended_at: int
    heard_at: int
    started: float
    ended: float
    heard: float
    batches: int = 0
    processed_twice: int = 0
    peak_extra_rows: int = 0
    longest_silence: int = 0
    longest_silence_seconds: float = 0.0

    @staticmethod
    def opened(frontier: int, now: float) -> Account:
        """The account of a migration that begins."""
        return Account(frontier, frontier, frontier, now, now, now)

    def after(self, frontier: int, now: float, heard: bool, twice: int, extra: int) -> Account:
        """The account after one more batch; `heard` says that results left with it."""
        at = frontier if BEGINNING < frontier < INFINITY else self.ended_at
        started_at = at if self.started_at == BEGINNING else self.started_at
        heard_at = at if self.heard_at == BEGINNING else self.heard_at
        return replace(
            self,
            started_at=started_at,
            ended_at=at,
            heard_at=at if heard else heard_at,
            ended=now,
            heard=now if heard else self.heard,
            batches=self.batches + 1,
            processed_twice=self.processed_twice + twice,
            peak_extra_rows=max(self.peak_extra_rows, extra),
            longest_silence=max(self.longest_silence, at - heard_at),
            longest_silence_seconds=max(self.longest_silence_seconds, now - self.heard),
        )

    @property
    def figures(self) -> MeasuredCosts:
        """What the migration has taken so far."""
        return MeasuredCosts(
            self.started_at,
            self.ended_at,
            round(self.ended - self.started, 3),
            self.batches,
            self.processed_twice,
            self.peak_extra_rows,
            self.longest_silence,
            round(self.longest_silence_seconds, 3),
        )

    def record(self, decision: Mapping[str, Any], strategy: str) -> dict[str, Any]:
        """What a history says, as that of an embedded query does."""
        split_after = decision.get("split_after")
        predictions = (p for p in decision.get("predictions", ()) if p["strategy"] == strategy)
        return {
            "split_after": split_after,
            "split_time": None if split_after is None else split_after + 0.5,
            "duration": self.figures.duration,
            **asdict(self.figures),
            "predicted": next(predictions, None),
        }


class Recorder:
    """Follows a migration from batch to batch."""

    def __init__(
        self, trigger: str, plans: tuple[str, str], strategy: str, split_after: int | None, frontier: int, clock: Clock
    ) -> None:
        self.trigger, self.plans, self.strategy, self.split_after = trigger, plans, strategy, split_after
        self.clock = clock
        self.account = Account.opened(frontier, clock())
        self.predicted: dict[str, Any] | None = None
        self.part: str | None = None
        self.verified: Verified | None = None

    def batch(self, frontier: int, released: int) -> None:
        """Notes the end of a batch and how many results left with it."""
        self.account = self.account.after(frontier, self.clock(), released > 0, 0, 0)

    def close(self, outcome: str, figures: Figures) -> MigrationRecord:
        """The record of the whole migration."""
        costs = replace(
            self.account.figures,
            wall_seconds=self.clock() - self.account.started,
            processed_twice=figures.processed_twice,
            peak_extra_rows=figures.peak_extra_rows,
        )
        return MigrationRecord(
            **asdict(costs),
            trigger=self.trigger,
            old_plan=self.plans[0],
            new_plan=self.plans[1],
            strategy=self.strategy,
            outcome=outcome,
            split_after=self.split_after,
            predicted=self.predicted,
            part=self.part,
            verified=self.verified,
        )
