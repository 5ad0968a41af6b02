"""Whether the streams have changed since the last time plans were weighed.

Planning costs more than looking. As long as every rate and selectivity is within a band around what it was, the best
plan is what it was, and there is nothing to weigh.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from midstream.algebra.statistics import Estimate, Statistics

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
