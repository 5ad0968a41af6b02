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

UNITS = frozenset({*_UNITS, "month", "quarter", "year"})
"""Units of time, those of the calendar too."""


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


def duration_of(number: int | None, domain: TimeDomain) -> int | dt.timedelta | None:
    """So many ticks as a duration.

    >>> duration_of(5, INTEGER_TIME), duration_of(5_000_000, TIMESTAMP_TIME)
    (5, datetime.timedelta(seconds=5))
    """
    return number if number is None or domain.is_integer else dt.timedelta(microseconds=number)


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

_CLOCK = re.compile(r"([+-]?)\b(\d{1,9}):(\d\d)(?::(\d\d(?:\.\d+)?))?")
"""Hours, minutes and seconds as clocks show them."""

LONGEST_TEXT = 200
"""How many characters a duration may have."""


def _parse(text: str, domain: TimeDomain) -> int:
    total, at, rest = 0, 0, _CLOCK.sub(r"\1\2 hours \1\3 minutes \g<1>0\4 seconds", text.strip().lower())
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
        whole, _, fraction = number.partition(".")
        if fraction.strip("0"):
            raise QueryError(f"{text} is not a whole number of ticks")
        return int(whole)
    factor = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
    if factor is None:
        if not unit:
            hint = f"write for instance '{number} seconds'"
            raise QueryError(f"{text} has no unit, but time is a timestamp", hint=hint)
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


_GREAT = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
_LENGTHS = ((86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "seconds"), (1e-3, "ms"), (1e-6, "µs"))


def amount(number: float) -> str:
    """A number without an exponent, as far as there are words for it.

    >>> amount(900), amount(12345.6), amount(8.1e11), amount(0.0045), amount(0)
    ('900', '12,346', '810 billion', '0.0045', '0')
    """
    size = abs(number)
    if size >= 1e15:
        return f"{number:.3g}"
    for unit, word in _GREAT:
        if size >= unit:
            return f"{number / unit:.3g} {word}"
    if size >= 1000:
        return f"{number:,.0f}"
    if size >= 1e-4 or size == 0:
        return f"{number:.3g}"
    return f"{number:.6f}".rstrip("0").rstrip(".") if size >= 1e-6 else "almost 0"


def rate(per_tick: float, domain: TimeDomain) -> str:
    """An amount per tick, as one per second where time is a timestamp.

    >>> from midstream.algebra.time import INTEGER_TIME, TIMESTAMP_TIME
    >>> rate(4.519e-08, TIMESTAMP_TIME), rate(9, INTEGER_TIME)
    ('0.0452 per second', '9 per tick')
    """
    if domain.is_integer:
        return f"{amount(per_tick)} per tick"
    return f"{amount(per_tick * 1e6)} per second"


def work(per_tick: float, domain: TimeDomain) -> str:
    """A plan's cost: handling a row once is 1.

    >>> from midstream.algebra.time import INTEGER_TIME
    >>> work(1200, INTEGER_TIME)
    '1,200 rows of work per tick'
    """
    number, _, unit = rate(per_tick, domain).partition(" per ")
    return f"{number} rows of work per {unit}"


def length(ticks: float, domain: TimeDomain) -> str:
    """A length of time.

    >>> from midstream.algebra.time import INTEGER_TIME, TIMESTAMP_TIME
    >>> length(90_000_000, TIMESTAMP_TIME), length(2_000_000, TIMESTAMP_TIME), length(400, INTEGER_TIME)
    ('1.5 minutes', '2 seconds', '400 ticks')
    >>> length(1_000_000, TIMESTAMP_TIME), length(1_000, TIMESTAMP_TIME), length(1, INTEGER_TIME)
    ('1 second', '1 ms', '1 tick')
    """
    if domain.is_integer:
        return _of(amount(ticks), "ticks")
    seconds = ticks / 1e6
    for size, word in _LENGTHS:
        if abs(seconds) >= size:
            return _of(f"{seconds / size:.3g}", word)
    return "0 seconds"


def _of(number: str, many: str) -> str:
    one = {"days": "day", "hours": "hour", "minutes": "minute", "seconds": "second", "ticks": "tick"}.get(many, many)
    return f"{number} {one if number == '1' else many}"


LONGEST_SHOWN = 1900 * 365 * 24 * 3600 * 1_000_000
"""How far from 1970 times are shown."""


def instant(tick: int, domain: TimeDomain) -> str:
    """An instant: a number, or a time to the microsecond.

    >>> instant(7, INTEGER_TIME), instant(0, TIMESTAMP_TIME), instant(INFINITY, TIMESTAMP_TIME)
    ('7', '1970-01-01 00:00:00', 'the end of time')
    """
    if not domain.is_integer and not -LONGEST_SHOWN < tick < LONGEST_SHOWN:
        return "the beginning of time" if tick < 0 else "the end of time"
    if domain.is_integer:
        return str(tick)
    return (dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=tick)).isoformat(sep=" ")


def moment(tick: int | None, domain: TimeDomain) -> int | dt.datetime | None:
    """An instant as programs are given it: a number or a time; None before the beginning and after the end.

    >>> from midstream.algebra.time import INTEGER_TIME, TIMESTAMP_TIME
    >>> moment(7, INTEGER_TIME), moment(90_000_000, TIMESTAMP_TIME), moment(BEGINNING, TIMESTAMP_TIME)
    (7, datetime.datetime(1970, 1, 1, 0, 1, 30), None)
    """
    if tick is None or tick <= BEGINNING or tick >= INFINITY:
        return None
    if domain.is_integer:
        return tick
    zone = None if domain.type.tz is None else dt.UTC
    return dt.datetime(1970, 1, 1, tzinfo=zone) + dt.timedelta(microseconds=tick)


def share(part: float) -> str:
    """A share of a whole, small ones as one in how many.

    >>> share(0.25), share(4.5e-08)
    ('0.25', '1 in 22.2 million')
    """
    return f"{part:.2g}" if part >= 1e-3 or part <= 0 else f"1 in {amount(1 / part)}"


def size(bytes: float) -> str:
    """A number of bytes.

    >>> size(512), size(2_300_000)
    ('512 bytes', '2.3 MB')
    """
    for unit, word in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(bytes) >= unit:
            return f"{bytes / unit:.3g} {word}"
    return f"{bytes:.0f} bytes"


def seconds(number: float) -> str:
    """A length of wall-clock time.

    >>> seconds(0.0042), seconds(12.34), seconds(7300)
    ('4.2 ms', '12.3 s', '2.03 h')
    """
    if number >= 3600:
        return f"{number / 3600:.3g} h"
    if number >= 120:
        return f"{number / 60:.3g} min"
    return f"{number:.3g} s" if number >= 1 or number == 0 else f"{number * 1e3:.3g} ms"


def plural(number: int, one: str, many: str = "") -> str:
    """A number of things.

    >>> plural(1, "slot"), plural(1200, "batch", "batches")
    ('1 slot', '1,200 batches')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"
