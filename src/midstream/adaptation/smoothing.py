"""Exponential smoothing that lets go when the world has changed.

A ratio of two sums, each fading by the same factor per step, weighs long steps more than short ones and never divides
by a single odd step. A cumulative sum detects whether the input has changed (Page, Biometrika 41, 1954): from the
step on at which values leave the mean to one side, what they exceed one standard deviation by is added up. Once that is
five standard deviations the past is dropped, and what came since the values left is what is known. Steps of independent
normal noise do so once in about 100,000 (Siegmund's approximation), values that have doubled in two or three steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from midstream.algebra.statistics import Estimate

ALLOWANCE, LEAST_ALLOWANCE = 1.0, 0.25
"""By how much a step may deviate before it counts: in standard deviations, and at least, relatively."""

LIMIT, LEAST_LIMIT = 5.0, 0.8
"""When what counts in all is a change, likewise."""

STEPS = 2
"""A change shows in so many steps at least: one alone is a hiccup."""

FURTHEST = 1.5
"""No step counts as more than this, as the logarithm of a ratio: it may be empty."""

OUTLIER = 0.5
"""Deviations beyond this and three times the usual ones say little about what is usual."""


@dataclass(slots=True)
class Excursion:
    """Steps on one side of a mean: from which mean they left, with which noise, and how far they have gone in all."""

    mean: float = 0.0
    noise: float = 0.0
    gone: float = 0.0
    above: float = 0.0
    below: float = 0.0
    steps: int = 0
    further: int = 0
    """How many of the steps went further away."""

    def add(self, above: float, below: float) -> bool:
        """Takes a step; whether with it this is more than noise. Back at the mean for long enough it is over."""
        ratio = above / below
        deviation = FURTHEST if self.mean <= 0 else math.log(max(ratio / self.mean, 1e-9))
        side = math.copysign(1.0, self.gone if self.gone else deviation)
        further = side * max(-FURTHEST, min(FURTHEST, deviation)) - max(ALLOWANCE * self.noise, LEAST_ALLOWANCE)
        gone = abs(self.gone) + further
        if gone <= 0:
            self.gone, self.above, self.below, self.steps, self.further = 0.0, 0.0, 0.0, 0, 0
            return False
        self.gone = side * gone
        self.above, self.below, self.steps = self.above + above, self.below + below, self.steps + 1
        self.further += further > 0
        return further > 0 and self.further >= STEPS and gone > max(LIMIT * self.noise, LEAST_LIMIT)


@dataclass(slots=True)
class Smoothed:
    """A smoothed ratio; `fade` is what is left of the past after a step."""

    fade: float = 0.9
    above: float = 0.0
    below: float = 0.0
    weight: float = 0.0
    variance: float = 0.0
    excursion: Excursion = field(default_factory=Excursion)

    def add(self, above: float, below: float) -> bool:
        """Takes one step's sums; gives whether the past was dropped."""
        if below <= 0:
            return False
        changed = self._changed(above, below)
        if self.value > 0:
            deviation = min(abs(above / below / self.value - 1), max(OUTLIER, 3 * self.noise))
            self.variance = self.fade * self.variance + (1 - self.fade) * deviation * deviation
        if changed:
            self.above, self.below = self.excursion.above, self.excursion.below
            self.weight, self.excursion = float(self.excursion.steps), Excursion()
        else:
            self.above = self.fade * self.above + above
            self.below = self.fade * self.below + below
            self.weight = self.fade * self.weight + 1
        return changed

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

    def _changed(self, above: float, below: float) -> bool:
        """Whether this step, with those before it, is more than noise around the mean of before them."""
        if self.weight < STEPS:
            return False
        if not self.excursion.steps:
            # Counts cannot be known better than to the square root of what is expected.
            expected = max(1.0, self.value * below)
            self.excursion = Excursion(self.value, max(self.noise, expected**-0.5))
        return self.excursion.add(above, below)
