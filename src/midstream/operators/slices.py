"""Operators that must wait: they keep their input and answer for a slice of time once nothing can change in it.

The slices end at the multiples of the query's emission grid, whichever plan runs and however the input is cut into
batches. Within a slice the answer is computed from all elements alive in it, clipped to it: nothing is ever taken back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.algebra.windows import Hop
from midstream.errors import InputError
from midstream.operators.base import Operator, joined
from midstream.operators.elements import Elements, Hashes
from midstream.operators.hops import boundary_at_or_before
from midstream.operators.state.alive import Alive, Stored, stored_by_range
from midstream.operators.state.segment import known_hashes
from midstream.operators.state.sorted_state import SortedState

LARGE = 2
"""How many times the bytes that are looked at together a range of hashes may have to be read at once."""


def grid_floor(frontier: int, grid: Hop | None) -> int:
    """The last multiple of the grid not above the frontier."""
    if grid is None or frontier in (BEGINNING, INFINITY):
        return frontier
    return int(boundary_at_or_before(frontier, grid))


class SliceOperator(Operator):
    """Keeps each port's input in a state; `evaluate` answers for a slice. Without a grid, slices end anywhere."""

    most: int | None = None
    """How many bytes of state it looks at together; None: any number."""
    limit: int | None = None
    """How many bytes of state it may look at together where it has no other way; None: any number."""

    def __init__(self, schema: pa.Schema, kept: Sequence[SortedState], grid: Hop | None) -> None:
        super().__init__(schema)
        self.kept = self.states = tuple(kept)
        self.ports = len(self.kept)
        self.grid = grid
        self.done = BEGINNING

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

    def evaluate(self, start: int, end: int) -> Elements | None:
        """The operator's answer over `[start, end)`."""
        return joined(self.evaluations(start, end))

    def evaluations(self, start: int, end: int) -> Iterator[Elements]:
        """The same, piece by piece where that would be much."""
        raise NotImplementedError

    def is_large(self, stored: Sequence[Stored]) -> bool:
        """Whether what states hold is too much to be looked at together."""
        if self.most is None:
            return False
        large = LARGE * self.most
        return sum(part.estimate() for part in stored) > large and sum(part.size() for part in stored) > large

    def refuse_more_than_memory(self, what: str, size: int) -> None:
        """Says that something has to be in memory at once that does not fit."""
        if self.limit is not None and size > self.limit:
            raise more_than_memory(self.name, what, size, self.limit)


class KeyedSliceOperator(SliceOperator):
    """Answers for every range of hashes by itself: rows that it looks at together have equal keys."""

    together = "the rows of one partition"
    """What has to be in memory at once."""

    def evaluations(self, start: int, end: int) -> Iterator[Elements]:
        for stored in stored_by_range(self.kept, start, end, self.most):
            if self.is_large(stored):
                answers = self.answers_in_parts(stored, start, end)
            else:
                alive = [part.alive() for part in stored]
                answers = self.answers(alive, start, end) if any(map(len, alive)) else iter(())
            for answer in answers:
                if len(answer):
                    yield answer

    def answers(self, alive: Sequence[Alive], start: int, end: int) -> Iterator[Elements]:
        """The answer over `[start, end)` to what is alive in it, of some keys."""
        raise NotImplementedError

    def answers_in_parts(self, stored: Sequence[Stored], start: int, end: int) -> Iterator[Elements]:
        """The same to what does not fit into memory, of few keys with many rows; here, only if memory allows it."""
        self.refuse_more_than_memory(self.together, sum(part.size() for part in stored))
        yield from self.answers([part.alive() for part in stored], start, end)


def more_than_memory(operator: str, what: str, size: int, limit: int) -> InputError:
    """What a query is stopped by that needs more memory at once than it may take."""
    return InputError(
        f"{operator} needs more memory than memory_per_slot",
        detail=f"it must hold {what} at once: {size:,} bytes, more than {limit:,} bytes",
        hint="give the job a larger memory_per_slot, or the query a smaller window",
    )
