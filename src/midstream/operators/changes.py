"""From relations to streams, and to the instants that windows over sub-queries look at.

ISTREAM and DSTREAM are differences of neighbouring snapshots. The count of a tuple at an instant less its count at the
instant before is the number of elements that start there less the number that end there, so adjacent fragments cancel
and nothing but the events themselves is needed.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.algebra.windows import Hop
from midstream.errors import QueryError
from midstream.operators.elements import Elements, Ticks
from midstream.operators.hops import boundary_after
from midstream.operators.ordering import group_rows
from midstream.operators.slices import SliceOperator
from midstream.operators.state.sorted_state import SortedState

ELEMENTS_AT_ONCE = 50_000_000
"""More elements than this for one slice, one per instant, is taken for a mistake."""


class Changes(SliceOperator):
    """ISTREAM (what entered) and DSTREAM (what left), as elements of one tick."""

    def __init__(self, schema: pa.Schema, kept: SortedState, kind: Literal["istream", "dstream"]) -> None:
        super().__init__(schema, (kept,), None)
        self.kind = kind
        self.name = kind

    @property
    def needed_after(self) -> int:
        return max(self.done - 1, BEGINNING)

    def forget(self, end: int) -> None:
        # What ends exactly at the slice's end has yet to leave.
        for state in self.kept:
            state.expire(end - 1)

    def evaluate(self, start: int, end: int) -> Elements | None:
        kept = self.kept[0].alive(start - 1 if start > BEGINNING else start, end)
        starts = np.flatnonzero((kept.valid_from >= start) & (kept.valid_from < end))
        stops = np.flatnonzero((kept.valid_to >= start) & (kept.valid_to < end))
        rows = np.concatenate([starts, stops])
        if len(rows) == 0:
            return None
        columns = kept.columns.take(pa.array(rows))
        times = np.concatenate([kept.valid_from[starts], kept.valid_to[stops]])
        signs = np.repeat(np.array([1, -1], np.int64), [len(starts), len(stops)])
        groups, _ = group_rows([*columns.columns, pa.array(times)])
        net = np.zeros(int(groups.max()) + 1, np.int64)
        np.add.at(net, groups, signs)
        first = np.full(len(net), len(rows), np.intp)
        np.minimum.at(first, groups, np.arange(len(rows)))
        copies = np.maximum(net if self.kind == "istream" else -net, 0)
        at = np.repeat(first, copies)
        chosen = columns.take(pa.array(at))
        batch = pa.RecordBatch.from_arrays(chosen.columns, schema=self.schema)
        return Elements(batch, times[at], times[at] + 1)


class Instants(SliceOperator):
    """One element of one tick per instant at which a tuple is valid: RSTREAM, and what a window over a query sees."""

    name = "instants"

    def __init__(self, schema: pa.Schema, kept: SortedState, boundaries: Hop | None) -> None:
        super().__init__(schema, (kept,), None)
        self.boundaries = boundaries

    def evaluate(self, start: int, end: int) -> Elements | None:
        alive = self.alive(0, start, end)
        if len(alive) == 0:
            return None
        rows, times = self._ticks(alive) if self.boundaries is None else self._boundaries(alive, self.boundaries)
        if len(rows) == 0:
            return None
        chosen = alive.columns.take(pa.array(rows))
        return Elements(pa.RecordBatch.from_arrays(chosen.columns, schema=self.schema), times, times + 1)

    def _ticks(self, alive: Elements) -> tuple[Ticks, Ticks]:
        lengths = alive.valid_to - alive.valid_from
        if bool((alive.valid_to == INFINITY).any()) or int(lengths.sum()) > ELEMENTS_AT_ONCE:
            raise QueryError(
                "this query asks for an element at every instant of a relation that lasts too long",
                hint="use a shorter window below it, or [HOP size, slide] so that only boundaries count",
            )
        ends = np.cumsum(lengths)
        rows = np.repeat(np.arange(len(alive)), lengths)
        return rows, np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths) + alive.valid_from[rows]

    def _boundaries(self, alive: Elements, hop: Hop) -> tuple[Ticks, Ticks]:
        rows, times = [], []
        everyone = np.arange(len(alive))
        at = np.asarray(boundary_after(alive.valid_from - 1, hop))
        while True:
            inside = at < alive.valid_to[everyone]
            if not inside.any():
                break
            everyone, at = everyone[inside], at[inside]
            rows.append(everyone)
            times.append(at)
            at = np.asarray(boundary_after(at, hop))
        none = np.empty(0, np.int64)
        return (np.concatenate(rows), np.concatenate(times)) if rows else (none, none)
