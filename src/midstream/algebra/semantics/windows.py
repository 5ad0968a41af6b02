"""Windows, by their definitions: from when until when each tuple of a stream counts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import NamedTuple

from midstream.algebra.semantics.clock import EPOCH, MICROSECOND, first_instant, wall_ticks, zone_of
from midstream.algebra.semantics.values import Row, identity, row_order
from midstream.algebra.time import INFINITY
from midstream.algebra.windows import Hop, Range, Rows, Unbounded, WindowSpec
from midstream.errors import InternalError


class Tuple(NamedTuple):
    """A tuple of a stream."""

    time: int
    row: Row


class Element(NamedTuple):
    """A row and the half-open interval of ticks over which it is valid."""

    row: Row
    start: int
    end: int


def in_order(stream: list[Tuple]) -> list[Tuple]:
    """The stream by time, ties by all columns."""
    return sorted(stream, key=lambda tuple_: (tuple_.time, row_order(tuple_.row)))


def windowed(stream: list[Tuple], spec: WindowSpec, names: list[str]) -> list[Element]:
    """The elements a window makes of a stream whose columns have these names."""
    match spec:
        case Range(size):
            found = [Element(row, time, min(time + size + 1, INFINITY)) for time, row in stream]
        case Unbounded():
            found = [Element(row, time, INFINITY) for time, row in stream]
        case Rows(count, partition_by):
            found = _row_window(in_order(stream), count, [names.index(name) for name in partition_by])
        case Hop():
            boundaries = boundaries_of(spec)
            found = [Element(row, *boundaries.validity(time)) for time, row in stream]
        case _:
            raise InternalError(f"no such window: {spec}")
    return [element for element in found if element.start < element.end]


def _row_window(stream: list[Tuple], count: int, keys: list[int]) -> list[Element]:
    found = []
    for position, (time, row) in enumerate(stream):
        successors = [later.time for later in stream[position + 1 :] if _same(later.row, row, keys)]
        found.append(Element(row, time, successors[count - 1] if len(successors) >= count else INFINITY))
    return found


def _same(left: Row, right: Row, keys: list[int]) -> bool:
    return all(identity(left[key]) == identity(right[key]) for key in keys)


class Boundaries:
    """The instants at which a hopping window moves: `offset + i * slide` for every whole `i`."""

    def __init__(self, hop: Hop) -> None:
        self.hop = hop

    def instant(self, shown: int) -> int:
        """The instant of a time on the window's clock."""
        return shown

    def shown(self, instant: int) -> int:
        """What the window's clock shows at an instant."""
        return instant

    def after(self, instant: int) -> int:
        """The first boundary after an instant."""
        guess = self._multiple_up_to(self.shown(instant))
        while self.instant(guess) > instant:
            guess -= self.hop.slide
        while self.instant(guess) <= instant:
            guess += self.hop.slide
        return self.instant(guess)

    def validity(self, time: int) -> tuple[int, int]:
        """From the first boundary after the tuple until the one after the last whose window reaches back to it.

        The window of a boundary reaches back `size` on the window's own clock: a day of 23 hours is a day.
        """
        last = self._multiple_up_to(self.shown(time) + self.hop.size)
        while self.instant(last - self.hop.size) > time:
            last -= self.hop.slide
        while self.instant(last + self.hop.slide - self.hop.size) <= time:
            last += self.hop.slide
        start = self.after(time)
        return (start, self.after(self.instant(last))) if self.instant(last) >= start else (start, start)

    def within(self, start: int, end: int) -> Iterator[int]:
        """The boundaries in a half-open interval."""
        boundary = self.after(start - 1)
        while boundary < end:
            yield boundary
            boundary = self.after(boundary)

    def _multiple_up_to(self, shown: int) -> int:
        return shown - (shown - self.hop.offset) % self.hop.slide


class ZoneBoundaries(Boundaries):
    """Boundaries on a zone's clock: skipped ones move to the end of the gap, repeated ones count the first time."""

    def __init__(self, hop: Hop) -> None:
        super().__init__(hop)
        self.zone: dt.tzinfo = zone_of(hop.zone)

    def instant(self, shown: int) -> int:
        return first_instant(EPOCH + shown * MICROSECOND, self.zone)

    def shown(self, instant: int) -> int:
        return wall_ticks(instant, self.zone)


def boundaries_of(hop: Hop) -> Boundaries:
    """The boundaries of a hopping window."""
    return ZoneBoundaries(hop) if hop.zone else Boundaries(hop)
