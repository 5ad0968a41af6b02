"""Time is a number of ticks: an integer as it stands, or microseconds since 1970 for timestamps.

An element is valid over a half-open interval of ticks. `INFINITY` ends what never ends; outside the engine it is
shown as null, because no timestamp type can print it.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import dataclass
from numbers import Real

import pyarrow as pa

from midstream.errors import QueryError

INFINITY = 2**63 - 1
"""The end of an interval that never ends."""

BEGINNING = -(2**63) + 1
"""A register that promises nothing yet."""

FARTHEST = 2**62
"""Times must lie within this many ticks of zero: a window's end must still be a number of 64 bits."""

LONGEST = 2**61
"""The longest window: where it ends must still be a number of 64 bits."""

_UNITS = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "sec": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "hour": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "d": 86_400_000_000,
    "week": 604_800_000_000,
}


@dataclass(frozen=True, slots=True)
class TimeDomain:
    """What a tick means: nothing but a number, or a microsecond in some time zone's notation."""

    type: pa.DataType

    def __post_init__(self) -> None:
        if not (pa.types.is_integer(self.type) or pa.types.is_timestamp(self.type)):
            raise QueryError(
                f"time must be an integer or a timestamp, not {self.type}",
                hint="cast the time column, or name another one",
            )

    @property
    def is_integer(self) -> bool:
        """Whether ticks are plain numbers."""
        return bool(pa.types.is_integer(self.type))

    @property
    def word(self) -> str:
        """What it is called where it is written down: integer or timestamp."""
        return "integer" if self.is_integer else "timestamp"

    @staticmethod
    def of_word(word: str) -> TimeDomain:
        """The domain that is called so."""
        return INTEGER_TIME if word == "integer" else TIMESTAMP_TIME

    @property
    def output_type(self) -> pa.DataType:
        """The type in which `valid_from`, `valid_to` and `ts` are shown."""
        return pa.int64() if self.is_integer else pa.timestamp("us", self.type.tz)

    def agrees_with(self, other: TimeDomain) -> bool:
        """Whether ticks of both mean the same: plain numbers, instants, or what clocks without a zone show."""
        return self.kind == other.kind

    @property
    def kind(self) -> str:
        """What a tick is, in words."""
        if self.is_integer:
            return "integers"
        return "timestamps without a zone" if self.type.tz is None else "timestamps with a zone"


INTEGER_TIME = TimeDomain(pa.int64())
TIMESTAMP_TIME = TimeDomain(pa.timestamp("us"))


def ticks(duration: int | float | str | dt.timedelta, domain: TimeDomain) -> int:
    """A duration in ticks.

    >>> ticks("5 seconds", TIMESTAMP_TIME)
    5000000
    >>> ticks(100, INTEGER_TIME)
    100
    """
    if isinstance(duration, dt.timedelta):
        if domain.is_integer:
            raise QueryError(f"{duration} is a duration of clocks, but time is an integer", hint="give a number")
        return duration // dt.timedelta(microseconds=1)
    if isinstance(duration, str):
        return _parse(duration, domain)
    if isinstance(duration, bool) or not isinstance(duration, Real) or not math.isfinite(duration):
        raise QueryError(f"{duration!r} is not a duration", hint="give a number of ticks, a text or a timedelta")
    if not domain.is_integer:
        raise QueryError(
            f"{duration} has no unit, but time is a timestamp", hint=f"write for instance '{duration} seconds'"
        )
    if duration != int(duration):
        raise QueryError(f"{duration} is not a whole number of ticks")
    return int(duration)


def tick_at(instant: int | str | dt.datetime, domain: TimeDomain) -> int:
    """The tick of an instant; a timestamp without a zone is one of UTC.

    >>> tick_at("1970-01-01 00:00:05", TIMESTAMP_TIME), tick_at("17", INTEGER_TIME)
    (5000000, 17)
    """
    try:
        if domain.is_integer:
            return int(instant)  # type: ignore[arg-type]
        moment = instant if isinstance(instant, dt.datetime) else dt.datetime.fromisoformat(instant)  # type: ignore[arg-type]
        since = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        return (since - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    except (TypeError, ValueError):
        wanted = "a whole number" if domain.is_integer else "a timestamp such as '2026-01-31 12:00:00'"
        raise QueryError(f"{instant!r:.80} is no instant of this job", hint=f"write {wanted}") from None


_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-zµ]*)\s*")

LONGEST_TEXT = 200
"""How many characters a duration may have."""


def _parse(text: str, domain: TimeDomain) -> int:
    total, at, rest = 0, 0, text.strip().lower()
    while at < len(rest) or not rest:
        # One part after the other: a pattern for all of them would try every way to divide a long number.
        found = _PART.match(rest, at)
        if found is None or len(rest) > LONGEST_TEXT:
            raise QueryError(
                f"{text[:LONGEST_TEXT]!r} is not a duration",
                hint="write for instance '5 seconds' or '1 hour 30 minutes'",
            )
        total += _one(found[1], found[2], text, domain)
        at = found.end()
    if abs(total) >= INFINITY:
        raise QueryError(f"{text!r} is too long a time")
    return total


def _one(number: str, unit: str, text: str, domain: TimeDomain) -> int:
    if domain.is_integer:
        if unit:
            raise QueryError(f"{text!r} has a unit, but time is an integer", hint=f"write {number}")
        if not float(number).is_integer():
            raise QueryError(f"{text!r} is not a whole number of ticks")
        return int(float(number))
    factor = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
    if factor is None:
        if not unit:
            raise QueryError(f"{text!r} has no unit", hint=f"write for instance '{number} seconds'")
        known = [name for name in _UNITS if len(name) >= 3 and name not in ("sec", "min")]
        raise QueryError(f"unknown unit of time {unit!r}", hint="use " + ", ".join(known))
    whole, _, fraction = number.partition(".")
    value = int(whole) * factor
    if fraction:
        value += (-1 if whole.startswith("-") else 1) * factor * int(fraction) // 10 ** len(fraction)
    return value


def show_ticks(amount: int, domain: TimeDomain) -> str:
    """A duration as a person writes it.

    >>> show_ticks(90_000_000, TIMESTAMP_TIME)
    '90 seconds'
    """
    if domain.is_integer or amount == 0:
        return str(amount) if domain.is_integer else "0 seconds"
    for name in ("day", "hour", "minute", "second", "millisecond"):
        count, rest = divmod(amount, _UNITS[name])
        if not rest:
            return f"{count} {name}" + ("" if count == 1 else "s")
    return f"{amount} microseconds"
