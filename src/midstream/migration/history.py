"""What happened in a migration, measured while it ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.html import escaped, section
from midstream.migration.verified import Verified
from midstream.optimizer.plan_html import shapes_html

if TYPE_CHECKING:
    from midstream.migration.protocol import Figures

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """What a migration has cost: time by the clock, rows of work and of memory, and time without a result."""

    wall_seconds: float
    batches: int
    processed_twice: int
    peak_extra_rows: int
    longest_silence: int
    longest_silence_seconds: float


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
    started_at: int
    ended_at: int
    predicted: dict[str, Any] | None = None
    part: str | None = None
    """Which part of the plans migrated, as the old and the new plan have it; None: all of it."""
    verified: Verified | None = None
    """What was found where the migration was rehearsed before; its figures are then those of the rehearsal."""

    @property
    def split_time(self) -> float | None:
        """The split time of a strategy that has one."""
        return None if self.split_after is None else self.split_after + 0.5

    @property
    def duration(self) -> int:
        """How much application time it took; 0 if it ended where it began."""
        return max(0, self.ended_at - self.started_at)

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


class Silence:
    """The longest time for which no result left, in application time and by the clock."""

    def __init__(self, frontier: int, now: float) -> None:
        self.since, self.since_seconds = frontier, now
        self.longest, self.longest_seconds = 0, 0.0

    def observe(self, frontier: int, now: float, released: int) -> None:
        """Sees how far time has come, and how many results left."""
        self.longest = max(self.longest, frontier - self.since)
        self.longest_seconds = max(self.longest_seconds, now - self.since_seconds)
        if released:
            self.since, self.since_seconds = frontier, now


class Recorder:
    """Follows a migration from batch to batch."""

    def __init__(
        self, trigger: str, plans: tuple[str, str], strategy: str, split_after: int | None, frontier: int, clock: Clock
    ) -> None:
        self.trigger, self.plans, self.strategy, self.split_after = trigger, plans, strategy, split_after
        self.clock = clock
        self.started_at = self.last_frontier = frontier
        self.started = clock()
        self.silence = Silence(frontier, self.started)
        self.batches = 0
        self.predicted: dict[str, Any] | None = None
        self.part: str | None = None
        self.verified: Verified | None = None

    def batch(self, frontier: int, released: int) -> None:
        """Notes the end of a batch and how many results left with it."""
        self.batches += 1
        if BEGINNING < frontier < INFINITY:
            self.last_frontier = frontier
        if self.started_at == BEGINNING:  # some stream had not come yet: time starts with the first frontier
            self.started_at = self.silence.since = self.last_frontier
        self.silence.observe(self.last_frontier, self.clock(), released)

    def close(self, outcome: str, figures: Figures) -> MigrationRecord:
        """The record of the whole migration."""
        return MigrationRecord(
            self.clock() - self.started,
            self.batches,
            figures.processed_twice,
            figures.peak_extra_rows,
            self.silence.longest,
            self.silence.longest_seconds,
            self.trigger,
            *self.plans,
            self.strategy,
            outcome,
            self.split_after,
            self.started_at,
            self.last_frontier,
            self.predicted,
            self.part,
            self.verified,
        )
