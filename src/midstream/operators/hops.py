"""Boundaries of hopping windows, as arithmetic.

Without a zone the boundaries are `offset + i * slide`. With one, they are the first instants at which the zone's wall
clock reads such a multiple or more. So all a zone adds is its clock's high-water mark: the latest reading shown so far,
which never falls, stands still while a set-back is made up for, and jumps over a gap. At tick `t` with mark `m`, the
boundaries up to `t` are those of the multiples up to `m`, and the windows that hold a tuple of `t` are those of the
multiples in `(m, m + size]`: a day of 23 hours is a day.

`INFINITY` stays what it is, and nothing passes it or falls below `BEGINNING`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, TypeVar

import numpy as np

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.algebra.windows import Hop
from midstream.operators.clocks import clock_of_hop
from midstream.operators.elements import Indices, Ticks

T = TypeVar("T", int, Ticks)


class OfTicks(Protocol):
    """A function of ticks, or of one."""

    def __call__(self, ticks: T, hop: Hop) -> T: ...


def _of_one_too(function: Callable[[Ticks, Hop], Ticks]) -> OfTicks:
    @wraps(function)
    def either(ticks: Any, hop: Hop) -> Any:
        if isinstance(ticks, np.ndarray):
            return function(ticks, hop)
        return int(function(np.array([min(max(int(ticks), BEGINNING), INFINITY)], np.int64), hop)[0])

    return either


@_of_one_too
def boundary_after(ticks: Ticks, hop: Hop) -> Ticks:
    """The least boundary greater than each tick.

    >>> boundary_after(20, Hop(10, 10))
    30
    """
    return _on_clock(ticks, hop, lambda marks: _multiple_after(marks, hop))


@_of_one_too
def boundary_at_or_before(ticks: Ticks, hop: Hop) -> Ticks:
    """The greatest boundary not above each tick.

    >>> boundary_at_or_before(29, Hop(10, 10))
    20
    """
    return _on_clock(ticks, hop, lambda marks: _multiple_up_to(marks, hop))


@_of_one_too
def last_boundary_reaching(ticks: Ticks, hop: Hop) -> Ticks:
    """The greatest boundary whose window reaches back to each tick (at or before the tick if none holds it).

    >>> last_boundary_reaching(25, Hop(20, 10))
    40
    """
    if hop.cumulative:
        return boundary_after(ticks, hop.whole)
    return _on_clock(ticks, hop, lambda marks: _multiple_up_to(_later(marks, hop.size), hop))


def _on_clock(ticks: Ticks, hop: Hop, step: Callable[[Ticks], Ticks]) -> Ticks:
    """A step from ticks, or from what the hop's clock has shown at them to when it first shows where the step leads."""
    clock = clock_of_hop(hop)
    return step(ticks) if clock is None else clock.first_instant(step(clock.mark(ticks)))


def validity(ticks: Ticks, hop: Hop) -> tuple[Ticks, Ticks]:
    """From when until when tuples of these ticks count; an empty interval for a tuple that no window holds."""
    if hop.takes_in_end:
        ticks = ticks - 1
    valid_from = boundary_after(ticks, hop)
    if clock_of_hop(hop) is None and hop.size % hop.slide == 0 and not hop.cumulative:
        return valid_from, _later(valid_from, hop.size)
    return valid_from, boundary_after(last_boundary_reaching(ticks, hop), hop)


def beginning(boundaries: Ticks, hop: Hop) -> Ticks:
    """When the windows that end at these boundaries begin."""
    clock = clock_of_hop(hop)
    last = _multiple_up_to(boundaries if clock is None else clock.mark(boundaries), hop)
    first = _multiple_up_to(last - 1, hop.whole) if hop.cumulative else last - hop.size
    return first if clock is None else clock.first_instant(first)


def pieces(valid_from: Ticks, valid_to: Ticks, hop: Hop) -> tuple[Indices, Ticks, Ticks]:
    """Intervals cut at the boundaries of a hop: the number of the interval that each piece is of, its start and end."""
    number, start = np.arange(len(valid_from)), valid_from
    found = []
    while len(number):
        end = np.minimum(boundary_after(start, hop), valid_to[number])
        found.append((number, start, end))
        goes_on = end < valid_to[number]
        number, start = number[goes_on], end[goes_on]
    none = np.empty(0, np.int64)
    numbers, starts, ends = (np.concatenate(parts) for parts in zip((none,) * 3, *found, strict=True))
    return numbers, starts, ends


def _past_multiple(ticks: Ticks, hop: Hop) -> Ticks:
    """How far each tick is past a boundary, without leaving 64 bits."""
    past: Ticks = ticks % hop.slide
    shift = hop.offset % hop.slide
    if shift:
        past -= shift
        past %= hop.slide
    return past


def _multiple_after(ticks: Ticks, hop: Hop) -> Ticks:
    return _later(ticks, hop.slide - _past_multiple(ticks, hop))


def _multiple_up_to(ticks: Ticks, hop: Hop) -> Ticks:
    past = _past_multiple(ticks, hop)
    if len(ticks) and (int(ticks.max()) == INFINITY or int(ticks.min()) < BEGINNING + hop.slide):
        held = np.where(ticks < BEGINNING + past, BEGINNING, ticks - past)
        return np.where(ticks == INFINITY, INFINITY, held)
    return ticks - past


def _later(ticks: Ticks, amount: int | Ticks) -> Ticks:
    """Ticks moved into the future, no further than `INFINITY`."""
    if isinstance(amount, int) and amount >= INFINITY:
        return np.full(len(ticks), INFINITY, dtype=np.int64)
    most = amount if isinstance(amount, int) else int(amount.max(initial=0))
    if len(ticks) and int(ticks.max()) > INFINITY - most:
        return np.where(
            ticks > INFINITY - amount, INFINITY, ticks + np.minimum(amount, INFINITY - np.maximum(ticks, 0))
        )
    return ticks + amount
