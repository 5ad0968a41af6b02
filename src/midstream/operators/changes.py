"""From relations to streams, and to the instants that windows over sub-queries look at.

ISTREAM and DSTREAM are differences of neighbouring snapshots. The count of a tuple at an instant less its count at the
instant before is the number of elements that start there less the number that end there, so adjacent fragments cancel
and nothing but the events themselves is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import pyarrow as pa

from midstream.algebra.time import BEGINNING
from midstream.algebra.windows import Hop
from midstream.errors import QueryError
from midstream.operators.elements import Elements, Indices, Ticks, concatenate
from midstream.operators.hashing import hash_columns
from midstream.operators.hops import pieces
from midstream.operators.join import chunks
from midstream.operators.ordering import group_rows
from midstream.operators.slices import SliceOperator
from midstream.operators.state.alive import stored_by_range
from midstream.operators.state.segment import Segment, expand
from midstream.operators.state.sorted_state import SortedState

ELEMENTS_AT_ONCE = 50_000_000
"""More elements than this for one slice, one per instant, is taken for a mistake."""

INSTANT_BYTES = 64
"""What an element of one instant takes, about."""

SAMPLES = 1_000
"""How many instants of a segment are looked at to cut a slice into parts."""


class ChangesOperator(SliceOperator):
    """ISTREAM (what entered) and DSTREAM (what left), as elements of one tick; KEEP gives nothing of what it keeps."""

    def __init__(self, schema: pa.Schema, kept: SortedState, kind: Literal["istream", "dstream", "keep"]) -> None:
        super().__init__(schema, (kept,), None)
        self.kind = self.name = kind

    @property
    def needed_after(self) -> int:
        return max(self.done - 1, BEGINNING)

    def forget(self, end: int) -> None:
        # What ends exactly at the slice's end has yet to leave.
        for state in self.kept:
            state.expire(end - 1)

    def evaluations(self, start: int, end: int) -> Iterator[Elements]:
        # Differences are of single instants, so that every part of the slice is answered for by itself.
        for first, last in self._parts(start, end) if self.kind != "keep" else ():
            size = sum(len(rows) * _row_bytes(segment) for segment, rows in self._events(first, last))
            ranges = 1 if self.most is None else size // self.most + 1
            for number in range(ranges):
                answer = self._answer(list(self._gathered(first, last, number, ranges)))
                if answer is not None:
                    yield answer

    def _parts(self, start: int, end: int) -> list[tuple[int, int]]:
        """The slice in parts in which a bounded number of rows come or go, if an instant has no more."""
        if self.most is None:
            return [(start, end)]
        size, samples = 0, []
        for segment, rows in self._events(start, end):
            size += len(rows) * _row_bytes(segment)
            times = segment.all_times.take(rows)
            samples.append(times[:: max(1, len(times) // SAMPLES)])
        count = size // self.most + 1
        if count == 1:
            return [(start, end)]
        times = np.sort(np.concatenate(samples))
        cuts = {int(times[len(times) * i // count]) for i in range(1, count)}
        bounds = [start, *sorted(cut for cut in cuts if start < cut < end), end]
        return list(pairwise(bounds))

    def _events(self, start: int, end: int) -> Iterator[tuple[Events, Indices]]:
        """What comes and what goes within a part of the slice, segment by segment."""
        for sign in (1, -1):
            for segment in self.kept[0].segments:
                if segment.latest_to >= start and segment.earliest_from < end:
                    events = Events(segment, sign)
                    rows = np.flatnonzero((events.all_times >= start) & (events.all_times < end))
                    if len(rows):
                        yield events, rows

    def _gathered(self, start: int, end: int, number: int, ranges: int) -> Iterator[tuple[Elements, int]]:
        """The rows that come and go, at their instants, with their sign; of one range of their hashes of so many."""
        for events, rows in self._events(start, end):
            part = events.at(rows)
            if ranges > 1:
                hashes = hash_columns(part.columns.columns) >> np.uint64(20)
                part = part.where(hashes % np.uint64(ranges) == number)
            yield part, events.sign

    def _answer(self, parts: list[tuple[Elements, int]]) -> Elements | None:
        if not sum(len(part) for part, _ in parts):
            return None
        together = concatenate([part for part, _ in parts])
        columns, times = together.columns, together.valid_from
        signs = np.repeat(np.array([sign for _, sign in parts], np.int64), [len(part) for part, _ in parts])
        groups, first = group_rows([*columns.columns, pa.array(times)])
        net = np.zeros(len(first), np.int64)
        np.add.at(net, groups, signs)
        at = np.repeat(first, np.maximum(net if self.kind == "istream" else -net, 0))
        if len(at) == 0:
            return None
        chosen = columns.take(pa.array(at))
        batch = pa.RecordBatch.from_arrays(chosen.columns, schema=self.schema)
        return Elements(batch, times[at], times[at] + 1)


@dataclass(frozen=True, slots=True)
class Events:
    """What comes (sign 1) or goes (sign -1) of a segment's elements."""

    segment: Segment
    sign: int

    @property
    def all_times(self) -> Ticks:
        """When each element does."""
        return self.segment.elements.valid_from if self.sign > 0 else self.segment.elements.valid_to

    def at(self, rows: Indices) -> Elements:
        """Some elements, at the instant at which they do."""
        times = self.all_times.take(rows)
        return self.segment.elements.without_hashes().take(rows).with_validity(times, times + 1)


