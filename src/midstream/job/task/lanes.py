"""A lane, as slots run it: rows of which partition groups it takes, and for which time it answers.

All plans of a query have equal snapshots, and nothing is compared across partition groups. So a query may run in any
lanes whose regions partition (group x time): its results are the union of what the lanes give, each clipped to its
region. A lane takes all rows of its groups, those that only matter outside its region too: it can answer for any time
from which on it has seen all that is valid then, so another lane can be closed without a trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.job.task.exchange import groups_of
from midstream.operators.elements import Elements, Mask
from midstream.operators.group_hash import group_hash

ELSEWHERE = -1
"""The slot of groups that another lane has."""

STAYING, LEAVING, COMING = range(3)
"""The lanes of a plan while groups move: of groups that stay (or of all, by the old routing), and of those that move,
in the slots that they leave and in those that they come to (or of all, by the new routing)."""

TARGET = 3
"""What is added to these for the plan that a query migrates to."""

KEPT = 6
"""What the old plan had kept when a paced migration began, as far as the new one has yet to be given it."""


@dataclass(frozen=True, slots=True)
class Region:
    """The time for which a lane answers.

    Where all plans of a query's lanes keep intervals, results are given `whole` by the lane in which they start
    (GenMig's reference point). Elsewhere they are cut where regions meet, which no snapshot can tell. A lane is opened
    after the ends of all results so far, so none of them is affected if a plan of the other form comes.
    """

    since: int = BEGINNING
    until: int = INFINITY
    whole: bool = False

    def clipped(self, results: Elements) -> Elements:
        """What of a lane's results counts."""
        if self.whole:
            return results.where((results.valid_from >= self.since) & (results.valid_from < self.until))
        return results.clipped(self.since, self.until)


EVER = Region()


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane of several: the slot of each group that it has (None: as groups are dealt), its region, its audience.

    `keys` are those by which rows of streams arrive, where they do by a key. Nobody hears a lane that is being filled.
    Rows of a `second` lane with the same groups are counted where the first has them. Rows of a `marked` one know
    whether they have come before the move of its groups, and it gives the results of those that have.
    """

    region: Region = EVER
    routing: tuple[int, ...] | None = None
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    heard: bool = True
    second: bool = False
    marked: bool = False

    def counted(self, results: Elements) -> Elements:
        """What of its results counts."""
        return self.region.clipped(results) if self.heard else results.slice(0, 0)

    def takes(self, stream: str, rows: pa.RecordBatch, slot: int, copied: bool) -> Mask:
        """Which rows of a stream in a slot are its own; `copied` are those that another slot accounts for."""
        assert self.routing is not None
        key = self.keys.get(stream)
        # A query that does not read the key takes rows wherever they arrive.
        if not key or not set(key) <= set(rows.schema.names):
            return np.full(rows.num_rows, not copied)
        groups = groups_of(group_hash([rows.column(name) for name in key]), len(self.routing))
        return np.asarray(np.asarray(self.routing, np.int32)[groups] == slot)

    def rests(self, slot: int) -> bool:
        """Whether it has nothing to do in a slot: it has groups of others only, and no rows besides."""
        return self.routing is not None and ELSEWHERE in self.routing and slot not in self.routing
