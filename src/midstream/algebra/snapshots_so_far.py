"""Comparing results that still grow: snapshot by snapshot, up to an instant before which both are complete.

What both have with the same interval cancels for all time. Of the rest only what ends later is needed to go on from
there, so a comparison that follows two results holds no more than what they cut differently.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from midstream.algebra.snapshots import (
    Integers,
    SnapshotComparison,
    _aligned,
    _first_differing_snapshot,
    _mismatch,
    _Result,
    _result,
    _row_numbers,
)


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Two results compared up to an instant: what was found, and the rows of each that matter after it.

    `tick` is the first instant that differs, if one does.
    """

    found: SnapshotComparison
    x: pa.Table
    y: pa.Table
    tick: int | None = None


def equal_between(x: pa.Table, y: pa.Table, since: int, until: int) -> Unsettled:
    """Whether two results have the same snapshots from one tick up to another.

    Of rows that end later, those that only one of the results has with this very interval are left to compare.

    >>> whole = pa.table({"k": ["a"], "valid_from": [1], "valid_to": [9]})
    >>> pieces = pa.table({"k": ["a", "a"], "valid_from": [1, 4], "valid_to": [4, 9]})
    >>> compared = equal_between(whole, pieces, 0, 5)
    >>> bool(compared.found), compared.x.num_rows, compared.y.num_rows
    (True, 1, 1)
    >>> print(equal_between(compared.x, compared.y.slice(0, 0), 5, 7).found)
    snapshots differ first at 5
      only in x: {'k': 'a'}
    """
    left, right = (_from(_result(side, name), since) for side, name in ((x, "x"), (y, "y")))
    reason = _mismatch(left, right)
    aligned = _aligned(left, right) if reason is None else reason
    if isinstance(aligned, str):
        return Unsettled(SnapshotComparison(aligned), x, y)
    left, right = aligned
    rows = _row_numbers(left, right, tolerant=True)
    kept_x, kept_y = _unpaired(left, right, rows)
    both = np.concatenate([kept_x, kept_y + len(left.start)])
    mine, its = _taken(left, kept_x), _taken(right, kept_y)
    found, tick = _first_difference(_until(mine, until), _until(its, until), rows[both])
    later_x, later_y = kept_x[mine.end > until], kept_y[its.end > until]
    return Unsettled(found, x.take(pa.array(later_x)), y.take(pa.array(later_y)), tick)


def _first_difference(left: _Result, right: _Result, rows: Integers) -> tuple[SnapshotComparison, int | None]:
    found = _first_differing_snapshot(left, right, rows)
    if found or found.instant is None:
        return found, None
    # The same in ticks: what people are shown may be a time of day.
    ticks = replace(left, time_type=pa.int64()), replace(right, time_type=pa.int64())
    instant = _first_differing_snapshot(*ticks, rows).instant
    return found, instant if isinstance(instant, int) else None


def _from(result: _Result, since: int) -> _Result:
    return replace(result, start=np.maximum(result.start, since))


def _until(result: _Result, until: int) -> _Result:
    return replace(result, end=np.minimum(result.end, until))


def _taken(result: _Result, places: Integers) -> _Result:
    return replace(
        result, payload=result.payload.take(pa.array(places)), start=result.start[places], end=result.end[places]
    )


def _unpaired(left: _Result, right: _Result, rows: Integers) -> tuple[Integers, Integers]:
    """The places of rows of either side that the other does not have equally often over the same interval."""
    start, end = np.concatenate([left.start, right.start]), np.concatenate([left.end, right.end])
    by_key = np.lexsort((end, start, rows))
    changed = np.zeros(len(by_key), dtype=bool)
    for key in (rows, start, end):
        ordered = key[by_key]
        changed[1:] |= ordered[1:] != ordered[:-1]
    group = np.cumsum(changed)
    sides = by_key >= len(left.start)
    kept = []
    for side in (False, True):
        mine = np.flatnonzero(sides == side)
        others = np.bincount(group[sides != side], minlength=len(by_key) + 1)
        number = np.arange(len(mine)) - np.searchsorted(group[mine], group[mine])
        kept.append(np.sort(by_key[mine[number >= others[group[mine]]]]))
    return kept[0], kept[1] - len(left.start)


@dataclass(slots=True)
class Comparison:
    """Follows two results of a query from an instant on, each as far as it is complete."""

    since: int
    """Up to here both have been compared."""
    x: list[pa.Table] = field(default_factory=list)
    y: list[pa.Table] = field(default_factory=list)
    differs_at: int | None = None
    """The first tick at which they differ, if they do."""

    def compare(self, until: int) -> SnapshotComparison:
        """Compares up to an instant before which both are complete."""
        if until <= self.since or not (self.x or self.y):
            self.since = max(self.since, until)
            return SnapshotComparison()
        x, y = self.answers
        compared = equal_between(x, y, self.since, until)
        if compared.found:
            # What is empty may have the columns of the other side, whose times may be of another zone.
            self.x, self.y = ([side] if side.num_rows else [] for side in (compared.x, compared.y))
            self.since = until
        self.differs_at = compared.tick
        return compared.found

    @property
    def answers(self) -> tuple[pa.Table, pa.Table]:
        """What is left to compare of both; after a difference was found, both answers at that instant are among it."""
        known = (self.x or self.y)[0].schema
        x, y = (pa.concat_tables(side) if side else known.empty_table() for side in (self.x, self.y))
        return x, y
