"""The split time, and what it cuts.

The split time lies half a tick after the latest end that any element given to the old box can have, so no start and no
end ever equals it and whatever the old box knew when the migration began lies before it. An element that crosses it
belongs to both boxes.

Half ticks need no finer clock. In the new box a crossing element starts one tick before its time, at the last tick of
the old box: for the new box that tick is not a real instant, it stands for the half tick. In the old box elements keep
their true ends, and its tick after the split, which is not a real instant there because nothing that starts there is
given to it, stands for the same half tick. So both boxes have the same snapshot at it, and what crosses the split is
known by covering it. A genuine start or end at the neighbouring ticks never covers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from midstream.algebra.physical import SourceNode
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.algebra.windows import Hop, Range, Unbounded, Until
from midstream.operators.elements import Elements
from midstream.operators.hops import validity


@dataclass(frozen=True, slots=True)
class Split:
    """The split time `last + 1/2`: `last` is the last tick answered by the old box, `first` the first by the new."""

    last: int

    @property
    def first(self) -> int:
        """The first tick that the new box answers for."""
        return self.last + 1

    def parts(self, batch: Elements) -> tuple[Elements, Elements, Elements]:
        """What goes to the old box, what crosses (as the new box gets it), and what belongs to the new box alone."""
        early = batch.valid_from < self.first
        before = batch.where(early)
        crossing = before.where(before.valid_to > self.first)
        crossing = crossing.with_validity(np.full(len(crossing), self.last), crossing.valid_to)
        return before, crossing, batch.where(~early)


def split_after(sources: tuple[SourceNode, ...], starts: Mapping[str, int], registers: Mapping[str, int]) -> int:
    """The latest end that the windows give to any start seen; a silent input's register stands in for a start."""
    last = BEGINNING
    for source in sources:
        alias = source.stream.alias
        start = starts.get(alias, registers.get(alias, BEGINNING))
        if BEGINNING < start < INFINITY:
            last = max(last, end_of(source, start))
    return last


def end_of(source: SourceNode, start: int) -> int:
    """When an element of a source that came in at a time ends."""
    match source.window:
        case Hop() as hop:
            return int(validity(np.array([start], np.int64), hop)[1][0])
        case Unbounded() | Until():
            return INFINITY
        case Range(size):
            return start + size + 1
    return start + 1
