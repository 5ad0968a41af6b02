"""GenMig over signed tuples (GenMig section 4.6).

Positives that come after the migration began, and their own negatives, go to the new box; to the old one only if they
are before the split. Negatives of earlier positives go to the old box alone, which is where their positives are. Of the
old box's results those before the split are taken, of the new box's those after it. At the split everything earlier has
ended, so both boxes hold the same there and no sign is needed to go from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable

from midstream.algebra.physical import SourceNode
from midstream.lab.papers.positive_negative.signed_box import SignedBox, Sink
from midstream.migration.protocol import Figures, widened
from midstream.operators.elements import Elements

MakeBox = Callable[[Sink], SignedBox]


class SignedGenMig:
    """Runs the old box before the split and the new one after it; `last` is the old box's last tick."""

    def __init__(self, old: SignedBox, new: MakeBox, last: int) -> None:
        self.old, self.last = old, last
        self.sink = old.sink
        self.figures = Figures()
        old.sink = self._from_old
        self.new = new(self._from_new)
        self.new.advance(old.frontier)

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """What both boxes read: all columns of either."""
        return tuple(widened(source, self.new.inputs[source.stream.alias][0]) for source in self.old.sources)

    def feed(self, alias: str, batch: Elements) -> None:
        """Gives the batch to the new box, and to the old one what is before the split."""
        self.old.feed(alias, batch, until=self.last + 1)
        self.new.feed(alias, batch)
        self.figures.processed_twice += int((batch.valid_from <= self.last).sum())

    def advance(self, frontier: int) -> None:
        """Carries the frontier through both boxes."""
        self.old.advance(min(frontier, self.last + 1))
        self.new.advance(frontier)
        self.figures.holding(self.new.rows)

    @property
    def done(self) -> bool:
        """Whether time has passed the split."""
        return self.new.frontier > self.last

    def finish(self) -> SignedBox:
        """Leaves the new box."""
        self.new.sink = self.sink
        return self.new

    def _from_old(self, batch: Elements) -> None:
        self.sink(batch.where(batch.valid_from <= self.last))

    def _from_new(self, batch: Elements) -> None:
        self.sink(batch.where(batch.valid_from > self.last))
