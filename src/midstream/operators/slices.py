"""Operators that must wait: they keep their input and answer for a slice of time once nothing can change in it.

The slices end at the multiples of the query's emission grid, whichever plan runs and however the input is cut into
batches. Within a slice the answer is computed from all elements alive in it, clipped to it: nothing is ever taken back.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.algebra.windows import Hop
from midstream.operators.base import Operator
from midstream.operators.elements import Elements, Hashes
from midstream.operators.hops import boundary_at_or_before
from midstream.operators.state.grouping import known_hashes
from midstream.operators.state.sorted_state import SortedState


def grid_floor(frontier: int, grid: Hop | None) -> int:
    """The last multiple of the grid not above the frontier."""
    if grid is None or frontier in (BEGINNING, INFINITY):
        return frontier
    return int(boundary_at_or_before(frontier, grid))


class SliceOperator(Operator):
    """Keeps each port's input in a state; `evaluate` answers for a slice. Without a grid, slices end anywhere."""

    def __init__(self, schema: pa.Schema, kept: Sequence[SortedState], grid: Hop | None) -> None:
        super().__init__(schema)
        self.kept = tuple(kept)
        self.ports = len(self.kept)
        self.grid = grid
        self.done = BEGINNING

    @property
    def states(self) -> tuple[SortedState, ...]:
        return self.kept

    @property
    def passed(self) -> int:
        return self.done

    def process(self, port: int, batch: Elements) -> Elements | None:
        self.work.taken += len(batch)
        self.work.inserted += len(batch)
        state = self.kept[port]
        state.insert(batch, self.hashes(port, batch))
        state.compact(self.needed_after, len(batch))
        return None

    def advance(self, frontier: int) -> Elements | None:
        self.frontier = frontier
        end = grid_floor(frontier, self.grid)
        if end <= self.done:
            return None
        start, self.done = self.done, end
        result = self.evaluate(start, end)
        self.forget(end)
        if result is not None:
            self.work.given += len(result)
        return result

    def restore(self, frontier: int) -> None:
        """Goes on from a frontier that was reached earlier, without answering again."""
        self.frontier = frontier
        self.done = grid_floor(frontier, self.grid)

    @property
    def needed_after(self) -> int:
        """What ends at or before this no later slice can need."""
        return self.done

    def forget(self, end: int) -> None:
        """Drops what no later slice can need."""
        for state in self.kept:
            state.expire(end)

    def hashes(self, port: int, batch: Elements) -> Hashes:
        """The hash the port's state is sorted by."""
        state = self.kept[port]
        return known_hashes(batch, state.key, state.grouping)

    def alive(self, port: int, start: int, end: int) -> Elements:
        """The port's elements within the slice, clipped to it."""
        return self.kept[port].alive(start, end).clipped(start, end)

    def evaluate(self, start: int, end: int) -> Elements | None:
        """The operator's answer over `[start, end)`."""
        raise NotImplementedError