def _row_bytes(events: Events) -> int:
    return events.segment.bytes // max(1, len(events.segment))


class InstantsOperator(SliceOperator):
    """One element of one tick per instant at which a tuple is valid: RSTREAM, and what a window over a query sees."""

    name = "instants"

    def __init__(self, schema: pa.Schema, kept: SortedState, boundaries: Hop | None) -> None:
        super().__init__(schema, (kept,), None)
        self.boundaries = boundaries

    def evaluations(self, start: int, end: int) -> Iterator[Elements]:
        given = 0
        for stored in stored_by_range(self.kept, start, end):
            for part in [stored[0].alive()] if self.most is None else stored[0].some(self.most):
                for some in self._cut(part.elements):
                    if self.boundaries is None:
                        rows, times, _ = expand(np.arange(len(some)), some.valid_from, some.valid_to)
                    else:
                        rows, times = _boundaries(some, self.boundaries)
                    given += len(rows)
                    if self.boundaries is None and given > ELEMENTS_AT_ONCE:
                        raise _too_long()
                    if len(rows):
                        chosen = some.columns.take(pa.array(rows))
                        batch = pa.RecordBatch.from_arrays(chosen.columns, schema=self.schema)
                        yield Elements(batch, times, times + 1)

    def _cut(self, alive: Elements) -> Iterator[Elements]:
        """The elements, as many at a time as have a bounded number of instants."""
        if len(alive) == 0:
            return
        lengths = alive.valid_to - alive.valid_from
        if self.boundaries is None and lengths.sum(dtype=np.float64) > ELEMENTS_AT_ONCE:
            raise _too_long()
        if self.most is None:
            yield alive
            return
        at_once = max(1, self.most // INSTANT_BYTES)
        if self.boundaries is None:
            alive = _shortened(alive, at_once)
        slide = 1 if self.boundaries is None else self.boundaries.longest_slide
        for first, last in chunks((alive.valid_to - alive.valid_from) // slide + 1, at_once):
            yield alive.slice(first, last - first)


def _shortened(alive: Elements, longest: int) -> Elements:
    """The same elements, those that are valid longer cut into several."""
    counts = -(-(alive.valid_to - alive.valid_from) // longest)
    ends = np.cumsum(counts)
    rows = np.repeat(np.arange(len(alive)), counts)
    starts = alive.valid_from[rows] + longest * (np.arange(len(rows)) - np.repeat(ends - counts, counts))
    return alive.take(rows).with_validity(starts, np.minimum(starts + longest, alive.valid_to[rows]))


def _too_long() -> QueryError:
    return QueryError(
        "this query asks for an element at every instant of a relation that lasts too long",
        hint="use a shorter window below it, or [HOP size, slide] so that only boundaries count",
    )


def _boundaries(alive: Elements, hop: Hop) -> tuple[Ticks, Ticks]:
    # Cut from the tick before on, an element has a piece that begins at each of its boundaries.
    rows, times, _ = pieces(alive.valid_from - 1, alive.valid_to, hop)
    at = np.flatnonzero(times >= alive.valid_from[rows])
    return rows[at], times[at]
