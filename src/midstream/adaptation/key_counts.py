"""How often the values of a key come: heavy hitters exactly, the others by a sample of values.

A value is in the sample if the low bits of its hash are zero: bits that neither routing nor state order use, and the
same values in every stream. Heavy values are shared between the keys that are compared with each other, so that each
of these keys counts them, however rare they are there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from midstream.algebra.statistics import KeyProfile
from midstream.codec import forgotten
from midstream.operators.elements import Hashes, Indices

SAMPLE = 4
"""One value in so many is in the sample."""

HEAVY = 1 / 128
"""The share of tuples from which on a value is heavy."""

TIMES = 2.5
ENOUGH = 24.0
FORGETTING = 0.05
"""A distribution has changed if it differs so many times, in more than so many pairs; then so much of it stays."""

MOST_HEAVY = 64
MOST_SAMPLED = 8192
"""How many values that are not heavy are counted: where there are more, only every second of them is."""

Weights = npt.NDArray[np.float64]


@dataclass(slots=True)
class HeavyValues:
    """The heavy values of a class of keys."""

    hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    shares: Weights = field(default_factory=lambda: np.empty(0, np.float64))

    def learn(self, hashes: Hashes, shares: Weights) -> None:
        """Takes values that were heavy in some key lately; the heaviest are kept, the others fade."""
        both = np.concatenate([self.hashes, hashes])
        weights = np.concatenate([self.shares * 0.95, shares])
        order = both.argsort(kind="stable")
        both, weights = both[order], weights[order]
        starts = _starts(both)
        values, largest = both[starts], np.maximum.reduceat(weights, starts)
        keep = np.flatnonzero(largest > HEAVY / 2)
        if len(keep) > MOST_HEAVY:
            keep = np.sort(keep[np.argsort(-largest[keep])[:MOST_HEAVY]])
        self.hashes, self.shares = values[keep], largest[keep]


@dataclass(slots=True)
class KeyCounts:
    """Fading counts of one key's values."""

    heavy: HeavyValues = forgotten(HeavyValues)
    hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    counts: Weights = field(default_factory=lambda: np.empty(0, np.float64))
    rows: float = 0.0
    likeness: float = 0.0
    sample: int = SAMPLE
    most: int = MOST_SAMPLED

    def add(self, hashes: Hashes, fade: float) -> None:
        """Takes the hashes of some tuples' keys; what was known fades."""
        if len(hashes) == 0:
            return
        everything = _counted(hashes)
        self._learn(*everything, len(hashes))
        values, counts = self._among_counted(*everything)
        old = self._kept()
        if self._changed(*old, values, counts, len(hashes)):
            fade = FORGETTING
            if self.sample > SAMPLE:
                self.sample = SAMPLE
                values, counts = self._among_counted(*everything)
        self.hashes, self.counts = _merged(*old, values, counts, fade)
        self.rows = self.rows * fade + len(hashes)
        while len(self.hashes) > self.most + len(self.heavy.hashes):
            self.sample *= 2
            self.likeness = 0.0
            self.hashes, self.counts = self._kept()

    def _kept(self) -> tuple[Hashes, Weights]:
        """What is counted and is in the sample, or heavy."""
        return self._among_counted(self.hashes, self.counts)

    def _among_counted(self, hashes: Hashes, counts: Weights) -> tuple[Hashes, Weights]:
        """Those of some values that are in the sample, or heavy, and their counts."""
        keep = (hashes & np.uint64(self.sample - 1)) == 0
        if len(self.heavy.hashes):
            keep |= _among(hashes, self.heavy.hashes)
        return hashes[keep], counts[keep]

    def _changed(self, old: Hashes, old_counts: Weights, new: Hashes, new_counts: Weights, rows: int) -> bool:
        """Whether the values come from another distribution than before.

        Pairs of equal values, one old and one new, are as many as before unless the distribution moved; pairs among the
        new alone are more than that if it has narrowed. Too few pairs say nothing.
        """
        if self.rows == 0:
            return False
        at = np.minimum(np.searchsorted(old, new), max(len(old) - 1, 0))
        met = old[at] == new if len(old) else np.zeros(len(new), bool)
        pairs = float((new_counts[met] * old_counts[at[met]]).sum())
        likeness = pairs / (rows * self.rows)
        own = float((new_counts * (new_counts - 1)).sum())
        narrowed = own > ENOUGH and own / (rows * rows) > TIMES * max(likeness, 0.5 / (rows * self.rows))
        expected = self.likeness * rows * self.rows
        moved = expected > ENOUGH and not 1 / TIMES < likeness / self.likeness < TIMES
        if narrowed or moved:
            self.likeness = own / (rows * rows)
            return True
        self.likeness = likeness if self.likeness == 0 else 0.7 * self.likeness + 0.3 * likeness
        return False

    def _learn(self, values: Hashes, counts: Weights, rows: int) -> None:
        """Looks for heavy values among those of some tuples."""
        often = counts >= max(3.0, HEAVY * rows)
        if often.any():
            self.heavy.learn(values[often], counts[often] / rows)

    def profile(self) -> KeyProfile:
        """The shares of the values, as the optimizer reads them."""
        hashes, counts = self._kept()
        heavy = _among(hashes, self.heavy.hashes)
        shares = counts / max(self.rows, 1.0)
        for array in (hashes, shares, heavy):
            array.setflags(write=False)
        return KeyProfile(hashes, shares, heavy, self.sample, self.rows)


def _counted(hashes: Hashes) -> tuple[Hashes, Weights]:
    ordered = np.sort(hashes)
    if len(ordered) == 0:
        return ordered, np.empty(0)
    starts = _starts(ordered)
    counts = np.empty(len(starts))
    np.subtract(starts[1:], starts[:-1], out=counts[:-1])
    counts[-1] = len(ordered) - starts[-1]
    return ordered[starts], counts


def _starts(ordered: Hashes) -> Indices:
    """Where runs of equal values begin; there is at least one value."""
    fresh = np.empty(len(ordered), bool)
    fresh[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return fresh.nonzero()[0]


def _among(values: Hashes, ordered: Hashes) -> npt.NDArray[np.bool_]:
    if len(ordered) == 0:
        return np.zeros(len(values), bool)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.asarray(ordered[at] == values)


def _merged(old: Hashes, old_counts: Weights, new: Hashes, new_counts: Weights, fade: float) -> tuple[Hashes, Weights]:
    both = np.concatenate([old, new])
    counts = np.concatenate([old_counts * fade, new_counts])
    order = np.argsort(both, kind="stable")
    both, counts = both[order], counts[order]
    if len(both) == 0:
        return both, counts
    starts = _starts(both)
    values, summed = both[starts], np.add.reduceat(counts, starts)
    lasting = summed > 0.05
    return values[lasting], summed[lasting]
