"""Operators that must wait: they keep their input and answer for a slice of time once nothing can change in it.

The slices end at the multiples of the query's emission grid, whichever plan runs and however the input is cut into
batches. Within a slice the answer is computed from all elements alive in it, clipped to it: nothing is ever taken back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.algebra.windows import Hop
from midstream.operators.base import Operator
from midstream.operators.elements import Elements, Hashes, concatenate
from midstream.operators.hops import boundary_at_or_before
from midstream.operators.state.alive import Alive, alive_by_range
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
        return _joined(self.advances(frontier))

    def advances(self, frontier: int) -> Iterator[Elements]:
        self.frontier = frontier
        end = grid_floor(frontier, self.grid)
        if end <= self.done:
            return
        start, self.done = self.done, end
        for result in self.evaluations(start, end):
            self.work.given += len(result)
            yield result
        self.forget(end)

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

    def evaluations(self, start: int, end: int) -> Iterator[Elements]:
        """The same, piece by piece where that would be much."""
        result = self.evaluate(start, end)
        if result is not None:
            yield result


class KeyedSliceOperator(SliceOperator):
    """Answers for every range of hashes by itself: rows that it looks at together have equal keys."""

    most: int | None = None
    """How many bytes of state it looks at together, unless a single key has more; None: any number."""

    def evaluate(self, start: int, end: int) -> Elements | None:
        return _joined(self.evaluations(start, end))

    def evaluations(self, start: int, end: int) -> Iterator[Elements]:
        for alive in alive_by_range(self.kept, start, end, self.most):
            for answer in self.answers(alive, start, end):
                if len(answer):
                    yield answer

    def answers(self, alive: Sequence[Alive], start: int, end: int) -> Iterator[Elements]:
        """The answer over `[start, end)` to what is alive in it, of some keys."""
        raise NotImplementedError


def _joined(parts: Iterator[Elements]) -> Elements | None:
    given = list(parts)
    return concatenate(given) if given else None
