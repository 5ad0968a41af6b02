"""Which firsts each second of a sequence takes, once both are in order of key and time.

The firsts that a second may take are a run `[low, high)` of its key's. Taking the latest or the earliest of it, or
every one, is a matter of positions. Where each first is used once, a second takes the earliest that is still unused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from midstream.algebra.plan import TimeOrder
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.operators.elements import Elements, Indices, Mask, Ticks
from midstream.operators.join import PAIRS_AT_ONCE, chunks
from midstream.operators.row_identity import NO_ROW
from midstream.operators.state.segment import expand


@dataclass(frozen=True, slots=True)
class PairedRun:
    """Firsts and seconds in order of key and time, and for each second the run of firsts it may take.

    `rows` numbers the stream's rows at which firsts and seconds happen, if some may be the same.
    """

    firsts: Elements
    seconds: Elements
    groups: Indices
    low: Indices
    high: Indices
    rows: tuple[Indices, Indices] | None = None

    def same(self, here: Indices, there: Indices) -> Mask:
        """For pairs of a first and a second, whether they happen at the same row."""
        if self.rows is None:
            return np.zeros(len(here), bool)
        rows = self.rows[0][here]
        same: Mask = (rows == self.rows[1][there]) & (rows != NO_ROW)
        return same


def reach(
    firsts: Elements, of_first: Indices, seconds: Elements, of_second: Indices, within: int | None, order: TimeOrder
) -> tuple[Indices, Indices]:
    """For each second, where the firsts that it may take begin and end; both with the groups that they are of."""
    later = order in (">=", ">")
    far = _far(seconds.valid_from, within, later)
    moments, ranks = np.unique(np.concatenate([firsts.valid_from, seconds.valid_from, far]), return_inverse=True)
    parts = np.split(ranks, [len(firsts), len(firsts) + len(seconds)])
    places = of_first * len(moments) + parts[0]
    near, distant = (of_second * len(moments) + part for part in parts[1:])
    if later:
        low = np.searchsorted(places, near, side="left" if order == ">=" else "right")
        high = np.searchsorted(places, distant, side="right")
    else:
        low = np.searchsorted(places, distant)
        high = np.searchsorted(places, near, side="right" if order == "<=" else "left")
    return low, np.maximum(low, high)


def _far(times: Ticks, within: int | None, later: bool) -> Ticks:
    """The time of the farthest first that each second may take."""
    if within is None:
        return np.full(len(times), INFINITY if later else BEGINNING)
    if later:
        return np.minimum(times, INFINITY - within) + within
    return np.maximum(times, BEGINNING + within) - within


def latest(run: PairedRun) -> tuple[Indices, Indices]:
    """Each second with the last first of its run that is not the same row."""
    here = run.high - 1
    return _stepped(run, here, -1)


def earliest(run: PairedRun) -> tuple[Indices, Indices]:
    """Each second with the first one of its run that is not the same row."""
    return _stepped(run, run.low.copy(), 1)


def _stepped(run: PairedRun, here: Indices, step: int) -> tuple[Indices, Indices]:
    there = np.flatnonzero((here >= run.low) & (here < run.high))
    here = here[there]
    while run.rows is not None and len(here):
        same = run.same(here, there)
        if not same.any():
            break
        here = here + step * same
        inside = (here >= run.low[there]) & (here < run.high[there])
        here, there = here[inside], there[inside]
    return here, there


def every(run: PairedRun) -> Iterator[tuple[Indices, Indices]]:
    """All pairs of a second and a first in its run that is not the same row, some at a time, in order of both."""
    for begin, stop in chunks(run.high - run.low, PAIRS_AT_ONCE):
        there, here, _ = expand(np.arange(begin, stop), run.low[begin:stop], run.high[begin:stop])
        if run.rows is not None:
            different = ~run.same(here, there)
            here, there = here[different], there[different]
        yield here, there


def earliest_unused(run: PairedRun) -> tuple[Indices, Indices]:
    """Each second with the first that is its earliest unused one, if there is one; any pair will do.

    Let `q` be the first after the last one used. A second takes `max(q, low)` if that is before `high`, so afterwards
    `q` is `min(max(q, low) + 1, high)`. Less the second's number, that only ever clamps `q` between two bounds, and
    clamps compose: all of them are found by doubling, without going through the seconds one by one.
    """
    numbers = np.arange(len(run.low))
    upper = run.high - numbers
    lower = np.minimum(run.low + 1 - numbers, upper)
    starts = np.append(True, run.groups[1:] != run.groups[:-1])
    # The first second of a key has nothing before it: it clamps to one value.
    upper = np.where(starts, lower, upper)
    lower, upper = _composed(lower, upper)
    after = lower + numbers
    before = np.where(starts, run.low, np.append(0, after[:-1]))
    taken = np.maximum(before, run.low)
    there = np.flatnonzero(taken < run.high)
    return taken[there], there


def _composed(lower: Indices, upper: Indices) -> tuple[Indices, Indices]:
    """For each position, the clamp that all clamps up to it make together."""
    step = 1
    while step < len(lower) and bool((lower != upper).any()):
        low, high = lower.copy(), upper.copy()
        low[step:] = np.clip(lower[:-step], lower[step:], upper[step:])
        high[step:] = np.clip(upper[:-step], lower[step:], upper[step:])
        lower, upper = low, high
        step *= 2
    return lower, upper


def served_in_turn(here: Indices, there: Indices) -> Mask:
    """Which of the pairs come about if each second in turn takes the earliest first that is left of its pairs.

    Pairs are in order of second, then first. All seconds ask at once for their earliest; a first keeps the earliest
    second that asks, the others go on to their next. Since all firsts prefer the same seconds, what is stable in the
    end is what going through the seconds in turn gives.
    """
    _, begins, counts = np.unique(there, return_index=True, return_counts=True)
    firsts, wanted = np.unique(here, return_inverse=True)
    asking, ends = begins.copy(), begins + counts
    open_ = np.arange(len(begins))
    keeper = np.full(len(firsts), len(begins))
    while len(open_):
        np.minimum.at(keeper, wanted[asking[open_]], open_)
        everyone = np.flatnonzero(asking < ends)
        open_ = everyone[keeper[wanted[asking[everyone]]] != everyone]
        asking[open_] += 1
        open_ = open_[asking[open_] < ends[open_]]
    chosen = np.zeros(len(here), bool)
    chosen[asking[asking < ends]] = True
    return chosen
