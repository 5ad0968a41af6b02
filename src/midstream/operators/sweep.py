"""Sweeping over time: what holds between two neighbouring points at which anything changes.

Elements of a group cut time into elementary pieces; a count, a sum or a least value is constant on each. Integer
counts are running sums of steps. Sums of floats and least values must never subtract, so they go through a tree of
dyadic ranges: every interval is a union of few nodes, every piece the combination of the nodes above it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from midstream.operators.elements import Indices, Ticks
from midstream.operators.ordering import NeighbourRuns, stable_order

Numbers = npt.NDArray[np.generic]
Intervals = tuple[Indices, Ticks, Ticks]
"""Groups, and from when until when each has something."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Pieces in order of group, then time; element i covers the pieces `first[i]` up to but not `last[i]`."""

    groups: Indices
    starts: Ticks
    ends: Ticks
    first: Indices
    last: Indices

    def __len__(self) -> int:
        return len(self.starts)

    def of(self, elements: slice) -> Sweep:
        """The same pieces, as only some of the elements cover them."""
        return Sweep(self.groups, self.starts, self.ends, self.first[elements], self.last[elements])

    def steps(self, weights: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
        """The sum of integer weights (one each if not given) of the elements that cover each piece."""
        size = len(self) + 1
        if weights is None:
            change = np.bincount(self.first, minlength=size) - np.bincount(self.last, minlength=size)
        else:
            change = _summed(self.first, weights, size) - _summed(self.last, weights, size)
        return np.cumsum(change)[:-1].astype(np.int64, copy=False)

    def combine(self, values: Numbers, operation: np.ufunc, neutral: float | int) -> Numbers:
        """The combination, by an associative operation, of the values of the elements that cover each piece."""
        size = max(1, len(self))
        tree = np.full(2 * size, neutral, dtype=values.dtype)
        for elements, nodes in self._cover(size):
            operation.at(tree, nodes, values[elements])
        return _pushed_down(tree, size, operation)

    def _cover(self, size: int) -> Iterator[tuple[Indices, Indices]]:
        """Elements and the tree's nodes that together are their intervals, a few of either at a time."""
        elements = np.arange(len(self.first))
        low, high = self.first + size, self.last + size
        while True:
            open_ = low < high
            if not open_.any():
                return
            if not open_.all():
                low, high, elements = low[open_], high[open_], elements[open_]
            odd = (low & 1).astype(bool)
            yield elements[odd], low[odd]
            low = low + odd
            odd = (high & 1).astype(bool)
            high = high - odd
            yield elements[odd], high[odd]
            low, high = low >> 1, high >> 1


def _pushed_down(tree: Numbers, size: int, operation: np.ufunc) -> Numbers:
    """Combines every node with all its ancestors, level by level, and gives the leaves."""
    for above, below in _levels(size):
        parents, children = tree[above], tree[below]
        children[0::2] = operation(children[0::2], parents)
        children[1::2] = operation(children[1::2], parents)
    return tree[size : 2 * size]


def _summed(places: Indices, weights: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """The exact sum of the integers that fall on each place."""
    largest = max(abs(int(weights.min())), abs(int(weights.max()))) if len(weights) else 0
    if largest * len(weights) < 2**53:
        # No partial sum can be too large for a float to be exact, and floats are summed much faster.
        return np.bincount(places, weights, size).astype(np.int64)
    total = np.zeros(size, np.int64)
    np.add.at(total, places, weights)
    return total


def _levels(size: int) -> Iterator[tuple[slice, slice]]:
    """The tree's levels from the root down: where nodes lie, and where their children do."""
    start = 1
    while start < size:
        end = min(2 * start, size)
        yield slice(start, end), slice(2 * start, 2 * end)
        start = 2 * start


def sweep(groups: Indices, valid_from: Ticks, valid_to: Ticks) -> Sweep:
    """The elementary pieces of the given intervals, per group.

    Pieces that no interval covers (gaps within a group) are part of the sweep; their count is zero.
    """
    count = len(groups)
    times = np.concatenate([valid_from, valid_to])
    keys = _joint_key(np.concatenate([groups, groups]), times)
    order = stable_order(keys)
    ordered = keys[order]
    new = np.empty(2 * count, bool)
    new[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    point_of = np.empty(2 * count, np.intp)
    point_of[order] = np.cumsum(new) - 1
    at = order[new]
    point_groups, point_times = groups[at % count] if count else groups, times[at]
    same = np.empty(len(at), bool)
    same[-1:] = False
    np.equal(point_groups[1:], point_groups[:-1], out=same[:-1])
    # The last point of each group starts no piece: number the pieces without it.
    piece_of = np.cumsum(same) - same
    start_points = np.flatnonzero(same)
    return Sweep(
        point_groups[start_points],
        point_times[start_points],
        point_times[start_points + 1] if len(start_points) else point_times[:0],
        piece_of[point_of[:count]],
        piece_of[point_of[count:]],
    )


def pieces_between(groups: Indices, times: Ticks) -> Sweep:
    """The pieces between neighbouring points of each group, given in any order; no element covers them yet."""
    points = np.unique(_joint_key(groups, times), return_index=True)[1]
    groups, times = groups[points], times[points]
    at = np.flatnonzero(groups[1:] == groups[:-1])
    none = np.empty(0, np.intp)
    return Sweep(groups[at], times[at], times[at + 1], none, none)


def positions(pieces: Sweep, groups: Indices, times: Ticks) -> Indices:
    """For points of a sweep, the piece each starts; for a group's last point, the next group's first piece."""
    ranks = np.unique(np.concatenate([pieces.starts, times]), return_inverse=True)[1]
    scale = int(ranks.max()) + 1 if len(ranks) else 1
    keys = pieces.groups.astype(np.int64) * scale + ranks[: len(pieces)]
    found: Indices = np.searchsorted(keys, groups.astype(np.int64) * scale + ranks[len(pieces) :])
    return found


def _joint_key(groups: Indices, times: Ticks) -> npt.NDArray[np.int64]:
    """One integer per (group, time) in the same order as the pair."""
    if len(groups) == 0:
        return np.empty(0, np.int64)
    low, high = int(times.min()), int(times.max())
    top = int(groups.max()) + 1
    if (high - low + 1) * top < 2**62:
        return groups.astype(np.int64) * (high - low + 1) + (times - low)
    ranks = np.unique(times, return_inverse=True)[1]
    return groups.astype(np.int64) * (int(ranks.max()) + 1) + ranks


def union(groups: Indices, starts: Ticks, ends: Ticks, without: Intervals | None = None) -> Intervals:
    """The union of each group's intervals in order, less those that it has among others."""
    parts = [(groups, starts, ends), without or (groups[:0], starts[:0], ends[:0])]
    pieces = sweep(*map(np.concatenate, zip(*parts, strict=True)))
    count = len(groups)
    found = (pieces.of(slice(count)).steps() > 0) & (pieces.of(slice(count, None)).steps() == 0)
    groups, starts, ends = pieces.groups[found], pieces.starts[found], pieces.ends[found]
    runs = NeighbourRuns(len(groups), groups[1:] != groups[:-1], starts[1:] != ends[:-1])
    return groups[runs.first], starts[runs.first], ends[runs.end - 1]
