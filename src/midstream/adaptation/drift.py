"""Whether the streams have changed since the last time plans were weighed, or the running plan's own work has.

Planning costs more than looking. As long as every rate and selectivity is within a band around what it was, the best
plan is what it was, and there is nothing to weigh (`Drift`).

Some join of the running plan checks every condition between streams. So a change of rates or selectivities that makes
the plan dearer shows at once in what its operators handle for each row that comes in, which every batch shows for
nothing, whereas looking at rows takes time. A false alarm costs one look: one batch beyond the noise is enough
(`Alarm`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from midstream.adaptation.smoothing import Smoothed
from midstream.algebra.statistics import Estimate, Statistics
from midstream.operators.base import Work
from midstream.operators.box import Box

BAND = 0.15
"""How far, relatively, anything may move before plans are weighed again."""

AT_LEAST_EVERY = 32
"""After how many checks plans are weighed in any case."""


@dataclass(slots=True)
class Drift:
    """Remembers the figures at which plans were weighed; `classes` are keys that are compared with each other."""

    classes: tuple[frozenset[str], ...]
    reference: dict[str, Estimate] = field(default_factory=dict)
    unweighed: int = 0

    def noticed(self, statistics: Statistics, certain: bool = False) -> bool:
        """Whether something has left its band, or that is `certain`; if so, the figures now are the reference."""
        figures = self.figures(statistics)
        self.unweighed += 1
        if not certain and self.unweighed < AT_LEAST_EVERY and self._within(figures):
            return False
        self.reference, self.unweighed = figures, 0
        return True

    def _within(self, figures: dict[str, Estimate]) -> bool:
        if figures.keys() != self.reference.keys():
            return False
        return all(_near(self.reference[name], now) for name, now in figures.items())

    def figures(self, statistics: Statistics) -> dict[str, Estimate]:
        """Everything that plans are weighed by."""
        found = {f"rate of {alias}": s.rate for alias, s in statistics.streams.items()}
        found.update(statistics.selectivities)
        for terms in self.classes:
            ordered = sorted(t for t in terms if t in statistics.keys)
            for first, second in zip(ordered, ordered[1:], strict=False):
                pair = statistics.equality([first, second])
                if pair is not None:
                    found[f"{first} = {second}"] = pair
        return found


def _near(before: Estimate, now: Estimate) -> bool:
    """Whether a figure is where it was, as far as one can tell."""
    doubt = 2 * min(before.error, 1.0) + 2 * min(now.error, 1.0)
    return abs(math.log(max(now.value, 1e-12) / max(before.value, 1e-12))) <= math.log1p(BAND + doubt)


LEAST = 0.2
"""From which relative deviation on a batch is out of the ordinary, however little noise there is."""

NOISES = 3.0
"""And how many times the usual deviation of a batch it has to be."""

LEARNING = 3
"""From how many batches what is usual is learned."""

FADE = 0.8


class Alarm:
    """Follows what the operators of a box handle per row."""

    def __init__(self) -> None:
        self.box: Box | None = None
        self.handled = 0
        self.usual = Smoothed(FADE)

    def rings(self, box: Box, rows: int) -> bool:
        """Sees the box after a batch of so many rows; whether it has done more, or less, than usual for them."""
        handled = _handled(box.work)
        if box is not self.box:
            self.box, self.handled, self.usual = box, handled, Smoothed(FADE)
            return False
        done, self.handled = handled - self.handled, handled
        if rows <= 0 or done <= 0:
            return False
        unusual = self._unusual(done / rows)
        if unusual:
            self.usual = Smoothed(FADE)
        self.usual.add(float(done), float(rows))
        return unusual

    def _unusual(self, ratio: float) -> bool:
        if self.usual.weight <= _learned():
            return False
        usual = self.usual.value
        return max(ratio / usual, usual / ratio) - 1 > max(LEAST, NOISES * self.usual.noise)


def _learned() -> float:
    """The weight of what is usual before the last of the batches from which it is learned."""
    return sum(FADE**i for i in range(LEARNING - 1))


def _handled(work: Work) -> int:
    return work.probed + work.inserted + work.matched + work.given
