"""What a verified migration found: over which time both plans were compared, and where they first differ, if they do.

A verified migration is rehearsed first. A copy of the query, with its state, goes over to the new plan by the strategy
that was asked for, and runs on beside the query over the same input. What both release is compared snapshot by
snapshot: through the whole rehearsed migration, and for a stretch of stream time after it. If nothing differs, the
query goes on as the copy; what was verified is then what runs. That is right at any batch boundary if both plans give
equally much beyond the frontier, because what has been emitted then does not depend on the plan. Otherwise the query
itself migrates, as the copy did. At the first difference the copy is given up and the query stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from midstream.algebra.snapshots import SnapshotComparison
from midstream.algebra.time import INFINITY
from midstream.errors import MidstreamError, MigrationError
from midstream.migration.legality import emission_class
from midstream.optimizer.plans import Plan

ROWS_KEPT = 20
"""How many rows of either side records keep of the first instant that differs."""

VERIFYING, DIFFERS, FAILED = "verifying", "differs", "failed"
"""How the history calls a migration that is being rehearsed, one that gave other results, and one that gave none."""


@dataclass(slots=True)
class Stretch:
    """The time over which plans are compared: all of a rehearsed migration, and so many ticks after it."""

    ticks: int
    until: int | None = None
    """Where it ends, once the rehearsed migration is over."""

    def __post_init__(self) -> None:
        if self.ticks <= 0:
            raise MigrationError(
                f"a migration cannot be verified for {self.ticks} ticks", hint="give a positive stretch of stream time"
            )

    def is_over(self, migrated: bool, compared_to: int) -> bool:
        """Whether everything that was to be compared has been."""
        if migrated and self.until is None:
            self.until = min(INFINITY, max(0, compared_to) + self.ticks) if compared_to < INFINITY else INFINITY
        return self.until is not None and compared_to >= self.until


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verification found by its end; ticks are instants of application time."""

    since: int
    compared_to: int
    difference: str | None = None
    instant: int | None = None
    only_in_old: tuple[Mapping[str, Any], ...] = ()
    only_in_new: tuple[Mapping[str, Any], ...] = ()
    answers: Any = field(default=None, compare=False, repr=False, metadata={"forgotten": True})
    """What was being compared when a difference was found: both plans' results, where they are not stored."""

    @staticmethod
    def differing(since: int, compared_to: int, found: SnapshotComparison, tick: int | None) -> Verified:
        """What is told of a difference."""
        sides = (tuple(_plain(row) for row in rows[:ROWS_KEPT]) for rows in (found.only_in_x, found.only_in_y))
        return Verified(since, compared_to, found.reason, tick, *sides)

    @staticmethod
    def failing(since: int, compared_to: int, error: MidstreamError) -> Verified:
        """What is told of a new plan that fails where the old one does not."""
        return Verified(since, compared_to, f"the new plan failed: {error.message}")

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "since": self.since,
            "compared_to": self.compared_to,
            "difference": self.difference,
            "instant": self.instant,
            "only_in_old": [dict(row) for row in self.only_in_old],
            "only_in_new": [dict(row) for row in self.only_in_new],
        }


def can_be_adopted(old: Plan, new: Plan) -> bool:
    """Whether a query can go on as its copy: both plans have given out equally much beyond the frontier."""
    return emission_class(old.physical) == emission_class(new.physical)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: v if isinstance(v, str | int | float | bool | None) else str(v) for name, v in row.items()}
