"""A zone's wall clock as a table of the instants at which it was set.

Between two settings the clock runs with true time, so its reading, the latest reading it has shown so far (its mark),
and the first instant of a mark are sums and comparisons around one binary search. Settings are looked for from 1900 to
2100; before and after, the clock is taken to run undisturbed. (Arrow's own clocks know no settings after 2037.)
"""

from __future__ import annotations

import datetime as dt
from functools import lru_cache

import numpy as np

from midstream.algebra.semantics.clock import zone_of
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.algebra.windows import Hop
from midstream.operators.elements import Ticks

_FIRST, _LAST = (int(dt.datetime(year, 1, 1, tzinfo=dt.UTC).timestamp()) for year in (1900, 2100))
_STEP = 3 * 86_400
"""Seconds between looks at the clock; since 1900 no zone has set its clock twice within three days."""

_FAR = 2**62
"""Beyond this tick no clock is read: such ticks only stand for the ends of time."""

_FAR_MONTHS = 1_700_000
"""The months that lie within that many ticks."""


class WallClock:
    """Readings of a zone's clock, in microseconds of that clock from 1970-01-01 00:00."""

    __slots__ = ("_marks", "_offsets", "_reached", "_starts", "settings")

    def __init__(self, settings: Ticks, offsets: Ticks) -> None:
        """`settings` are the instants at which the offset from UTC changes, `offsets` those before and after each."""
        before_all = np.array([-2 * _FAR])
        self.settings = settings
        self._offsets = offsets
        self._starts = np.concatenate((before_all, settings))
        self._marks = np.maximum.accumulate(np.concatenate((before_all, settings + offsets[:-1] - 1)))
        self._reached = self._marks[1:].copy()

    def reading(self, instants: Ticks) -> Ticks:
        """What the clock shows at each instant."""
        if not _near(instants):
            instants = np.clip(instants, -_FAR, _FAR)
        return instants + self._offsets.take(np.searchsorted(self.settings, instants, side="right"))

    def mark(self, instants: Ticks) -> Ticks:
        """The latest reading that the clock has shown up to each instant."""
        if not _near(instants):
            return _with_ends(self.mark(np.clip(instants, 1 - _FAR, _FAR - 1)), instants)
        run = np.searchsorted(self.settings, instants, side="right")
        marks: Ticks = np.maximum(instants + self._offsets.take(run), self._marks.take(run))
        return marks

    def first_instant(self, marks: Ticks) -> Ticks:
        """The first instant at which the clock shows each reading or a later one."""
        if not _near(marks):
            return _with_ends(self.first_instant(np.clip(marks, 1 - _FAR, _FAR - 1)), marks)
        run = np.searchsorted(self._reached, marks, side="left")
        instants: Ticks = np.maximum(marks - self._offsets.take(run), self._starts.take(run))
        return instants


class MonthClock:
    """Counts the months of a calendar from January 1970, on a zone's clock if there is one."""

    def __init__(self, clock: WallClock | None) -> None:
        self.clock = clock

    def mark(self, instants: Ticks) -> Ticks:
        """The latest month that has begun up to each instant."""
        near = np.clip(instants, 1 - _FAR, _FAR - 1)
        shown = near if self.clock is None else self.clock.mark(near)
        months: Ticks = shown.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
        return _with_ends(months, instants)

    def first_instant(self, marks: Ticks) -> Ticks:
        """When each month begins."""
        near = np.clip(marks, -_FAR_MONTHS, _FAR_MONTHS)
        shown: Ticks = near.astype("datetime64[M]").astype("datetime64[us]").astype(np.int64)
        instants = shown if self.clock is None else self.clock.first_instant(shown)
        return np.where(marks > _FAR_MONTHS, INFINITY, np.where(marks < -_FAR_MONTHS, BEGINNING, instants))


def clock_of_hop(hop: Hop) -> WallClock | MonthClock | None:
    """What a hop's amounts are counted on; None for ticks."""
    clock = None if hop.zone is None else clock_of(hop.zone)
    return MonthClock(clock) if hop.months else clock


def _near(ticks: Ticks) -> bool:
    return len(ticks) == 0 or (int(ticks.max()) < _FAR and int(ticks.min()) > -_FAR)


def _with_ends(values: Ticks, ticks: Ticks) -> Ticks:
    return np.where(ticks >= _FAR, INFINITY, np.where(ticks <= -_FAR, BEGINNING, values))


@lru_cache(maxsize=64)
def clock_of(zone: str) -> WallClock:
    """The clock of a zone, by name or fixed offset."""
    tzinfo = zone_of(zone)
    offset = _offset(_FIRST, tzinfo)
    settings: list[int] = []
    offsets = [offset]
    for second in range(_FIRST + _STEP, _LAST, _STEP):
        later = _offset(second, tzinfo)
        if later != offset:
            settings.append(_setting_between(second - _STEP, second, tzinfo))
            offsets.append(later)
            offset = later
    microseconds = [o // dt.timedelta(microseconds=1) for o in offsets]
    return WallClock(np.array(settings, dtype=np.int64) * 1_000_000, np.array(microseconds, dtype=np.int64))


def _setting_between(early: int, late: int, tzinfo: dt.tzinfo) -> int:
    """The second at which the clock is set in a span, found by halving it."""
    before = _offset(early, tzinfo)
    while late - early > 1:
        middle = (early + late) // 2
        if _offset(middle, tzinfo) == before:
            early = middle
        else:
            late = middle
    return late


def _offset(second: int, tzinfo: dt.tzinfo) -> dt.timedelta:
    return dt.datetime.fromtimestamp(second, tzinfo).utcoffset() or dt.timedelta(0)
