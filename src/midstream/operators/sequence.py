"""Sequences: each second with firsts that are at or before it, or with the earliest that is after it, per key.

A second is answered once the frontier has passed it: every first that could still precede it has come by then, in
whatever order the streams delivered. Firsts and seconds are put into the one total order, so that the firsts a second
may take are a run `[low, high)` of its key's: the latest of them (recent), all of them, or the earliest unused one
(chronicle). If nothing but being used can rule a first out, what chronicle uses up is a prefix of each key's firsts,
because a first that a second leaves behind is too old for every later second as well.

A second that looks for a later first waits in the state until the frontier has passed such a first, or the time within
which it may come. Firsts are then forgotten as soon as the frontier has passed them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from midstream.algebra.physical import FollowedBy
from midstream.algebra.time import INFINITY
from midstream.operators.elements import Elements, Indices, Mask, Ticks, concatenate, concatenate_batches
from midstream.operators.expressions import Predicate
from midstream.operators.hashing import hash_order, key_validity
from midstream.operators.join import output_of
from midstream.operators.ordering import group_rows, shared_groups, total_order
from midstream.operators.pairing import PairedRun, earliest, earliest_unused, every, latest, reach, served_in_turn
from midstream.operators.row_identity import numbered, occurrences, same_rows
from midstream.operators.slices import SliceOperator
from midstream.operators.state.alive import Stored, stored_by_range
from midstream.operators.state.places import ChosenRows, stored_rows
from midstream.operators.state.sorted_state import SortedState
from midstream.operators.vectors import distinct

NO_ROWS = np.empty(0, np.int64)

SPARE_ROWS = 1024
"""How many useless firsts may lie in the state, beyond as many as there are useful ones, before it is tidied up."""


class FollowedByOperator(SliceOperator):
    """A sequence of two inputs of raw tuples; the third state holds the firsts that chronicle has used up."""

    def __init__(
        self, node: FollowedBy, kept: tuple[SortedState, SortedState], used: SortedState, condition: Predicate | None
    ) -> None:
        super().__init__(node.schema, kept, None)
        self.name = f"sequence {node.mode}"
        self.node = node
        self.used, self.states = used, (*kept, used)
        self.condition = condition
        self.places = output_of(node.schema, kept[0].schema, kept[1].schema).places
        self.tidy_rows = 0

    @property
    def choosy(self) -> bool:
        """Whether more than being used can rule out a first that is near enough."""
        return self.condition is not None or self.node.identity is not None

    def process(self, port: int, batch: Elements) -> Elements | None:
        if port == 0 or not self.node.outer:
            batch = _with_keys(batch, self.kept[port].key)
        if (port == 1) == self.node.waits:
            batch = batch.with_validity(batch.valid_from, self._ends(batch.valid_from))
        return super().process(port, batch) if len(batch) else None

    def forget(self, end: int) -> None:
        for state in self.states:
            state.expire(end)
        firsts, seconds = self.kept
        if self.node.waits:
            return
        for segment in seconds.segments:
            if segment.earliest_from < end:
                seconds.replace_segment(segment, np.flatnonzero(segment.elements.valid_to > end))
        if firsts.rows > 2 * self.tidy_rows + SPARE_ROWS:
            self._tidy(end)

    def evaluations(self, start: int, end: int) -> Iterator[Elements]:
        taken = ChosenRows()
        for stored in stored_by_range(self.kept, start, end, self.most):
            if self.is_large(stored):
                self.refuse_more_than_memory("the rows of one key", sum(part.size() for part in stored))
            seconds = self._waiting(stored, taken) if self.node.waits else stored[1].alive().elements
            if len(seconds) == 0:
                continue
            run = self._run(_in_order(seconds), start, end)
            self.work.probed += len(seconds)
            for part in self._later_results(run, end) if self.node.waits else self._results(run):
                if len(part):
                    yield part
        for segment, rows in taken:
            self.kept[1].replace_segment(segment, np.delete(np.arange(len(segment)), rows))
        if taken.found:
            self.kept[1].compact(self.needed_after)

    def _waiting(self, stored: Sequence[Stored], taken: ChosenRows) -> Elements:
        """The seconds that a first in the slice may answer, or whose time is up in it; `taken` gets their places."""
        start, end = stored[1].start, stored[1].end
        firsts = distinct(self.hashes(0, stored[0].alive().elements))
        seconds, places = stored_rows(stored[1], lambda rows: (rows.valid_to > start) & (rows.valid_from < end))
        asked = np.isin(self.hashes(1, seconds), firsts) | (seconds.valid_to <= end)
        taken.add(places, np.flatnonzero(asked))
        return seconds.where(asked)

    def _ends(self, times: Ticks) -> Ticks:
        """How long tuples of the side that waits for the other count."""
        if self.node.within is None:
            return np.full(len(times), INFINITY)
        return np.minimum(times, INFINITY - self.node.within - 1) + (self.node.within + 1)

    def _run(self, seconds: Elements, start: int, end: int) -> PairedRun:
        hashes = distinct(hash_order(self.hashes(1, seconds))[1])
        firsts = _in_order(self.kept[0].alive(start, end, hashes))
        groups_first, groups_second = _groups(firsts, self.kept[0].key, seconds, self.kept[1].key)
        by_group = np.argsort(groups_first, kind="stable")
        firsts, groups_first = firsts.take(by_group), groups_first[by_group]
        by_group = np.argsort(groups_second, kind="stable")
        seconds, groups_second = seconds.take(by_group), groups_second[by_group]
        firsts, seconds = self._numbered(firsts, seconds)
        if self.node.mode == "chronicle" and self.used.rows:
            fresh = self._unused(firsts, groups_first, self.used.alive(start, end, hashes))
            firsts, groups_first = firsts.where(fresh), groups_first[fresh]
        low, high = reach(firsts, groups_first, seconds, groups_second, self.node.within, self.node.order)
        identity = self.node.identity
        rows = None if identity is None else same_rows(firsts, identity[0], seconds, identity[1])
        return PairedRun(firsts, seconds, groups_second, low, high, rows)

    def _numbered(self, firsts: Elements, seconds: Elements) -> tuple[Elements, Elements]:
        """Both sides, equal rows of a stream numbered where that matters here or to others."""
        sides, counted = [firsts, seconds], 0 if self.node.waits else 1
        for side, names in [*((counted, names) for names in self.node.numbers), *enumerate(self.node.identity or ())]:
            sides[side] = numbered(sides[side], names)
        return sides[0], sides[1]

    def _unused(self, firsts: Elements, groups: Indices, used: Elements) -> Mask:
        """Which firsts, in order of group and time, have not been used."""
        if len(used) == 0:
            return np.ones(len(firsts), bool)
        if self.choosy:
            return _not_among(firsts, used)
        key = self.kept[0].key
        of_used, of_first = _groups(used, key, firsts, key)
        count = max(int(of_used.max()), int(of_first.max(initial=0))) + 1
        spent = np.bincount(of_used, minlength=count)
        begins = np.searchsorted(groups, groups)
        return np.arange(len(firsts)) - begins >= spent[of_first]

    def _results(self, run: PairedRun) -> Iterator[Elements]:
        matched = np.zeros(len(run.seconds), bool)
        for here, there in self._pairs(run):
            pairs = self._paired(run, here, there, run.seconds.valid_from[there])
            self.work.matched += len(here)
            if self.condition is not None:
                holds = self.condition(pairs.columns)
                pairs, there = pairs.where(holds), there[holds]
            matched[there] = True
            yield pairs
        if self.node.outer:
            alone = run.seconds.where(~matched)
            yield self._padded(alone, alone.valid_from)

    def _pairs(self, run: PairedRun) -> Iterator[tuple[Indices, Indices]]:
        """Positions of firsts and seconds that belong together."""
        match self.node.mode:
            case "recent":
                yield latest(run)
            case "chronicle":
                for here, there in self._each_once(run):
                    taken = run.firsts.take(here)
                    self.used.insert(taken, self.hashes(0, taken))
                    self.used.compact(self.needed_after, len(taken))
                    yield here, there
            case "all":
                yield from every(run)

    def _each_once(self, run: PairedRun) -> Iterator[tuple[Indices, Indices]]:
        """Each second with the earliest first that no earlier one took and that the condition lets it take."""
        if not self.choosy:
            yield earliest_unused(run)
            return
        used = np.zeros(len(run.firsts), bool)
        for here, there in every(run):
            free = ~used[here]
            free[free] = self._holds(run, here[free], there[free])
            here, there = here[free], there[free]
            chosen = served_in_turn(here, there)
            used[here[chosen]] = True
            yield here[chosen], there[chosen]

    def _later_results(self, run: PairedRun, end: int) -> Iterator[Elements]:
        """What seconds that wait are answered with before `end`; the others go on waiting."""
        here, there = self._next(run)
        times = run.firsts.valid_from[here]
        self.work.matched += len(here)
        holds = self._holds(run, here, there)
        answered = run.seconds.valid_to <= end
        if self.node.outer:
            # It is known that a second has no first when its time is up, or when the condition rejects the one it has.
            known = run.seconds.valid_to - 1
            known[there] = times
            alone = answered.copy()
            alone[there] = ~holds
            yield self._padded(run.seconds.where(alone), known[alone])
        answered[there] = True
        unanswered = run.seconds.where(~answered)
        self.kept[1].insert(unanswered, self.hashes(1, unanswered))
        if self.node.mode != "none":
            yield self._paired(run, here[holds], there[holds], times[holds])

    def _next(self, run: PairedRun) -> tuple[Indices, Indices]:
        """Seconds with their earliest firsts, or, of `none`, with any for which the condition holds."""
        if self.node.mode != "none" or self.condition is None:
            return earliest(run)
        held = [(here[holds], there[holds]) for here, there in every(run) for holds in [self._holds(run, here, there)]]
        here, there = (np.concatenate(part) for part in zip(*held, strict=True))
        there, first = np.unique(there, return_index=True)
        return here[first], there

    def _holds(self, run: PairedRun, here: Indices, there: Indices) -> Mask:
        """For which pairs the condition holds."""
        if self.condition is None:
            return np.ones(len(here), bool)
        return self.condition(self._paired(run, here, there, run.seconds.valid_from[there]).columns)

    def _paired(self, run: PairedRun, here: Indices, there: Indices, times: Ticks) -> Elements:
        firsts, seconds = run.firsts.columns, run.seconds.columns
        left, right = pa.array(here), pa.array(there)
        arrays = [firsts.column(i).take(left) if first else seconds.column(i).take(right) for first, i in self.places]
        return Elements(pa.RecordBatch.from_arrays(arrays, schema=self.schema), times, times + 1)

    def _padded(self, seconds: Elements, times: Ticks) -> Elements:
        arrays = [
            pa.nulls(len(seconds), field.type) if first else seconds.columns.column(i)
            for (first, i), field in zip(self.places, self.schema, strict=True)
        ]
        return Elements(pa.RecordBatch.from_arrays(arrays, schema=self.schema), times, times + 1)

    def restore(self, frontier: int) -> None:
        super().restore(frontier)
        self.tidy_rows = 0

    def _tidy(self, end: int) -> None:
        """Drops firsts before the frontier that no later second may take."""
        if self.node.mode == "chronicle":
            self._drop_used(end)
        else:
            self._drop_useless(end)
        self.tidy_rows = self.kept[0].rows

    def _drop_used(self, end: int) -> None:
        state, parts = self.kept[0], []
        for stored in stored_by_range((state, self.used), end, INFINITY, self.most):
            rows, used = (part.alive(clipped=False).elements for part in stored)
            early, later = rows.where(rows.valid_from < end), rows.where(rows.valid_from >= end)
            early = self._still_unused(_in_order(early), used) if len(early) else early
            parts.append(concatenate([early, later]))
        self.used.segments = []
        state.segments = []
        for part in parts:
            state.insert(part, self.hashes(0, part))

    def _drop_useless(self, end: int) -> None:
        """Rewrites the segments of which more than half is useless: the others' useless rows change no answer."""
        state, useful = self.kept[0], ChosenRows()
        for stored in stored_by_range((state,), end, INFINITY, self.most):
            rows, places = stored_rows(stored[0], lambda rows: rows.valid_to > end)
            useful.add(places, self._latest(rows, end) if self.node.mode == "recent" else np.arange(len(rows)))
        kept = {id(segment): rows for segment, rows in useful}
        for segment in state.segments:
            there = kept.get(id(segment), NO_ROWS)
            if 2 * len(there) < len(segment):
                state.replace_segment(segment, np.sort(there))

    def _latest(self, firsts: Elements, end: int) -> Indices:
        """The last first of each key before the frontier, and those after it."""
        early = np.flatnonzero(firsts.valid_from < end)
        some = firsts.take(early)
        order = total_order(some.columns, [some.valid_from])
        ordered = early if order is None else early[order]
        key = self.kept[0].key
        groups, _ = _groups(firsts, key, firsts, key)
        last = np.full(len(firsts) + 1, -1, np.intp)
        last[groups[ordered]] = ordered
        return np.concatenate([last[last >= 0], np.flatnonzero(firsts.valid_from >= end)])

    def _still_unused(self, firsts: Elements, used: Elements) -> Elements:
        key = self.kept[0].key
        groups, _ = _groups(firsts, key, firsts, key)
        by_group = np.argsort(groups, kind="stable")
        firsts, groups = firsts.take(by_group), groups[by_group]
        known = firsts if self.node.identity is None else numbered(firsts, self.node.identity[0])
        return firsts.where(self._unused(known, groups, used))


