"""Clocks on the wall: what a zone's clock shows at an instant, and when it first shows a given time.

Instants are microseconds since 1970 UTC. A wall-clock reading is the naive `datetime` that the clock shows, or, where
readings are added and compared, the microseconds from 1970-01-01 00:00 of that same clock.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo

from midstream.errors import InputError

EPOCH = dt.datetime(1970, 1, 1)
MICROSECOND = dt.timedelta(microseconds=1)


def zone_of(name: str | None) -> dt.tzinfo:
    """A zone by its name or fixed offset; a clock without a zone shows UTC.

    >>> str(zone_of("+02:00"))
    'UTC+02:00'
    """
    if name is None:
        return dt.UTC
    offset = re.fullmatch(r"([+-])(\d\d):?(\d\d)", name)
    if offset:
        size = dt.timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return dt.timezone(-size if offset[1] == "-" else size)
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise InputError(f"unknown time zone {name!r}", hint="write for instance 'Europe/Berlin' or '+02:00'") from None


def reading(instant: int, zone: dt.tzinfo) -> dt.datetime:
    """What the zone's clock shows, with `fold` set where it shows it for the second time."""
    try:
        aware = (EPOCH + instant * MICROSECOND).replace(tzinfo=dt.UTC).astimezone(zone)
    except OverflowError:
        raise InputError(f"{instant} microseconds since 1970 is outside the years 1 to 9999") from None
    return aware.replace(tzinfo=None)


def wall_ticks(instant: int, zone: dt.tzinfo) -> int:
    """What the zone's clock shows, as microseconds of that clock."""
    return (reading(instant, zone).replace(fold=0) - EPOCH) // MICROSECOND


def first_instant(shown: dt.datetime, zone: dt.tzinfo) -> int:
    """The first instant at which the zone's clock shows this time or a later one.

    That is the first of two where the clock is set back, and the end of the gap where it is set forward.
    """
    early, late = (_guess(shown.replace(fold=fold), zone) for fold in (1, 0))
    if reading(late, zone).replace(fold=0) == shown.replace(fold=0):
        return late
    # In a gap `early` lies before the clock is set forward and `late` after it: close in on that moment.
    while late - early > 1:
        middle = (early + late) // 2
        if reading(middle, zone).replace(fold=0) >= shown.replace(fold=0):
            late = middle
        else:
            early = middle
    return late


def same_side_instant(shown: dt.datetime, zone: dt.tzinfo) -> int:
    """The instant at which the clock shows this time on the side of a set-back that its `fold` says."""
    instant = _guess(shown, zone)
    if reading(instant, zone).replace(fold=0) == shown.replace(fold=0):
        return instant
    return first_instant(shown, zone)


def _guess(shown: dt.datetime, zone: dt.tzinfo) -> int:
    offset = shown.replace(tzinfo=zone).utcoffset() or dt.timedelta(0)
    return (shown.replace(tzinfo=None, fold=0) - EPOCH - offset) // MICROSECOND
