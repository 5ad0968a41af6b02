"""Some of a query's partition groups, as slots run them while groups move: whose rows count, and for which time.

While groups move by a protocol that sends their rows to two slots, the groups run apart from the others, once in the
slots that they leave and once in those that they come to. Nothing is compared across groups, so to run some apart
changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.job.task.exchange import groups_of
from midstream.operators.arrival_hash import arrival_hash
from midstream.operators.elements import Elements, Mask

ELSEWHERE = -1
"""The slot of groups that another track has."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A track's side of the split time; `whole` results, which keep intervals, belong to the side they start on."""

    split_at: int
    before: bool
    whole: bool

    def counted(self, results: Elements) -> Elements:
        """What of its results counts."""
        if self.whole:
            early = results.valid_from < self.split_at
            return results.where(early if self.before else ~early)
        return results.clipped(BEGINNING, self.split_at) if self.before else results.clipped(self.split_at, INFINITY)


@dataclass(frozen=True, slots=True)
class Track:
    """The slot of each group that it has; `keys` are those by which rows of streams arrive, where they do by a key.

    Rows of a track that is `coming` to its slots are counted where they come from. Rows of a `marked` one know whether
    they have come before the move.
    """

    routing: tuple[int, ...]
    keys: Mapping[str, tuple[str, ...]]
    limit: Limit | None = None
    coming: bool = False
    marked: bool = False

    def takes(self, stream: str, rows: pa.RecordBatch, slot: int, copied: bool) -> Mask:
        """Which rows of a stream in a slot are its own; `copied` are those that another slot accounts for."""
        key = self.keys.get(stream)
        # A query that does not read the key takes rows wherever they arrive.
        if not key or not set(key) <= set(rows.schema.names):
            return np.full(rows.num_rows, not copied)
        groups = groups_of(arrival_hash([rows.column(name) for name in key]), len(self.routing))
        return np.asarray(np.asarray(self.routing, np.int32)[groups] == slot)

    def rests(self, slot: int) -> bool:
        """Whether it has nothing to do in a slot: it has groups of others only, and no rows besides."""
        return ELSEWHERE in self.routing and slot not in self.routing