def _with_keys(batch: Elements, key: tuple[str, ...]) -> Elements:
    """The rows whose key can equal another: neither null nor NaN."""
    valid = key_validity([batch.columns.column(name) for name in key])
    return batch if valid is None else batch.where(valid)


def _in_order(rows: Elements) -> Elements:
    order = total_order(rows.columns, [rows.valid_from])
    return rows if order is None else rows.take(order)


def _groups(
    left: Elements, left_key: tuple[str, ...], right: Elements, right_key: tuple[str, ...]
) -> tuple[Indices, Indices]:
    """A number per key, the same on both sides where keys are equal."""
    if not left_key:
        return np.zeros(len(left), np.intp), np.zeros(len(right), np.intp)
    columns, groups = shared_groups(left.columns, left_key, right.columns, right_key)
    valid = key_validity(columns)
    if valid is not None:
        # A null equals nothing, not even a null: each such second is alone in its group.
        groups = np.where(valid, groups, len(groups) + np.arange(len(groups)))
    return groups[: len(left)], groups[len(left) :]


def _not_among(rows: Elements, others: Elements) -> Mask:
    """Which rows are left when each of the others takes one equal row away, the earliest of them first."""
    times = pa.array(np.concatenate([others.valid_from, rows.valid_from]))
    groups, _ = group_rows([times, *concatenate_batches([others.columns, rows.columns]).columns])
    spent = np.bincount(groups[: len(others)], minlength=int(groups.max(initial=0)) + 1)
    mine = groups[len(others) :]
    return occurrences(mine) >= spent[mine]
