"""How many slots a job should have: between bounds, by how busy the busiest slot is.

A slot is busy for the part of the time between two batches in which it works, rather than waits for rows or for Spark.
Where that is near one, batches fall behind as soon as more rows come; where it is small, fewer slots would do. The
number of slots is chosen so that the busiest has `target` of its time to do. It must have been so for several batches
on end, slots rest after a change, and a change that came out otherwise than predicted makes the next one harder.

Pure: measurements come in, a decision comes out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from midstream.algebra.quantities import plural
from midstream.errors import JobError

_RANGE = re.compile(r"\s*(\d+)\s*\.\.\s*(\d+)\s*")


@dataclass(frozen=True, slots=True)
class SlotRange:
    """The fewest and the most slots that a job may have."""

    least: int
    most: int

    @staticmethod
    def of(text: str, name: str = "slots") -> SlotRange:
        """A range as people write it; `name` is what errors call it.

        >>> SlotRange.of("2..8")
        SlotRange(least=2, most=8)
        """
        found = _RANGE.fullmatch(text)
        if found is None:
            raise JobError(f"{name} cannot be {text!r}", hint='write a number, or a range such as "2..8"')
        least, most = int(found[1]), int(found[2])
        if not 1 <= least <= most:
            raise JobError(
                f"{name} cannot be {text!r}",
                detail="a range goes from at least one slot to at least as many",
                hint='write for instance "2..8"',
            )
        return SlotRange(least, most)

    def nearest(self, slots: int) -> int:
        """The number of slots within the range that is nearest."""
        return min(max(slots, self.least), self.most)

    def __str__(self) -> str:
        return f"{self.least}..{self.most}"


@dataclass(frozen=True, slots=True)
class ScalePolicy:
    """When slots are added and taken away.

    The busiest slot must have worked for `busy` of the time, or for less than `idle` of it, in `patience` batches on
    end; it is given `target`. After a change there are at least `rest` batches without another. A forecast may be
    wrong by `tolerance`.
    """

    busy: float = 0.8
    idle: float = 0.3
    target: float = 0.6
    patience: int = 3
    rest: int = 6
    tolerance: float = 0.25


@dataclass(frozen=True, slots=True)
class ScaleDecision:
    """What was decided: how many slots there are to be, how busy the busiest then is, and why."""

    action: Literal["stay", "more", "fewer"]
    slots: int
    busy: float
    expected: float
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """The decision as plain values."""
        figures = {"busy": round(self.busy, 3), "expected_busy": round(self.expected, 3)}
        return {"kind": "slots", "action": self.action, "slots": self.slots, **figures, "reason": self.reason}


@dataclass(slots=True)
class ScaleController:
    """Decides how many slots there are, after each batch."""

    range: SlotRange
    policy: ScalePolicy
    busy_for: int = 0
    idle_for: int = 0
    resting: int = 0
    expected: float | None = None
    mistrust: int = 1

    def consider(self, busy: float, slots: int) -> ScaleDecision:
        """Decides after a batch in which the busiest of some slots was busy for a part of the time."""
        policy = self.policy
        self.busy_for = self.busy_for + 1 if busy >= policy.busy else 0
        self.idle_for = self.idle_for + 1 if busy <= policy.idle else 0
        self.resting = max(0, self.resting - 1)
        self._review(busy)
        wanted = self.range.nearest(max(1, math.ceil(slots * busy / policy.target)))
        expected = busy * slots / wanted
        fact = f"The busiest of {slots} slots works {busy:.0%} of the time."
        why = self._against(wanted, slots)
        if why is not None:
            return ScaleDecision("stay", slots, busy, busy, f"{fact} {why} Staying.")
        self.busy_for = self.idle_for = 0
        self.resting, self.expected = policy.rest, expected
        reason = f"{fact} With {plural(wanted, 'slot')} it would be {expected:.0%}; slots = {self.range}."
        return ScaleDecision("more" if wanted > slots else "fewer", wanted, busy, expected, reason)

    def _review(self, busy: float) -> None:
        """When slots have rested, compares how busy they are with the forecast."""
        if self.expected is None or self.resting:
            return
        wrong = abs(busy - self.expected) > self.policy.tolerance
        self.mistrust = min(4, self.mistrust * 2) if wrong else max(1, self.mistrust // 2)
        self.expected = None

    def _against(self, wanted: int, slots: int) -> str | None:
        if wanted == slots:
            return "No other number of slots is nearer to what they should have to do."
        if self.resting:
            return f"Slots have changed lately; waiting for {self.resting} more batches."
        needed, so_far = self.policy.patience * self.mistrust, self.busy_for if wanted > slots else self.idle_for
        if so_far < needed:
            batches = plural(so_far, "batch", "batches")
            return f"It has been so in {batches} on end; waiting for {needed}, in case it does not last."
        return None

    def to_json(self) -> dict[str, Any]:
        """What a manifest says."""
        names = ("busy_for", "idle_for", "resting", "expected", "mistrust")
        return {name: getattr(self, name) for name in names}

    def recall(self, record: Mapping[str, Any]) -> None:
        """Goes on from what a manifest says."""
        for name, value in record.items():
            setattr(self, name, value)
