"""The places of rows in their partitions, and the frames around them, as numbers of places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.over import Excluded, Frame, NamedOver
from midstream.errors import InternalError
from midstream.operators.elements import Indices, Mask
from midstream.operators.ordering import NeighbourRuns
from midstream.operators.sweep import Sweep
from midstream.operators.vectors import Numbers, gather, numbers_of, validity_of

Bounds = tuple[Indices, Indices]
"""Where something begins for each place, and the place behind its end."""


class FramePlaces:
    """Rows on pieces of time, by piece and then in order: a partition is what lies on one piece.

    `ranks` are numbers of all rows that are equal where the order holds rows equal.
    """

    def __init__(self, row: Indices, piece: Indices, ranks: Sequence[Numbers]) -> None:
        self.row = row
        self.piece = piece
        self.ranks = ranks
        self.here = np.arange(len(row))
        self.start, self.end = _edges(NeighbourRuns(len(row), piece[1:] != piece[:-1]))

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def groups(self) -> NeighbourRuns:
        """The places of a partition that the order holds equal."""
        keys = (self.piece, *(ranks[self.row] for ranks in self.ranks))
        return NeighbourRuns(len(self), *(key[1:] != key[:-1] for key in keys))

    @cached_property
    def group(self) -> Indices:
        """Of which of them each place is."""
        return np.arange(len(self.groups.sizes)).repeat(self.groups.sizes)

    @cached_property
    def peers(self) -> Bounds:
        """Where those that are equal to each place begin and end."""
        return _edges(self.groups)


def _edges(runs: NeighbourRuns) -> Bounds:
    """Where the run of each place begins and ends."""
    return runs.first.repeat(runs.sizes), runs.end.repeat(runs.sizes)


@dataclass(frozen=True, slots=True)
class FrameSweep(Sweep):
    """Frames as pieces: that of place i has the elements `low[i]` up to but not `high[i]`."""

    low: Indices
    high: Indices

    def steps(self, weights: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
        """The sums of neighbours are differences of running sums."""
        if weights is None:
            return self.high - self.low
        total = np.zeros(len(weights) + 1, np.int64)
        np.cumsum(weights, out=total[1:])
        return total[self.high] - total[self.low]


def ranking(function: str, places: FramePlaces, buckets: int) -> pa.Array:
    """A function of places alone."""
    number, rank, size = places.here - places.start, places.peers[0] - places.start, places.end - places.start
    match function:
        case "row_number":
            return pa.array(number + 1)
        case "rank":
            return pa.array(rank + 1)
        case "dense_rank":
            return pa.array(places.group - places.group[places.start] + 1)
        case "percent_rank":
            return pa.array(rank / np.maximum(size - 1, 1))
        case "cume_dist":
            return pa.array((places.peers[1] - places.start) / size)
        case "ntile":
            least, larger = size // buckets, size % buckets
            within = larger * (least + 1)
            late = larger + (number - within) // np.maximum(least, 1)
            return pa.array(np.where(number < within, number // (least + 1), late) + 1)
    raise InternalError(f"no function {function} of places")


def neighbour(over: NamedOver, columns: Sequence[pa.Array], places: FramePlaces) -> pa.Array:
    """The value some places before or after, or the default."""
    columns, distance, told = _numbers_of(over, columns, places)
    known = _known(over, columns[0], places)
    step = -distance if over.call.function == "lag" else distance
    behind, before = (np.searchsorted(known, places.here, side) for side in ("right", "left"))
    at, there = _within(known, np.where(step > 0, behind + step - 1, before + step), places.start, places.end)
    at = np.where(step == 0, places.here, at)
    return _where_told(_values(columns, places, at, there | (step == 0)), told)


def picked(over: NamedOver, columns: Sequence[pa.Array], places: FramePlaces, frame: Bounds) -> pa.Array:
    """The value of the first, the last or another place of every frame."""
    known = _known(over, columns[0], places)
    columns, nth, told = _numbers_of(over, columns, places)
    spans = [np.searchsorted(known, span) for span in _spans(places, *frame, over.frame.excluded)]
    sizes = [np.maximum(end - start, 0) for start, end in spans]
    wanted = np.sum(sizes, axis=0) - 1 if over.call.function == "last_value" else nth - 1
    number = np.full(len(places), -1)
    for (start, _), size in zip(spans, sizes, strict=True):
        number = np.where((wanted >= 0) & (wanted < size), start + wanted, number)
        wanted = wanted - size
    return _where_told(_values(columns, places, *_within(known, number, *frame)), told)


def _numbers_of(
    over: NamedOver, columns: Sequence[pa.Array], places: FramePlaces
) -> tuple[Sequence[pa.Array], Indices, Mask | None]:
    """What a function is told at each place besides its other columns, and where it is told anything."""
    if over.number is not None:
        return columns, np.full(len(places), over.number), None
    *others, numbers = columns
    valid = validity_of(numbers)
    return others, numbers_of(numbers)[places.row].astype(np.intp), None if valid is None else valid[places.row]


def _where_told(values: pa.Array, told: Mask | None) -> pa.Array:
    return values if told is None else pc.if_else(pa.array(told), values, pa.scalar(None, values.type))


def _known(over: NamedOver, column: pa.Array, places: FramePlaces) -> Indices:
    """The places that are looked at."""
    valid = validity_of(column) if over.known else None
    return places.here if valid is None else np.flatnonzero(valid[places.row])


def _within(known: Indices, number: Indices, low: Indices, high: Indices) -> tuple[Indices, Mask]:
    """The known places of these numbers, and whether there are such within the bounds."""
    there = (number >= 0) & (number < len(known))
    at = known[np.where(there, number, 0)] if len(known) else np.zeros(len(number), np.intp)
    return at, there & (at >= low) & (at < high)


def _values(columns: Sequence[pa.Array], places: FramePlaces, at: Indices, there: Mask) -> pa.Array:
    """Values of the first column at places; elsewhere the second column's own, if there is one."""
    if len(columns) < 2:
        return columns[0].take(pa.array(places.row[at], mask=~there))
    both = pa.concat_arrays([columns[0], columns[1].cast(columns[0].type)])
    return gather(both, np.where(there, places.row[at], len(columns[0]) + places.row))


