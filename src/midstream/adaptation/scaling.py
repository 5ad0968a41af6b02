"""How many slots a job should have: between bounds, by how busy the busiest slot is.

A slot is busy for the part of the time between two batches in which it works, rather than waits for rows or for Spark.
Where that is near one, batches fall behind as soon as more rows come; where it is small, fewer slots would do. The
number of slots is chosen so that the busiest has `target` of its time to do.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from midstream.adaptation.decider import Candidate, Caution
from midstream.algebra.time import plural
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

    The busiest slot must have worked for `busy` of the time, or for less than `idle` of it; it is given `target`.
    """

    busy: float = 0.8
    idle: float = 0.3
    target: float = 0.6
    caution: Caution = Caution()


def slot_numbers(busy: float, slots: int, among: SlotRange, policy: ScalePolicy) -> list[Candidate[int]]:
    """More slots, or fewer, after a batch in which the busiest was busy for a part of the time; or neither."""
    wanted = among.nearest(max(1, math.ceil(slots * busy / policy.target)))
    if wanted == slots:
        return []
    expected, action = busy * slots / wanted, "more" if wanted > slots else "fewer"
    gain = busy - policy.busy if wanted > slots else policy.idle - busy
    return [
        Candidate(
            action,
            action,
            wanted,
            gain,
            busiest(busy, slots),
            f"With {plural(wanted, 'slot')} it would be {expected:.0%}; slots = {among}.",
            "" if gain >= 0 else "That is neither too much nor too little.",
            before=busy,
            expected=expected,
            rests=("more", "fewer"),
        )
    ]


def busiest(busy: float, slots: int) -> str:
    """How much the busiest slot has to do, in words."""
    return f"The busiest of {slots} slots works {busy:.0%} of the time."
