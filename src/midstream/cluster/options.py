"""What can be said of a session and of a query, in one list each: names, types and what holds if nothing is said."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from midstream.errors import InputError, JobError, QueryError

if TYPE_CHECKING:
    from midstream.adaptation.policy import Mode, Policy
    from midstream.algebra.declarations import UserFunction
    from midstream.inputs import Duration
    from midstream.job.queries.changed_functions import ChangedFunctions
    from midstream.job.queries.faults import OnError
    from midstream.optimizer.plans import Plan
    from midstream.scheduling.schedule import Schedule

Incomplete = Literal["emit", "withhold"]
"""What becomes of the results of a new query that lack rows from before it began."""

Instant = int | str | dt.datetime
"""A moment of stream time: a number where time is one, otherwise a timestamp; or "now", or "retained"."""

ON_A_CHECKPOINT = 'open it on a checkpoint: Session(checkpoint="path", on="local")'

ANYWHERE = ("functions", "scheduling")
"""The options that every session has."""
IN_MEMORY = ("clock",)
"""The options that only a session in memory has; what is in neither list needs a checkpoint."""


@dataclass(frozen=True)
class SessionOptions:
    """How a session works; `Session` says what each option means."""

    functions: Sequence[UserFunction] = ()
    scheduling: str | Schedule | None = None
    clock: Callable[[], int] | None = None
    slots: int | str | None = None
    retained: int = 10
    memory_per_slot: int | str = "1 GB"
    rebalancing: bool = False
    group_bits: int | None = None
    metrics_retained: int = 100_000
    name: str | None = None
    small_batches: int | str | None = None
    changed_functions: ChangedFunctions = "refuse"
    retention: Mapping[str, str] | None = None
    sites: Mapping[str, Sequence[int]] | None = None
    links: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.changed_functions not in ("refuse", "accept"):
            raise InputError(f"changed functions can be refused or accepted, not {self.changed_functions!r}")
        require_positive("metrics_retained", self.metrics_retained)

    def require_memory(self) -> None:
        """Refuses what needs a checkpoint."""
        if unfit := self._said(lambda name: name not in ANYWHERE + IN_MEMORY):
            raise InputError(f"a session in memory has no {', '.join(unfit)}", hint=ON_A_CHECKPOINT)

    def require_checkpoint(self) -> None:
        """Refuses what only a session in memory has."""
        if unfit := self._said(lambda name: name in IN_MEMORY):
            raise InputError(f"a session on a checkpoint has no {', '.join(unfit)}", hint="leave the checkpoint out")

    def _said(self, wanted: Callable[[str], bool]) -> list[str]:
        return [f.name for f in fields(self) if wanted(f.name) and getattr(self, f.name) != f.default]


@dataclass(frozen=True)
class QueryOptions:
    """How a query works; `Session.query` says what each option means."""

    plan: Plan | str | None = None
    emit_every: Duration | None = None
    share: bool = True
    adaptive: Policy | Mode = "off"
    replace: bool = False
    on_error: OnError | None = None
    keep: bool = True
    incomplete: Incomplete = "emit"
    since: Instant = "now"
    backfill_rate: int | None = None

    def __post_init__(self) -> None:
        if self.incomplete not in ("emit", "withhold"):
            raise QueryError(f"incomplete results can be emitted or withheld, not {self.incomplete!r}")
        if self.backfill_rate is not None:
            require_positive("backfill_rate", self.backfill_rate)


def require_positive(name: str, number: Any) -> int:
    """Refuses what is not a whole number above zero."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise JobError(f"{name} must be a whole number above zero, not {number!r}")
    return number
