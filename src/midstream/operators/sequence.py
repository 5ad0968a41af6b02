"""Sequences: each second with firsts that are at or before it, per key.

A second is answered once the frontier has passed it: every first that could still precede it has come by then, in
whatever order the streams delivered. Firsts and seconds are put into the one total order, so that the firsts a second
may take are a run `[low, high)` of its key's: the latest of them (recent), all of them, or the earliest unused one
(chronicle). What chronicle uses up is a prefix of each key's firsts, because a first that a second leaves behind is
too old for every later second as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.algebra.plan import SequenceMode
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.operators.elements import Elements, Hashes, Indices, Mask, Ticks, concatenate, empty_elements
from midstream.operators.expressions import Predicate
from midstream.operators.hashing import key_validity
from midstream.operators.join import output_of
from midstream.operators.ordering import group_rows, total_order
from midstream.operators.slices import SliceOperator
from midstream.operators.sorting import hash_order
from midstream.operators.state.segment import pairs
from midstream.operators.state.sorted_state import SortedState
from midstream.operators.vectors import numbers_of

PAIRS_AT_ONCE = 4_000_000
"""How many pairs are built at a time: what keeps ALL over a crowded key within memory."""

SPARE_ROWS = 1024
"""How many useless firsts may lie in the state, beyond as many as there are useful ones, before it is tidied up."""


class FollowedBy(SliceOperator):
    """A sequence of two inputs of raw tuples; the third state holds the firsts that chronicle has used up."""

    def __init__(
        self,
        schema: pa.Schema,
        firsts: SortedState,
        seconds: SortedState,
        used: SortedState,
        mode: SequenceMode,
        within: int | None = None,
        condition: Predicate | None = None,
        outer: bool = False,
    ) -> None:
        super().__init__(schema, (firsts, seconds), None)
        self.name = f"sequence {mode}"
        self.used = used
        self.mode = mode
        self.within = within
        self.condition = condition
        self.outer = outer
        self.places = output_of(schema, firsts.schema, seconds.schema).places
        self.tidy_rows = 0

    @property
    def states(self) -> tuple[SortedState, ...]:
        return (*self.kept, self.used)

    def process(self, port: int, batch: Elements) -> Elements | None:
        if port == 0:
            batch = self._as_firsts(batch)
        elif not self.outer:
            batch = _with_keys(batch, self.kept[1].key)
        return super().process(port, batch) if len(batch) else None

    def forget(self, end: int) -> None:
        for state in self.states:
            state.expire(end)
        firsts, seconds = self.kept
        if any(segment.earliest_from < end for segment in seconds.segments):
            self._replace(seconds, seconds.alive(end), 1)
        if firsts.rows > 2 * self.tidy_rows + SPARE_ROWS:
            self._tidy(end)

    def evaluate(self, start: int, end: int) -> Elements | None:
        seconds = self.kept[1].alive(start, end)
        if len(seconds) == 0:
            return None
        run = self._run(_in_order(seconds), start, end)
        self.work.probed += len(seconds)
        parts = [part for part in self._results(run) if len(part)]
        return concatenate(parts) if parts else None

    def _as_firsts(self, batch: Elements) -> Elements:
        """Firsts count for as long as a second may follow them."""
        batch = _with_keys(batch, self.kept[0].key)
        if self.within is None:
            ends = np.full(len(batch), INFINITY)
        else:
            ends = np.minimum(batch.valid_from, INFINITY - self.within - 1) + (self.within + 1)
        return batch.with_validity(batch.valid_from, ends)

    def _run(self, seconds: Elements, start: int, end: int) -> Run:
        hashes = np.unique(hash_order(self.hashes(1, seconds))[1])
        firsts = _in_order(_found(self.kept[0], hashes, start, end))
        groups_first, groups_second = _groups(firsts, self.kept[0].key, seconds, self.kept[1].key)
        by_group = np.argsort(groups_first, kind="stable")
        firsts, groups_first = firsts.take(by_group), groups_first[by_group]
        if self.mode == "chronicle" and self.used.rows:
            fresh = self._unused(firsts, groups_first, _found(self.used, hashes, start, end))
            firsts, groups_first = firsts.where(fresh), groups_first[fresh]
        by_group = np.argsort(groups_second, kind="stable")
        seconds, groups_second = seconds.take(by_group), groups_second[by_group]
        low, high = _reach(firsts.valid_from, groups_first, seconds.valid_from, groups_second, self.within)
        return Run(firsts, seconds, groups_second, low, high)

    def _unused(self, firsts: Elements, groups: Indices, used: Elements) -> Mask:
        """Which firsts, in order of group and time, lie behind their group's used ones."""
        if len(used) == 0:
            return np.ones(len(firsts), bool)
        key = self.kept[0].key
        of_used, of_first = _groups(used, key, firsts, key)
        count = max(int(of_used.max()), int(of_first.max(initial=0))) + 1
        spent = np.bincount(of_used, minlength=count)
        begins = np.searchsorted(groups, groups)
        return np.arange(len(firsts)) - begins >= spent[of_first]

    def _results(self, run: Run) -> Iterator[Elements]:
        matched = np.zeros(len(run.seconds), bool)
        for here, there in self._pairs(run):
            pairs = self._paired(run, here, there)
            if self.condition is not None:
                holds = self.condition(pairs.columns)
                pairs, there = pairs.where(holds), there[holds]
            matched[there] = True
            self.work.matched += len(here)
            yield pairs
        if self.outer:
            yield self._padded(run.seconds.where(~matched))

    def _pairs(self, run: Run) -> Iterator[tuple[Indices, Indices]]:
        """Positions of firsts and seconds that belong together."""
        match self.mode:
            case "recent":
                there = np.flatnonzero(run.high > run.low)
                yield run.high[there] - 1, there
            case "chronicle":
                here, there = _earliest_unused(run)
                taken = run.firsts.take(here)
                self.used.insert(taken, self.hashes(0, taken))
                yield here, there
            case "all":
                yield from _every(run.low, run.high)

    def _paired(self, run: Run, here: Indices, there: Indices) -> Elements:
        firsts, seconds = run.firsts.columns, run.seconds.columns
        left, right = pa.array(here), pa.array(there)
        arrays = [firsts.column(i).take(left) if first else seconds.column(i).take(right) for first, i in self.places]
        times = run.seconds.valid_from[there]
        return Elements(pa.RecordBatch.from_arrays(arrays, schema=self.schema), times, times + 1)

    def _padded(self, seconds: Elements) -> Elements:
        arrays = [
            pa.nulls(len(seconds), field.type) if first else seconds.columns.column(i)
            for (first, i), field in zip(self.places, self.schema, strict=True)
        ]
        columns = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return Elements(columns, seconds.valid_from, seconds.valid_from + 1)

    def _tidy(self, end: int) -> None:
        """Keeps of the firsts before the frontier only those that a later second may take."""
        state = self.kept[0]
        rows = state.alive(end)
        early, later = rows.where(rows.valid_from < end), rows.where(rows.valid_from >= end)
        if len(early) and self.mode != "all":
            early = self._still_wanted(_in_order(early), end)
        self.used.segments = []
        self._replace(state, concatenate([early, later]), 0)
        self.tidy_rows = state.rows

    def _still_wanted(self, firsts: Elements, end: int) -> Elements:
        key = self.kept[0].key
        groups, _ = _groups(firsts, key, firsts, key)
        by_group = np.argsort(groups, kind="stable")
        firsts, groups = firsts.take(by_group), groups[by_group]
        if self.mode == "recent":
            return firsts.where(np.append(groups[1:] != groups[:-1], True))
        return firsts.where(self._unused(firsts, groups, self.used.alive(end)))

    def _replace(self, state: SortedState, rows: Elements, port: int) -> None:
        state.segments = []
        state.insert(rows, self.hashes(port, rows))


