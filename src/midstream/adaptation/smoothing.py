"""Exponential smoothing that lets go when the world has changed.

A ratio of two sums, each fading by the same factor per step, weighs long steps more than short ones and never divides
by a single odd step. When the last steps lie outside of what the noise explains, the past is dropped.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from midstream.algebra.statistics import Estimate

STEPS_TO_JUMP = 3
JUMP = 0.4
NOISES = 4.0


@dataclass(slots=True)
class Smoothed:
    """A smoothed ratio; `fade` is what is left of the past after a step."""

    fade: float = 0.9
    above: float = 0.0
    below: float = 0.0
    weight: float = 0.0
    variance: float = 0.0
    recent: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=STEPS_TO_JUMP))

    def add(self, above: float, below: float) -> bool:
        """Takes one step's sums; gives whether the past was dropped."""
        if below <= 0:
            return False
        if self.below > 0:
            before = self.value
            deviation = (above / below - before) / before if before > 0 else 0.0
            self.variance = self.fade * self.variance + (1 - self.fade) * min(deviation * deviation, 4.0)
        self.above = self.fade * self.above + above
        self.below = self.fade * self.below + below
        self.weight = self.fade * self.weight + 1
        self.recent.append((above, below))
        jumped = self._jumped()
        if jumped:
            self.above = sum(a for a, _ in self.recent)
            self.below = sum(b for _, b in self.recent)
            self.weight = float(len(self.recent))
            self.recent.clear()
        return jumped

    @property
    def value(self) -> float:
        """The ratio."""
        return self.above / self.below if self.below > 0 else 0.0

    @property
    def noise(self) -> float:
        """How much single steps deviate, relatively."""
        return math.sqrt(self.variance)

    @property
    def estimate(self) -> Estimate:
        """The ratio with its error."""
        return Estimate(self.value, self.noise / math.sqrt(self.weight)) if self.weight else Estimate(0.0)

    def _jumped(self) -> bool:
        """Whether all recent steps lie on one side, far beyond the noise from before them."""
        if len(self.recent) < STEPS_TO_JUMP or self.weight < 2 * STEPS_TO_JUMP:
            return False
        past_above, past_below, left = self.above, self.below, 1.0
        for above, below in reversed(self.recent):
            past_above -= left * above
            past_below -= left * below
            left *= self.fade
        if past_below <= 0 or past_above <= 0:
            return past_below > 0 and all(a > 0 for a, _ in self.recent)
        past = past_above / past_below
        up = self.recent[0][0] > past * self.recent[0][1]
        total = 0.0
        for above, below in self.recent:
            deviation = (above / below - past) / past
            if deviation <= JUMP if up else deviation >= -JUMP / (1 + JUMP):
                return False
            total += deviation
        return abs(total / len(self.recent)) > 1.5 * JUMP / (1 + JUMP)
