"""Two boxes side by side below one top.

ISTREAM, DSTREAM and RSTREAM look at neighbouring snapshots, so they cannot be run twice and united. While two boxes
run, they are the relational parts of their plans, and the old plan's last operator, if it turns a relation into a
stream, stays above both.
"""

from __future__ import annotations

from collections.abc import Iterator

from midstream.migration.execution import SingleBox, named
from midstream.migration.legality import is_to_stream
from midstream.operators.base import Operator
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.operators.slices import SliceOperator
from midstream.operators.state.sorted_state import SortedState
from midstream.scheduling.scheduler import Sink


class Top:
    """What stands above both boxes: nothing, or the operator that turns the relation into a stream."""

    def __init__(self, box: Box, sink: Sink) -> None:
        self.operator: Operator | None = box.operators[-1] if is_to_stream(box.plan) else None
        self.sink = sink

    def give(self, batch: Elements | None) -> None:
        """Takes a part of the relation."""
        if batch is None or len(batch) == 0:
            return
        if self.operator is None:
            self.sink(batch)
        else:
            self._send(self.operator.process(0, batch))

    def advance(self, frontier: int) -> None:
        """Learns that the relation is complete before the frontier."""
        if self.operator is not None and frontier > self.operator.frontier:
            self._send(self.operator.advance(frontier))

    def passed(self, frontier: int) -> int:
        """The frontier of what is given, when the relation's is this."""
        return frontier if self.operator is None else self.operator.passed

    def restore(self, frontier: int) -> None:
        """Goes on from a frontier of the relation that was reached earlier."""
        if self.operator is not None:
            self.operator.restore(frontier)

    def states(self) -> Iterator[SortedState]:
        """What the top remembers."""
        return iter(self.operator.states if self.operator is not None else ())

    def _send(self, batch: Elements | None) -> None:
        if batch is not None and len(batch):
            self.sink(batch)


def relational(execution: SingleBox, sink: Sink) -> SingleBox:
    """The same live box without its top, giving to another sink."""
    box = execution.box.below_root() if is_to_stream(execution.box.plan) else execution.box
    return execution.beside(box, sink)


def hand_over(top: Top, box: Box, track: Box) -> None:
    """Makes a whole box go on where its relational part and the top above both boxes have come to."""
    box.frontier = track.frontier
    root = box.operators[-1] if box.operators else None
    if top.operator is None or root is top.operator or not isinstance(root, SliceOperator):
        return
    assert isinstance(top.operator, SliceOperator)
    root.frontier, root.done = top.operator.frontier, top.operator.done
    for mine, its in zip(root.states, top.operator.states, strict=True):
        mine.replace_segments(its.segments)


def named_tracks(top: Top, old: SingleBox, new: SingleBox) -> Iterator[tuple[str, SortedState]]:
    """The states of both boxes and of the top, by name."""
    yield from named(old.states(), "old/")
    yield from named(new.states(), "new/")
    yield from named(top.states(), "top/")