@dataclass(frozen=True, slots=True)
class Run:
    """Firsts and seconds in order of key and time, and for each second the run of firsts it may take."""

    firsts: Elements
    seconds: Elements
    groups: Indices
    low: Indices
    high: Indices


def _with_keys(batch: Elements, key: tuple[str, ...]) -> Elements:
    """The rows whose key can equal another: neither null nor NaN."""
    columns = [batch.columns.column(name) for name in key]
    valid = key_validity(columns)
    if valid is not None:
        batch = batch.where(valid)
    for name in key:
        if pa.types.is_floating(batch.columns.column(name).type):
            batch = batch.where(~np.isnan(numbers_of(batch.columns.column(name))))
    return batch


def _in_order(rows: Elements) -> Elements:
    order = total_order(rows.columns, [rows.valid_from])
    return rows if order is None else rows.take(order)


def _found(state: SortedState, hashes: Hashes, start: int, end: int) -> Elements:
    """The elements of some hashes that start before `end` and still count at `start`."""
    parts = []
    for segment in state.segments:
        if segment.latest_to <= start or segment.earliest_from >= end:
            continue
        _, there = pairs(hashes, segment.hashes)
        part = segment.elements.take(there)
        part = part.where((part.valid_to > start) & (part.valid_from < end))
        if len(part):
            parts.append(part)
    return concatenate(parts) if parts else empty_elements(state.schema)


