"""Timestamps read from text: `2024-05-01`, `2024-05-01 10:30`, `2024-05-01T10:30:00.25+02:00`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.operators.scalars.calendar import TICKS_PER_SECOND, first_instant
from midstream.operators.vectors import column_of, numbers_of, validity_of

_PATTERN = (
    r"^(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[ T](?P<time>[0-9]{2}:[0-9]{2})(?P<second>:[0-9]{2})?(?:\.(?P<fraction>[0-9]{1,9}))?)?"
    r"\s*(?:(?P<utc>Z)|(?P<sign>[+-])(?P<hours>[0-9]{2})(?::?(?P<minutes>[0-9]{2}))?)?$"
)


def read_timestamps(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """Texts as timestamps, null where they are none; without a zone in the text, on the clock of the target's zone."""
    parts = pc.extract_regex(texts, _PATTERN)
    part = {field.name: pc.struct_field(parts, [i]) for i, field in enumerate(parts.type)}
    seconds = _seconds(part["date"], part["time"], part["second"])
    zoned = pc.or_(pc.not_equal(part["utc"], ""), pc.not_equal(part["sign"], ""))
    if target.tz is None:
        seconds = pc.if_else(zoned, pa.scalar(None, seconds.type), seconds)
        return _with_fraction(seconds, part["fraction"], target)
    local = first_instant(seconds, target.tz).cast(pa.int64())
    stated = pc.subtract(seconds.cast(pa.int64()), _offsets(part["sign"], part["hours"], part["minutes"]))
    return _with_fraction(pc.if_else(zoned, stated, local).cast(pa.timestamp("s")), part["fraction"], target)


def _seconds(date: pa.Array, time: pa.Array, second: pa.Array) -> pa.Array:
    clock = pc.if_else(pc.equal(time, ""), "00:00", time)
    texts = pc.binary_join_element_wise(date, clock, " ")
    texts = pc.binary_join_element_wise(texts, pc.if_else(pc.equal(second, ""), ":00", second), "")
    return _parsed(texts)


def _parsed(texts: pa.Array) -> pa.Array:
    options = pc.StrptimeOptions("%Y-%m-%d %H:%M:%S", "s", error_is_null=True)
    try:
        return texts.cast(pa.timestamp("s"))
    except pa.ArrowInvalid:
        read = pc.call_function("strptime", [texts], options)
        # strptime lets the 31st of a short month roll over into the next one.
        same = pc.equal(read.cast(pa.string()), texts)
        return pc.if_else(same, read, pa.scalar(None, read.type))


def _offsets(sign: pa.Array, hours: pa.Array, minutes: pa.Array) -> pa.Array:
    whole = pc.multiply(_number(hours), 3600)
    size = pc.add(whole, pc.multiply(_number(minutes), 60))
    return pc.if_else(pc.equal(sign, "-"), pc.negate(size), size)


def _number(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(texts, ""), "0", texts).cast(pa.int64())


def _with_fraction(seconds: pa.Array, fraction: pa.Array, target: pa.DataType) -> pa.Array:
    per_second = TICKS_PER_SECOND[target.unit]
    nanoseconds = numbers_of(pc.utf8_rpad(fraction, 9, "0").cast(pa.int64()))
    ticks = numbers_of(seconds)
    limit = (2**63 - 1) // per_second - 1
    fits = (ticks <= limit) & (ticks >= -limit)
    valid = validity_of(seconds)
    ticks = np.where(fits, ticks, 0) * per_second + nanoseconds // (1_000_000_000 // per_second)
    return column_of(ticks, target, fits if valid is None else fits & valid)
