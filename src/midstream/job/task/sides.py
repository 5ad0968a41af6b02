"""Two plans of a query side by side, each answering for its own time: how plans of several stages migrate.

As in GenMig, a split lies after every end that the old plan can contain. The old plan gets what starts before it, the
new plan what is valid after it, so both see all that their time needs. The halves of a result could lie in different
slots, so none are mended: where plans keep intervals the old one gives its results whole and the new one leaves out its
halves of them (the reference point); elsewhere results are cut at the split, which no snapshot can tell.

The old side keeps what it leaves out. It can therefore go on alone at any time: to cancel, it is given what only the
new side has seen, silently, through all its stages, because the new side has given the results of that already.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from midstream.algebra.physical import Source
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.migration.split import Split
from midstream.operators.elements import Elements
from midstream.operators.state.sorted_state import SortedState

AHEAD = " ahead of the split"
"""What is added to a source's alias to name what the old side has left out of it."""

NEW = "~new"
"""What is added to a query's name for the plan that it migrates to."""

REST = "~rest"
"""What is added to it for what the old plan has kept that the new one has yet to be given, bit by bit."""

LEAVING, COMING = "~leaving", "~coming"
"""What is added to it for groups that move, in the slots that they leave and in those that they come to."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of two plans: the old one or the new one; `whole` says that both keep intervals."""

    split_after: int
    new: bool
    whole: bool

    def fed(self, elements: Elements) -> list[Elements]:
        """What of a source's elements it takes."""
        before, crossing, later = Split(self.split_after).parts(elements)
        return [crossing, later] if self.new else [before]

    def ahead(self, elements: Elements) -> Elements:
        """What of a source's elements the old side leaves out, and would need if it went on alone."""
        return Split(self.split_after).parts(elements)[2]

    def counted(self, results: Elements) -> Elements:
        """What of its results counts."""
        first = Split(self.split_after).first
        if self.whole:
            return results.where(results.valid_from >= first) if self.new else results
        return results.clipped(first, INFINITY) if self.new else results.clipped(BEGINNING, first)


class Unheard(Side):
    """A new plan that takes all that comes and gives no results yet, because the old one answers for all time."""

    __slots__ = ()

    def fed(self, elements: Elements) -> list[Elements]:
        """Everything."""
        return [elements]

    def counted(self, results: Elements) -> Elements:
        """Nothing."""
        return results.slice(0, 0)


class SidePart:
    """A side at work in a task: what it is fed with, and what the old side keeps of what it leaves out."""

    def __init__(self, side: Side, sources: Iterable[Source]) -> None:
        self.side = side
        self.ahead = {} if side.new else {source.stream.alias: left_out(source) for source in sources}
        self.crossing = 0
        """Rows that both sides have taken."""

    def fed(self, alias: str, elements: Elements) -> list[Elements]:
        """What of a source's elements it takes; the old side keeps the others."""
        parts = self.side.fed(elements)
        if self.side.new:
            self.crossing += len(parts[0])
        if alias in self.ahead:
            later = self.side.ahead(elements)
            self.ahead[alias].append(later, np.zeros(len(later), np.uint64))
        return parts

    @property
    def rows_ahead(self) -> int:
        """How many rows are kept that were left out."""
        return sum(state.rows for state in self.ahead.values())


def left_out(source: Source) -> SortedState:
    """The state that keeps what the old side leaves out of a source."""
    return SortedState(f"{source.stream.alias}{AHEAD}", (), source.schema, None)


def base_name(name: str) -> str:
    """The query's name, whichever side or track it is."""
    return name.removesuffix(NEW).removesuffix(REST).removesuffix(LEAVING).removesuffix(COMING)