def _groups(
    left: Elements, left_key: tuple[str, ...], right: Elements, right_key: tuple[str, ...]
) -> tuple[Indices, Indices]:
    """A number per key, the same on both sides where keys are equal."""
    if not left_key:
        return np.zeros(len(left), np.intp), np.zeros(len(right), np.intp)
    columns = [
        pa.concat_arrays([left.columns.column(a), right.columns.column(b)])
        for a, b in zip(left_key, right_key, strict=True)
    ]
    groups, _ = group_rows(columns)
    valid = key_validity(columns)
    if valid is not None:
        # A null equals nothing, not even a null: each such second is alone in its group.
        groups = np.where(valid, groups, len(groups) + np.arange(len(groups)))
    return groups[: len(left)], groups[len(left) :]


def _reach(
    first_times: Ticks, first_groups: Indices, second_times: Ticks, second_groups: Indices, within: int | None
) -> tuple[Indices, Indices]:
    """For each second, where the firsts that it may take begin and end."""
    if within is None:
        oldest = np.full(len(second_times), BEGINNING)
    else:
        oldest = np.maximum(second_times, BEGINNING + within) - within
    moments, ranks = np.unique(np.concatenate([first_times, second_times, oldest]), return_inverse=True)
    parts = np.split(ranks, [len(first_times), len(first_times) + len(second_times)])
    places = first_groups * len(moments) + parts[0]
    low = np.searchsorted(places, second_groups * len(moments) + parts[2])
    high = np.searchsorted(places, second_groups * len(moments) + parts[1], side="right")
    return low, high


def _every(low: Indices, high: Indices) -> Iterator[tuple[Indices, Indices]]:
    """All pairs of a second and a first in its run, some at a time."""
    counts = high - low
    pieces = np.cumsum(counts) // PAIRS_AT_ONCE
    cuts = [0, *(np.flatnonzero(pieces[1:] != pieces[:-1]) + 1).tolist(), len(counts)]
    for begin, stop in zip(cuts[:-1], cuts[1:], strict=True):
        some = counts[begin:stop]
        yield _ranges(low[begin:stop], some), np.repeat(np.arange(begin, stop), some)


def _ranges(begins: Indices, counts: Indices) -> Indices:
    """The numbers of all ranges, one range after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    numbers: Indices = np.arange(total) + np.repeat(begins - (ends - counts), counts)
    return numbers


def _earliest_unused(run: Run) -> tuple[Indices, Indices]:
    """Each second with the first that is its earliest unused one, if there is one.

    Let `q` be the first after the last one used. A second takes `max(q, low)` if that is before `high`, so afterwards
    `q` is `min(max(q, low) + 1, high)`. Less the second's number, that only ever clamps `q` between two bounds, and
    clamps compose: all of them are found by doubling, without going through the seconds one by one.
    """
    numbers = np.arange(len(run.low))
    upper = run.high - numbers
    lower = np.minimum(run.low + 1 - numbers, upper)
    starts = np.append(True, run.groups[1:] != run.groups[:-1])
    # The first second of a key has nothing before it: it clamps to one value.
    upper = np.where(starts, lower, upper)
    lower, upper = _composed(lower, upper)
    after = lower + numbers
    before = np.where(starts, run.low, np.append(0, after[:-1]))
    taken = np.maximum(before, run.low)
    there = np.flatnonzero(taken < run.high)
    return taken[there], there


def _composed(lower: Indices, upper: Indices) -> tuple[Indices, Indices]:
    """For each position, the clamp that all clamps up to it make together."""
    step = 1
    while step < len(lower) and bool((lower != upper).any()):
        low, high = lower.copy(), upper.copy()
        low[step:] = np.clip(lower[:-step], lower[step:], upper[step:])
        high[step:] = np.clip(upper[:-step], lower[step:], upper[step:])
        lower, upper = low, high
        step *= 2
    return lower, upper
