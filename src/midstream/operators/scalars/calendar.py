"""Dates and clocks. Timestamps with a zone are read on that zone's wall clock."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.expressions import Call
from midstream.algebra.functions import TRUNCATION_UNITS
from midstream.errors import InputError
from midstream.operators.clocks import WallClock, clock_of
from midstream.operators.elements import Ticks
from midstream.operators.scalars.kernels import Constants, Kernel, Maker, OnColumn, arrow, with_parameters
from midstream.operators.vectors import column_of, numbers_of, validity_of

TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
MICROSECONDS = TICKS_PER_SECOND["us"]
_DAY = 86_400 * MICROSECONDS
_EVEN = ["microsecond", "millisecond", "second", "minute", "hour", "day", "week"]
_LENGTHS = dict(zip(_EVEN, (1, 1_000, MICROSECONDS, 60 * MICROSECONDS, _DAY // 24, _DAY, 7 * _DAY), strict=True))
"""Units that are as long every time, in microseconds."""
_MONDAY = 4 * _DAY
"""When all of them begin: the first Monday of 1970 was the fifth of January."""


def wall_clock(instants: pa.Array) -> pa.Array:
    """What the zone's clock shows, as timestamps without a zone."""
    kind = instants.type
    return _on_clock(instants, kind.tz, pa.timestamp(kind.unit), WallClock.reading) if kind.tz else instants


def first_instant(shown: pa.Array, zone: str | None) -> pa.Array:
    """The first instant at which the zone's clock shows this time or a later one."""
    return _on_clock(shown, zone, pa.timestamp(shown.type.unit, zone), WallClock.first_instant) if zone else shown


def _on_clock(times: pa.Array, zone: str, kind: pa.DataType, convert: Callable[[WallClock, Ticks], Ticks]) -> pa.Array:
    """Converts between instants and readings; clocks go by microseconds, and finer ticks come along unchanged."""
    ticks, per_second = numbers_of(times), TICKS_PER_SECOND[times.type.unit]
    coarser, finer = max(MICROSECONDS // per_second, 1), max(per_second // MICROSECONDS, 1)
    converted = convert(clock_of(zone), ticks // finer * coarser) // coarser * finer + ticks % finer
    return column_of(converted, kind, validity_of(times))


def _epoch(call: Call, constants: Constants) -> Kernel:
    kind = call.args[0].type
    per_second = np.longdouble(TICKS_PER_SECOND[kind.unit])
    return lambda instants: column_of(
        (numbers_of(instants) / per_second).astype(np.float64), pa.float64(), validity_of(instants)
    )


def _epoch_milliseconds(call: Call, constants: Constants) -> Kernel:
    per_second = TICKS_PER_SECOND[call.args[0].type.unit]
    if per_second < 1000:
        factor = pa.scalar(1000 // per_second, pa.int64())
        return lambda instants: pc.multiply_checked(instants.cast(pa.int64()), factor)
    step = per_second // 1000
    return lambda instants: column_of(numbers_of(instants) // step, pa.int64(), validity_of(instants))


def _truncating(call: Call, unit: str) -> OnColumn:
    unit = unit.lower()
    kind = call.args[1].type
    if unit not in TRUNCATION_UNITS:
        raise InputError(f"unknown unit of time {unit!r}", hint=f"use {', '.join(TRUNCATION_UNITS)}")
    length = _LENGTHS.get(unit, _DAY)
    finest = _DAY // 24 if pa.types.is_date(kind) else MICROSECONDS // TICKS_PER_SECOND[kind.unit]
    if length <= finest:  # the type holds nothing smaller
        return lambda instants: instants
    floor = arrow("floor_temporal", pc.RoundTemporalOptions(1, unit))
    if pa.types.is_timestamp(kind) and unit in _LENGTHS:
        floor = _even_floor(length)
    if pa.types.is_date(kind) or not kind.tz:
        return floor
    return lambda instants: _truncated_in_zone(instants, floor, keeps_side=length < _DAY)


def _even_floor(length: int) -> OnColumn:
    """Units that are as long every time are a matter of division."""

    def floor(shown: pa.Array) -> pa.Array:
        ticks, per_second = numbers_of(shown), TICKS_PER_SECOND[shown.type.unit]
        step, start = length * per_second // MICROSECONDS, _MONDAY * per_second // MICROSECONDS
        return column_of(ticks - (ticks - start) % step, shown.type, validity_of(shown))

    return floor


def _truncated_in_zone(instants: pa.Array, floor: Kernel, keeps_side: bool) -> pa.Array:
    """The start of the unit on the wall clock; within an hour that is shown twice, the start of the same one."""
    shown = wall_clock(instants)
    start = floor(shown)
    found = first_instant(start, instants.type.tz)
    if not keeps_side:
        return found
    ticks = numbers_of(instants) - (numbers_of(shown) - numbers_of(start))
    candidate = column_of(ticks, instants.type, validity_of(instants))
    return pc.if_else(pc.equal(wall_clock(candidate), start), candidate, found)


def _field(name: str, options: pc.FunctionOptions | None = None) -> Maker:
    function = arrow(name, options)

    def make(call: Call, constants: Constants) -> Kernel:
        kind = call.args[0].type
        return (lambda instants: function(wall_clock(instants))) if getattr(kind, "tz", None) else function

    return make


CALENDAR: dict[str, Maker] = {
    **{name: _field(name) for name in ("year", "month", "day", "hour", "minute", "second")},
    "dayofyear": _field("day_of_year"),
    "dayofweek": _field("day_of_week", pc.DayOfWeekOptions(count_from_zero=True, week_start=7)),
    "epoch": _epoch,
    "epoch_ms": _epoch_milliseconds,
    "date_trunc": with_parameters(_truncating, subject=1),
}
