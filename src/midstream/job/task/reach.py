"""How far ahead a row's time is believed.

One wrong time far in the future would raise its stream's register for good, and all that follows would be late. So a
row beyond a stream's reach becomes a dead letter and moves nothing. What the reach is follows from the last manifest
and the multiset of the batch's rows:

- with `max_ahead="clock"` it is a day after the batch's clock, or after the latest time so far if that is later; the
  clock is recorded with the batch, so a repeated batch sees it again;
- with a duration, rows are believed as far as they hang together: from the latest time so far, each at most `max_ahead`
  after the one before it, in order of time. The first batch starts from its median.

A stream may really have been silent for longer than that. If more than half of its rows in a batch lie beyond, it has
gone on there: this is believed at once of `ENOUGH` rows, and of fewer if the stream's last batch was already of this
kind. Then rows are believed from the median of those beyond.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import BEGINNING, FARTHEST
from midstream.operators.elements import Ticks

DAY = 86_400_000_000

ENOUGH = 10
"""How many rows beyond the reach show by themselves that their stream has gone on there."""

OUT_OF_RANGE, TOO_FAR_AHEAD = "time out of range", "too far ahead"
"""The reasons of dead letters."""

Span = tuple[int, int, int]
"""Rows that hang together: the first time, the last, and how many they are."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The latest time of a stream so far, and up to when rows are believed.

    With a `step`, rows beyond are reported as spans of rows at most so far apart: the stream may have gone on there.
    """

    latest: int = BEGINNING
    until: int = FARTHEST - 1
    step: int = 0


def reach_of(declaration: StreamDeclaration, latest: int, clock: int | None) -> Reach:
    """A stream's reach before anything is known of a batch but its clock."""
    bound = declaration.max_ahead
    if declaration.timestamps != "external" or bound == "any":
        return Reach(latest)
    if bound != "clock":
        return Reach(latest, BEGINNING if latest == BEGINNING else min(latest + bound, FARTHEST - 1), bound)
    if clock is None or declaration.domain.is_integer:
        return Reach(latest)
    return Reach(latest, min(max(latest, clock) + DAY, FARTHEST - 1))


def spans_of(ticks: Ticks, step: int) -> list[Span]:
    """Times as spans.

    >>> spans_of(np.array([9, 1, 2, 30]), 5)
    [(1, 2, 2), (9, 9, 1), (30, 30, 1)]
    """
    if not len(ticks):
        return []
    ordered = np.sort(ticks)
    starts = np.concatenate(([0], np.flatnonzero(np.diff(ordered) > step) + 1))
    ends = np.append(starts[1:], len(ordered))
    return [(int(ordered[a]), int(ordered[b - 1]), int(b - a)) for a, b in zip(starts, ends, strict=True)]


def merged(spans: Iterable[Span], step: int) -> list[Span]:
    """Spans of several slots as spans of all their rows.

    >>> merged([(9, 12, 2), (1, 5, 3), (14, 14, 1)], 4)
    [(1, 14, 6)]
    """
    found: list[Span] = []
    for first, last, rows in sorted(spans):
        if found and first - found[-1][1] <= step:
            found[-1] = (found[-1][0], max(found[-1][1], last), found[-1][2] + rows)
        else:
            found.append((first, last, rows))
    return found


def believed(reach: Reach, latest: int, within: int, beyond: Sequence[Span], doubted: bool = False) -> tuple[int, bool]:
    """Up to when the rows of a batch are believed, and whether the stream is doubted after it.

    `latest` is the latest time so far and among the batch's rows within the reach, `within` how many these are;
    `beyond` are the spans beyond.
    """
    if not beyond:
        return reach.until, doubted and not within
    if latest == BEGINNING:
        return _connected(_middle(beyond), beyond, reach.step)[0], False
    reached, rest = _connected(latest, beyond, reach.step)
    far = sum(rows for _, _, rows in rest)
    near = within + sum(rows for _, _, rows in beyond) - far
    if far <= near:
        return max(reached, reach.until), False
    if far < ENOUGH and not doubted:
        return max(reached, reach.until), True
    return _connected(_middle(rest), rest, reach.step)[0], doubted


def _connected(start: int, spans: Sequence[Span], step: int) -> tuple[int, list[Span]]:
    """The last time that hangs together with a start, and the spans after it."""
    reached = start
    rest = []
    for span in spans:
        if span[0] - reached <= step:
            reached = max(reached, span[1])
        else:
            rest.append(span)
    return reached, rest


def _middle(spans: Sequence[Span]) -> int:
    """The end of the span that the median row is in."""
    half = (sum(rows for _, _, rows in spans) + 1) // 2
    for _, last, rows in spans:
        half -= rows
        if half <= 0:
            return last
    return spans[-1][1]
