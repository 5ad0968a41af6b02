"""Windows, by their definitions: from when until when each tuple of a stream counts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from midstream.algebra.semantics.clock import EPOCH, MICROSECOND, first_instant, wall_ticks, zone_of
from midstream.algebra.semantics.values import Row, identity, order, row_order
from midstream.algebra.time import INFINITY
from midstream.algebra.windows import ColumnOrder, Hop, Range, Rows, SessionGap, Unbounded, Until, WindowSpec
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


def in_order(stream: list[Tuple], ties: tuple[ColumnOrder, ...] = (), names: list[str] | None = None) -> list[Tuple]:
    """The stream by time, ties by some columns and then by all."""
    # Sorting keeps the order of what is equal, so the last key comes first.
    found = sorted(stream, key=lambda tuple_: row_order(tuple_.row))
    for tie in reversed(ties):
        place = (names or []).index(tie.name)
        found.sort(key=lambda tuple_: order(tuple_.row[place]), reverse=tie.descending)
        found.sort(key=lambda tuple_: (tuple_.row[place] is None) != tie.nulls_first)
    return sorted(found, key=lambda tuple_: tuple_.time)


def windowed(
    stream: list[Tuple], spec: WindowSpec, names: list[str], bounds: bool = False, tick: int = 1
) -> list[Element]:
    """The elements a window makes of a stream whose columns have these names, with the window's bounds if asked for.

    Bounds are given as ticks; `tick` is how much one is in a column of times.
    """
    match spec:
        case Range(size):
            found = [Element(row, time, min(time + size + 1, INFINITY)) for time, row in stream]
        case Unbounded():
            found = [Element(row, time, INFINITY) for time, row in stream]
        case Until(column):
            place = names.index(column)
            ends = [INFINITY if row[place] is None else min(row[place] // tick, INFINITY) for _, row in stream]
            found = [Element(row, time, end) for (time, row), end in zip(stream, ends, strict=True)]
        case Rows(count, partition_by, slide, ties):
            parts = partitions(in_order(stream, ties, names), [names.index(name) for name in partition_by])
            found = [element for part in parts for element in _row_window(part, count, slide)]
        case SessionGap(gap, partition_by):
            parts = partitions(in_order(stream), [names.index(name) for name in partition_by])
            found = [element for part in parts for element in _sessions(part, gap, bounds)]
        case Hop():
            boundaries = boundaries_of(spec)
            found = [Element(row, *boundaries.validity(time - spec.takes_in_end)) for time, row in stream]
            if bounds:
                found = [piece for element in found for piece in _pieces(element, boundaries)]
        case _:
            raise InternalError(f"no such window: {spec}")
    return [element for element in found if element.start < element.end]


def partitions(stream: list[Tuple], keys: list[int]) -> list[list[Tuple]]:
    """The tuples of a stream by the columns of a key, each part in the stream's order."""
    parts: dict[Hashable, list[Tuple]] = {}
    for arrival in stream:
        parts.setdefault(tuple(identity(arrival.row[key]) for key in keys), []).append(arrival)
    return list(parts.values())


def _row_window(stream: list[Tuple], count: int, slide: int) -> list[Element]:
    """A tuple counts from the first window that holds it, of one per `slide` tuples, until the one after the last."""

    def ending(window: int) -> int:
        return stream[window * slide - 1].time if window * slide <= len(stream) else INFINITY

    found = []
    for place, (_, row) in enumerate(stream, 1):
        holding = [w for w in range(-(-place // slide), (place + count) // slide + 1) if w * slide - count < place]
        if holding:
            found.append(Element(row, ending(holding[0]), ending(holding[-1] + 1)))
    return found


def _sessions(stream: list[Tuple], gap: int, bounds: bool) -> list[Element]:
    sessions: list[list[Tuple]] = []
    for arrival in stream:
        if not sessions or arrival.time - sessions[-1][-1].time > gap:
            sessions.append([])
        sessions[-1].append(arrival)
    found = []
    for session in sessions:
        end = session[-1].time + gap
        extra = (session[0].time, end) if bounds else ()
        found += [Element((*row, *extra), end, end + 1) for _, row in session]
    return found


def _pieces(element: Element, boundaries: Boundaries) -> Iterator[Element]:
    """An element boundary by boundary, with the bounds of the window that ends there."""
    for boundary in boundaries.within(element.start, element.end):
        bounds = (boundaries.beginning(boundary), boundary)
        yield Element((*element.row, *bounds), boundary, min(element.end, boundaries.after(boundary)))


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
        if self.hop.cumulative:
            return start, self.after(boundaries_of(self.hop.whole).after(time))
        return (start, self.after(self.instant(last))) if self.instant(last) >= start else (start, start)

    def beginning(self, boundary: int) -> int:
        """When the window that ends at a boundary begins."""
        last = self._multiple_up_to(self.shown(boundary))
        if not self.hop.cumulative:
            return self.instant(last - self.hop.size)
        return self.instant(last - self.hop.slide - (last - self.hop.slide - self.hop.offset) % self.hop.size)

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


class MonthBoundaries(Boundaries):
    """Boundaries at the first instants of months on a clock, which are counted from January 1970."""

    def instant(self, shown: int) -> int:
        year, month = divmod(shown, 12)
        return first_instant(dt.datetime(1970 + year, month + 1, 1), zone_of(self.hop.zone))

    def shown(self, instant: int) -> int:
        wall = EPOCH + wall_ticks(instant, zone_of(self.hop.zone)) * MICROSECOND
        return (wall.year - 1970) * 12 + wall.month - 1


def boundaries_of(hop: Hop) -> Boundaries:
    """The boundaries of a hopping window."""
    if hop.months:
        return MonthBoundaries(hop)
    return ZoneBoundaries(hop) if hop.zone else Boundaries(hop)
