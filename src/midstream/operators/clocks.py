"""A zone's wall clock as a table of the instants at which it was set.

Between two settings the clock runs with true time, so its reading, the latest reading it has shown so far (its mark),
and the first instant of a mark are sums and comparisons around one binary search. Settings are looked for from 1900 to
2100; before and after, the clock is taken to run undisturbed.
"""

from __future__ import annotations

import datetime as dt
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.semantics_clock import zone_of
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.operators.elements import Ticks

_SECOND = 1_000_000
_FIRST, _LAST = (int(dt.datetime(year, 1, 1, tzinfo=dt.UTC).timestamp()) for year in (1900, 2100))
_STEP = 21_600
_FAR = 2**62
"""Beyond this tick no clock is read: such ticks only stand for the ends of time."""


class WallClock:
    """Readings of a zone's clock, in microseconds of that clock from 1970-01-01 00:00."""

    __slots__ = ("_marks", "_offsets", "_settings")

    def __init__(self, settings: Ticks, offsets: Ticks) -> None:
        """`settings` are the instants at which the offset from UTC changes, `offsets` those before and after each."""
        self._settings = settings
        self._offsets = offsets
        last_readings = settings + offsets[:-1] - 1
        self._marks = np.maximum.accumulate(np.concatenate(([-_FAR * 2], last_readings)))

    def mark(self, instants: Ticks) -> Ticks:
        """The latest reading that the clock has shown up to each instant."""
        inside = np.clip(instants, -_FAR, _FAR)
        run = np.searchsorted(self._settings, inside, side="right")
        marks = np.maximum(inside + self._offsets.take(run), self._marks.take(run))
        return _with_ends(marks, instants)

    def first_instant(self, marks: Ticks) -> Ticks:
        """The first instant by which the clock has shown each reading or a later one."""
        inside = np.clip(marks, -_FAR, _FAR)
        run = np.searchsorted(self._marks[1:], inside, side="left")
        starts = np.concatenate(([-_FAR * 2], self._settings))
        found = np.maximum(inside - self._offsets.take(run), starts.take(run))
        return _with_ends(found, marks)


def _with_ends(values: Ticks, ticks: Ticks) -> Ticks:
    if len(ticks) == 0 or (int(ticks.max()) < _FAR and int(ticks.min()) > -_FAR):
        return values
    return np.where(ticks >= _FAR, INFINITY, np.where(ticks <= -_FAR, BEGINNING, values))


@lru_cache(maxsize=64)
def clock_of(zone: str) -> WallClock:
    """The clock of a zone, by name or fixed offset."""
    zone_of(zone)  # refuses unknown zones by name
    grid = np.arange(_FIRST, _LAST, _STEP, dtype=np.int64)
    offsets = _offsets(grid, zone)
    changed = np.flatnonzero(np.diff(offsets))
    settings = _settings_between(grid[changed], grid[changed + 1], offsets[changed], zone)
    return WallClock(settings * _SECOND, np.append(offsets[:1], offsets[changed + 1]) * _SECOND)


def _settings_between(early: Ticks, late: Ticks, before: Ticks, zone: str) -> Ticks:
    """The seconds at which the offset leaves its value at the early end of each span: by halving the spans."""
    for _ in range(_STEP.bit_length()):
        middle = (early + late) // 2
        still = _offsets(middle, zone) == before
        early, late = np.where(still, middle, early), np.where(still, late, middle)
    return late


def _offsets(seconds: Ticks, zone: str) -> Ticks:
    instants = pa.array(seconds).cast(pa.timestamp("s", zone))
    shown: Ticks = pc.local_timestamp(instants).cast(pa.int64()).to_numpy()
    return shown - seconds
