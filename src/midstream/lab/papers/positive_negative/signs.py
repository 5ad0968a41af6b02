"""The positive-negative representation: streams of signed tuples (GenMig section 2.3).

An element valid over `[s, e)` is a positive tuple at `s` and a negative one at `e`. A signed batch is a batch of
elements whose `valid_from` is the tuple's time and whose `valid_to` is its sign, or any number of equal signs. What is
valid at an instant is the sum of the signs up to it.

Selections, projections and unions are linear: they take and give signed tuples as they are. A join is bilinear: the sum
of signs up to t of pairs is the product of both sums, so two signed tuples make one at the later of their times, with
the product of their signs. What is neither waits for the frontier, looks at the intervals that the signs describe up to
it, and signs its answer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.algebra.time import INFINITY
from midstream.operators.elements import Elements, Ticks, concatenate
from midstream.operators.ordering import group_rows

Signs = npt.NDArray[np.int64]


def signed(elements: Elements) -> Elements:
    """The starts and ends of elements as positive and negative tuples; what never ends has no negative one."""
    ends = elements.where(elements.valid_to < INFINITY)
    return concatenate(
        [
            _plain(elements, elements.valid_from, np.ones(len(elements), np.int64)),
            _plain(ends, ends.valid_to, -np.ones(len(ends), np.int64)),
        ]
    )


def consolidated(events: Elements) -> Elements:
    """Equal tuples of equal time as one, with the sum of their signs; those that cancel are gone."""
    if len(events) == 0:
        return events
    groups, examples = group_rows([*events.columns.columns, pa.array(events.valid_from)])
    sums = np.zeros(len(examples), np.int64)
    np.add.at(sums, groups, events.valid_to)
    left = np.flatnonzero(sums)
    rows = examples[left]
    return _plain(events.take(rows), events.valid_from[rows], sums[left])


def settled(events: Elements, frontier: int) -> Elements:
    """Events of which those before the frontier have happened: what counts of them is only what is valid there."""
    return consolidated(_plain(events, np.maximum(events.valid_from, frontier), events.valid_to))


def intervals(events: Elements, end: int = INFINITY) -> Elements:
    """The elements that signed tuples describe, those without an end up to a given one; first in, first out."""
    events = consolidated(events)
    if len(events) == 0:
        return events
    groups, _ = group_rows(events.columns.columns)
    starts, stops = (_repeated(events, groups, sign) for sign in (1, -1))
    rows, closing = _paired(starts, stops)
    times = np.append(events.valid_from, end)
    elements = _plain(events.take(rows), events.valid_from[rows], times[closing])
    return elements.where(elements.valid_from < elements.valid_to)


def repeated(events: Elements) -> Elements:
    """Positive tuples as raw tuples of one tick, each as often as it counts."""
    rows = events.take(np.repeat(np.arange(len(events)), np.maximum(events.valid_to, 0)))
    return rows.with_validity(rows.valid_from, rows.valid_from + 1)


def _repeated(events: Elements, groups: npt.NDArray[np.intp], sign: int) -> tuple[npt.NDArray[np.intp], Ticks]:
    """Positions of the tuples of one sign, each as often as it counts, by tuple and time; and keys that tell both."""
    rows = np.flatnonzero(events.valid_to * sign > 0)
    rows = rows[np.lexsort((events.valid_from[rows], groups[rows]))]
    rows = np.repeat(rows, np.abs(events.valid_to[rows]))
    of = groups[rows]
    first = np.searchsorted(of, of)
    return rows, (of.astype(np.int64) << 32) | (np.arange(len(rows)) - first)


def _paired(
    starts: tuple[npt.NDArray[np.intp], Ticks], stops: tuple[npt.NDArray[np.intp], Ticks]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """For every start its position and that of the stop that ends it; -1 for none."""
    rows, keys = starts
    closing = np.full(len(rows), -1, np.intp)
    _, here, there = np.intersect1d(keys, stops[1], assume_unique=True, return_indices=True)
    closing[here] = stops[0][there]
    return rows, closing


def _plain(elements: Elements, valid_from: Ticks, valid_to: Signs) -> Elements:
    return Elements(elements.columns, valid_from, valid_to)
