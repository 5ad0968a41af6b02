"""CAPE's cost model of migrations, its equations derived again.

CAPE section 5 models nested-loop window joins. With input rates a and b, a window of W and a reduction factor s, a
state holds a*W tuples; combining two states looks at a*W*b*W pairs and stores the share s of them (equation 1). Each
new tuple of a side meets the other side's state, so results come at 2*a*b*W*s (equation 2), which is the rate of the
input above. Moving state takes the sum over all states that are missing (3, 8). In the old box of parallel track, 2W of
input costs 2W*(2*a*b*W*Tj + 2*(a + b)*Ts) (5): a tuple is joined, inserted and later purged.

Equations 6 and 7 do not balance as printed, because 6 multiplies an integral over the window by the window once more
and 7 gives a count where a rate is meant. In the new box states grow from nothing: at time t < W they hold a*t and b*t,
results come at 2*a*b*s*t, and the first window compares the integral of 2*a*b*t, which is a*b*W*W pairs, and inserts
(a + b)*W tuples without purging any. From then on it costs what the old box's operator costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Tree = str | tuple["Tree", "Tree"]


@dataclass(frozen=True, slots=True)
class NestedLoop:
    """The costs of a nested-loop window join: `compare` a pair, `insert` (or purge) a tuple, within a window."""

    window: float
    compare: float = 1.0
    insert: float = 1.0

    def recomputed_state(self, left_rate: float, right_rate: float, factor: float) -> float:
        """Equation 1: computing a missing state from the two below it.

        >>> NestedLoop(10).recomputed_state(2, 3, 0.1)
        660.0
        """
        pairs = left_rate * right_rate * self.window**2
        return self.compare * pairs + self.insert * pairs * factor

    def output_rate(self, left_rate: float, right_rate: float, factor: float) -> float:
        """Equation 2: how fast results come once states are full."""
        return 2 * left_rate * right_rate * self.window * factor

    def growing_output_rate(self, left_rate: float, right_rate: float, factor: float, time: float) -> float:
        """Equation 7, balanced: how fast results come when states have grown for a time.

        >>> NestedLoop(10).growing_output_rate(2, 3, 0.5, 5), NestedLoop(10).growing_output_rate(2, 3, 0.5, 99)
        (30.0, 60.0)
        """
        return 2 * left_rate * right_rate * factor * min(time, self.window)

    def old_operator(self, left_rate: float, right_rate: float) -> float:
        """Equation 5: two windows of input with full states."""
        return 2 * self._full_window(left_rate, right_rate)

    def new_operator(self, left_rate: float, right_rate: float) -> float:
        """Equation 6, balanced: two windows of input, the first of them into growing states.

        >>> NestedLoop(10).new_operator(2, 3)
        1950.0
        """
        pairs = left_rate * right_rate * self.window**2
        first = self.compare * pairs + self.insert * (left_rate + right_rate) * self.window
        return first + self._full_window(left_rate, right_rate)

    def _full_window(self, left_rate: float, right_rate: float) -> float:
        pairs = 2 * left_rate * right_rate * self.window
        return self.window * (self.compare * pairs + 2 * self.insert * (left_rate + right_rate))

    def track_length(self, height: int) -> float:
        """Equation 4: how long parallel track takes."""
        return self.window if height == 1 else 2 * self.window

    def moving_length(self, tree: Tree, factors: Mapping[frozenset[str], float], rates: Mapping[str, float]) -> float:
        """Equations 3 and 8: computing all states of a left- or right-deep or bushy tree but the result and the leaves.

        >>> factors = {frozenset("BC"): 0.02, frozenset("BCD"): 0.1}
        >>> NestedLoop(10).moving_length(("A", (("B", "C"), "D")), factors, dict.fromkeys("ABCD", 1.0))
        146.0
        """
        return sum(self._missing(child, factors, rates)[0] for child in tree if isinstance(child, tuple))

    def _missing(
        self, tree: Tree, factors: Mapping[frozenset[str], float], rates: Mapping[str, float]
    ) -> tuple[float, float, frozenset[str]]:
        """The cost of a state and of those below it, its rate, and its streams."""
        if isinstance(tree, str):
            return 0.0, rates[tree], frozenset({tree})
        left, right = (self._missing(child, factors, rates) for child in tree)
        streams = left[2] | right[2]
        factor = factors[streams]
        here = self.recomputed_state(left[1], right[1], factor)
        return left[0] + right[0] + here, self.output_rate(left[1], right[1], factor), streams
