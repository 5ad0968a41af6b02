"""A clock that stands still until a test moves it."""

from __future__ import annotations

import datetime as dt
from contextlib import AbstractContextManager
from types import TracebackType

from midstream.algebra.time import TIMESTAMP_TIME, ticks
from midstream.checkpoint.process import Process, running_as

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class FakeClock(Process):
    """The time that sessions stamp rows with: `ms.Session(clock=clock)`, or any session within `with clock:`.

    Called, it gives microseconds since 1970.

    >>> clock = FakeClock(dt.datetime(2024, 5, 1, 12))
    >>> clock.advance("90 seconds")
    >>> clock.time.isoformat()
    '2024-05-01T12:01:30+00:00'
    """

    def __init__(self, start: dt.datetime = START) -> None:
        aware = start if start.tzinfo is not None else start.replace(tzinfo=dt.UTC)
        self._ticks = (aware - _EPOCH) // dt.timedelta(microseconds=1)
        self._within: list[AbstractContextManager[None]] = []

    def __call__(self) -> int:
        return self._ticks

    @property
    def time(self) -> dt.datetime:
        """What time it is."""
        return _EPOCH + dt.timedelta(microseconds=self._ticks)

    def now(self) -> float:
        """Seconds since 1970."""
        return self._ticks / 1e6

    def steady(self) -> float:
        """The same: it is moved on, and never set."""
        return self.now()

    def advance(self, duration: str | float | dt.timedelta) -> None:
        """Moves on by a duration such as "5 seconds", or by a number of seconds."""
        seconds = isinstance(duration, (int, float))
        self._ticks += round(float(duration) * 1e6) if seconds else ticks(duration, TIMESTAMP_TIME)  # type: ignore[arg-type]

    def __enter__(self) -> FakeClock:
        entered = running_as(self)
        entered.__enter__()
        self._within.append(entered)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._within.pop().__exit__(kind, error, trace)
