"""A window at a node: the rows of one stream that are kept there, by every key they are probed by.

Each row remembers its batch. A probe on behalf of a batch sees rows up to a batch number and no others, so what it
finds does not depend on what has arrived since. The window knows through which batch it is complete, and waits are for
that; rows that come twice are stored once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from midstream.lab.papers.node_operator_sets.query import batch_column
from midstream.operators.elements import Elements, Key, empty_elements
from midstream.operators.join import prepare
from midstream.operators.state.segment import Segment
from midstream.operators.state.sorted_state import SortedState

NEVER = -1
"""Before the first batch."""

Stored = tuple[int, frozenset[int], dict[Key, tuple[Segment, ...]]]
"""A window written down: complete through, batches beyond, and the segments by key. Segments never change."""


@dataclass(slots=True)
class Window:
    """Rows of a stream by batch; all batches up to `floor` are here, and those in `beyond`."""

    name: str
    schema: pa.Schema
    longest: int | None
    floor: int = NEVER
    beyond: set[int] = field(default_factory=set)
    states: dict[Key, SortedState] = field(default_factory=dict)

    @property
    def stored_schema(self) -> pa.Schema:
        """The rows' columns and their batch."""
        return self.schema.append(batch_column())

    def valid_at(self, instant: int) -> int:
        """How many rows are valid at or after an instant."""
        state = next(iter(self.states.values()), None)
        if state is None:
            return 0
        return sum(int(np.count_nonzero(s.elements.valid_to > instant)) for s in state.segments)

    def has(self, batch: int) -> bool:
        """Whether all rows of a batch are here."""
        return batch <= self.floor or batch in self.beyond

    def add(self, batch: int, rows: Elements) -> bool:
        """Stores the rows of one batch, unless they are here already; whether they were not."""
        if self.has(batch):
            return False
        self._store(tagged(rows, batch))
        self._reached({batch})
        return True

    def copy(self, rows: Elements, through: int) -> None:
        """Stores what another node keeps through a batch: the part that is not here yet."""
        if len(rows):
            batches = np.asarray(rows.columns.column(rows.columns.num_columns - 1))
            fresh = batches > self.floor
            if self.beyond:
                fresh &= ~np.isin(batches, list(self.beyond))
            self._store(rows.where(fresh))
        self.floor = max(self.floor, through)
        self._reached(set())

    def part(self, after: int, through: int, since: int) -> Elements:
        """Rows of the batches after one and through another that are still valid at an instant."""
        state = next(iter(self.states.values()), None)
        if state is None:
            return empty_elements(self.stored_schema)
        alive = state.alive(since)
        batches = np.asarray(alive.columns.column(alive.columns.num_columns - 1))
        return alive.where((batches > after) & (batches <= through))

    def by(self, key: Key) -> SortedState:
        """The rows by a key; sorted by it now if nobody has asked for it before."""
        if key not in self.states:
            state = SortedState(self.name, key, self.stored_schema, self.longest)
            others = [s.alive(-(2**63)) for s in self.states.values()][:1]
            self.states[key] = state
            if others and len(others[0]):
                state.append(*prepare(others[0].without_hashes(), key, nulls_equal=True))
        return self.states[key]

    def expire(self, frontier: int) -> None:
        """Forgets rows that nothing can meet any more."""
        for state in self.states.values():
            state.expire(frontier)
            state.compact(frontier)

    def _store(self, rows: Elements) -> None:
        if not self.states:
            self.by(())
        if len(rows):
            for key, state in self.states.items():
                state.append(*prepare(rows.without_hashes(), key, nulls_equal=True))

    def _reached(self, batches: Iterable[int]) -> None:
        self.beyond |= set(batches)
        while self.floor + 1 in self.beyond:
            self.floor += 1
        self.beyond = {batch for batch in self.beyond if batch > self.floor}

    def stored(self) -> Stored:
        """What has to be written down to have the window back."""
        return self.floor, frozenset(self.beyond), {key: tuple(s.segments) for key, s in self.states.items()}

    def restore(self, stored: Stored) -> None:
        """Takes over what was written down."""
        self.floor, beyond, segments = stored
        self.beyond = set(beyond)
        for key, found in segments.items():
            self.by(key).replace_segments(found)


def tagged(rows: Elements, batch: int) -> Elements:
    """Rows with the number of their batch as a last column."""
    numbers = pa.array(np.full(len(rows), batch, np.int64))
    schema = rows.columns.schema.append(batch_column())
    columns = pa.RecordBatch.from_arrays([*rows.columns.columns, numbers], schema=schema)
    return Elements(columns, rows.valid_from, rows.valid_to)
