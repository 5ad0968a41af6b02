"""Amounts, rates and lengths of time in the units that people read them in."""

from __future__ import annotations

import datetime as dt

from midstream.algebra.time import BEGINNING, INFINITY, TimeDomain

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
    """
    if domain.is_integer:
        return f"{amount(ticks)} ticks"
    seconds = ticks / 1e6
    for size, word in _LENGTHS:
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {word}"
    return "0 seconds"


def instant(tick: int, domain: TimeDomain) -> str:
    """An instant: a number, or a time to the microsecond."""
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
