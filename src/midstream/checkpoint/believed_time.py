"""The wall clock, as far as it is believed: what cannot be taken back never follows from one look at it.

A wall clock can be set, wrongly too; a steady clock cannot. As long as the two go on together, the wall clock is right.
Where it steps away, time goes on by the steady clock from what was believed, until the wall clock has agreed with
itself for a while: then it was set on purpose. At the start of a process the newest manifest says what time it was at
least. Ticks, stamps of rows, the bound on rows that are ahead, and ages of results all take their time from here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from midstream.algebra.quantities import seconds as duration
from midstream.checkpoint.process import this_process

log = logging.getLogger(__name__)

TOLERANCE = 5.0
"""By how many seconds the wall clock may differ from what is expected: time services move it a little all the time."""

DRIFT = 1e-3
"""How much of the time that has gone by a clock may have gained or lost without being set."""

CONFIRMED_AFTER = 300.0
"""For how many seconds a clock that was set must agree with the steady one before it is believed."""

CONFIRMED_BY, APART = 3, 30.0
"""And in how many looks at least, which are so many seconds apart."""

LONGEST_REST = 366 * 86400.0
"""For how many seconds a job can have rested, as far as a first look at the clock is believed."""


@dataclass(slots=True)
class _Candidate:
    """Another reading of the wall clock that may come to be believed: its distance from the steady clock."""

    distance: float
    since: float
    looked: float
    looks: int = 1


class BelievedTime:
    """What time it is, in seconds since 1970."""

    def __init__(self) -> None:
        self._distance: float | None = None
        """By how much the wall clock is ahead of the steady one, as far as it is believed."""
        self._looked = 0.0
        self._candidate: _Candidate | None = None

    def begin_after(self, last: float | None) -> None:
        """Begins with a checkpoint whose newest batch was done then; what is far from that is not believed at first."""
        process = this_process()
        wall, steady = process.now(), process.steady()
        believable = last is None or last - TOLERANCE <= wall <= last + LONGEST_REST
        self._distance = (wall if believable or last is None else last) - steady
        self._looked, self._candidate = steady, None
        self.now()

    def now(self) -> float:
        """The time that is believed."""
        process = this_process()
        wall, steady = process.now(), process.steady()
        away = wall - steady
        if self._distance is None:
            self._distance = away
        elif abs(away - self._distance) > TOLERANCE:
            self._consider(away, steady)
        else:
            self._candidate = None
            most = (steady - self._looked) * DRIFT
            self._distance += max(-most, min(most, away - self._distance))
        self._looked = steady
        return wall if self._candidate is None else self._distance + steady

    def at_most(self, ticks: int | None) -> int | None:
        """An instant in microseconds that another clock may have given, but not after the time that is believed."""
        return None if ticks is None else min(ticks, int((self.now() + TOLERANCE) * 1e6))

    def _consider(self, away: float, steady: float) -> None:
        known = self._candidate
        if known is None or abs(known.distance - away) > TOLERANCE + (steady - known.since) * DRIFT:
            self._candidate = _Candidate(away, steady, steady)
            step = away - (self._distance or 0.0)
            log.warning(
                "the clock has stepped %s by %s: it is not believed until it has gone on from there for %s",
                "ahead" if step > 0 else "back",
                duration(abs(step)),
                duration(CONFIRMED_AFTER),
            )
            return
        if steady - known.looked >= APART:
            known.looks, known.looked = known.looks + 1, steady
        if known.looks >= CONFIRMED_BY and steady - known.since >= CONFIRMED_AFTER:
            log.warning("the clock is believed as it is now: it has gone on for %s", duration(steady - known.since))
            self._distance, self._candidate = away, None