def frame_of(frame: Frame, places: FramePlaces, by: tuple[pa.Array, bool] | None) -> Bounds:
    """Where the frame of every place begins and ends; `by` is the order's first column, and whether it descends."""
    low = _edge(frame, frame.start, places, by, False)
    return low, np.maximum(low, _edge(frame, frame.end, places, by, True))


def counted_for(
    places: FramePlaces, low: Indices, high: Indices, excluded: Excluded = ""
) -> tuple[Indices | slice, Sweep]:
    """Places that count, and for the frames of which places; some twice, around those that leave it out.

    A place counts for those whose frames have begun, and not ended, before it. Those that leave it out are itself, or
    those that the order holds equal to it.
    """
    first, last = (np.cumsum(np.bincount(edge, minlength=len(places)))[: len(places)] for edge in (high, low))
    pieces = np.zeros(len(places), np.intp), places.here, places.here + 1
    if not excluded:
        return slice(None), FrameSweep(*pieces, first, last, low, high)
    spans = _spans(places, first, last, excluded)
    starts, ends = (np.stack(edges, 1).ravel() for edges in zip(*spans, strict=True))
    counted = np.flatnonzero(starts < ends)
    return counted // len(spans), Sweep(*pieces, starts[counted], ends[counted])


def _spans(places: FramePlaces, low: Indices, high: Indices, excluded: Excluded) -> list[Bounds]:
    """What is left between bounds without what is excluded, in order."""
    if not excluded:
        return [(low, high)]
    one = excluded == "CURRENT ROW"
    left, right = (places.here, places.here + 1) if one else places.peers
    spans = [(low, np.minimum(high, left)), (np.maximum(low, right), high)]
    if excluded == "TIES":
        spans.insert(1, (np.maximum(low, places.here), np.minimum(high, places.here + 1)))
    return spans


def _edge(
    frame: Frame, distance: float | int | None, places: FramePlaces, by: tuple[pa.Array, bool] | None, end: bool
) -> Indices:
    if distance is None:
        return places.end if end else places.start
    if frame.unit == "rows":
        return np.clip(places.here + int(distance) + end, places.start, places.end)
    if frame.unit == "groups":
        last = places.group[places.end - 1] + 1
        number = np.clip(places.group + int(distance) + end, places.group[places.start], last)
        found: Indices = places.groups.bounds[number]
        return found
    if not distance:
        return places.peers[end]
    assert by is not None
    return _by_value(distance, places, *by, end)


def _by_value(distance: float | int, places: FramePlaces, column: pa.Array, descending: bool, end: bool) -> Indices:
    """The first place whose value is not less than a place's value and a distance, or the first that is greater."""
    found = places.peers[end].copy()
    numbers, valid = numbers_of(column), validity_of(column)
    known = np.ones(len(column), bool) if valid is None else valid
    if numbers.dtype.kind == "f":
        known = known & ~np.isnan(numbers)
    at = places.here[known[places.row]]
    values = _signed(numbers, known, distance, descending)[places.row[at]]
    both = np.unique(np.concatenate([values, values + distance]), return_inverse=True)[1]
    scale = len(both) + 1
    partition = places.start[at] * scale
    keys, wanted = partition + both[: len(at)], partition + both[len(at) :]
    number = np.searchsorted(keys, wanted, "right" if end else "left")
    # The known places of a partition are neighbours, so they can be counted from its first one.
    first = np.searchsorted(keys, partition, "left")
    found[at] = at[np.minimum(first, len(at) - 1)] + number - first
    return found


def _signed(numbers: Numbers, known: Mask, distance: float | int, descending: bool) -> Numbers:
    """Numbers that ascend in the order, wide enough for the distance to be added."""
    if numbers.dtype.kind == "f":
        wide: Numbers = numbers.astype(np.float64)
    else:
        largest = (
            max((abs(int(n)) for n in (numbers[known].min(), numbers[known].max())), default=0) if known.any() else 0
        )
        wide = numbers.astype(object if largest + abs(distance) >= 2**62 else np.int64)
    return -wide if descending else wide
