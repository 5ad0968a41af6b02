"""How a query over finite inputs is run, wherever it runs, and what the run tells besides its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from midstream.adaptation.plan_changes import Decision
from midstream.adaptation.policy import Mode, Policy
from midstream.errors import QueryError
from midstream.job.task.ingest import DeadLetters
from midstream.optimizer.plans import Plan


@dataclass(frozen=True, slots=True)
class RunDetails:
    """The migrations that ended, what adaptation decided, and the rows that were left out."""

    history: list[Any] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    dead_letters: list[DeadLetters] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FiniteRun:
    """By which plans, in batches of how many rows and by which schedule; none of it changes what the answer means.

    `progress` is called with the rows of each batch done, `results` with what it releases, as soon as it does.
    """

    plan: Plan | str | None = None
    migrations: Sequence[Any] = ()
    batch_rows: int = 10_000
    scheduling: str = "dfs"
    emit_every: int | None = None
    adaptive: Policy | Mode = "off"
    progress: Callable[[int], None] | None = None
    results: Callable[[pa.Table], None] | None = None
    told: RunDetails = field(default_factory=RunDetails)

    def __post_init__(self) -> None:
        if self.batch_rows < 1:
            raise QueryError(f"batch_rows must be positive, not {self.batch_rows}")

    def done(self, rows: int) -> None:
        """A batch of so many rows is done."""
        if self.progress is not None:
            self.progress(rows)
