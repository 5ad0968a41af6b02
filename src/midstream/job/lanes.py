"""The lanes of a query: by which plans it runs at present, in which slots, and for which time each answers.

A migration between plans that lie in different slots and a move of groups whose rows go to two slots are the same: at
an instant after which nothing matters that came before, answering goes over to a lane that was opened empty. A query's
lanes are therefore a sequence in time, and what changes while something else does opens one more: after the split time
of a migration the new plan answers, after that of a move the new slots do.

A lane that was opened last can be closed again: those before it have seen all rows. Only the last one can: what is
begun last is cancelled first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from midstream.checkpoint.names import lane_name, query_of
from midstream.checkpoint.packs import SegmentEntry, Stored, joined
from midstream.checkpoint.records import DoubledMove, grouped
from midstream.job.queries.running_query import RunningQuery
from midstream.job.task.lanes import COMING, ELSEWHERE, EVER, KEPT, LEAVING, STAYING, TARGET, Lane, Region
from midstream.migration.legality import keeps_intervals
from midstream.migration.marks import with_output_mark

Filled = dict[int, dict[int, list[SegmentEntry]]]

BY_GROUPS, WHOLE = "groups", "whole"
"""How a query runs while groups move: its moving groups twice, or all of it, where rows of different groups meet."""


@dataclass(frozen=True, slots=True)
class RunningLane:
    """A lane at work: its name in reports and manifests, and the query by its plan; None: the query has no other."""

    name: str
    query: RunningQuery
    lane: Lane | None = None

    @property
    def marked(self) -> bool:
        """Whether it has groups that leave by PTLB: they stay with their plan."""
        return self.lane is not None and self.lane.marked

    def exchanged(self, fragment: int) -> pa.Schema:
        """What a fragment of it gives to others."""
        schema = self.query.staged.fragment(fragment).plan.schema
        return with_output_mark(schema) if self.marked else schema


@dataclass(frozen=True, slots=True)
class Dealing:
    """How groups are dealt to slots, the move of some under way, and the keys by which rows of streams arrive."""

    groups: tuple[int, ...]
    move: DoubledMove | None
    keys: Mapping[str, tuple[str, ...]]

    def lanes(self, query: RunningQuery) -> list[RunningLane]:
        """The lanes by which a query runs."""
        plans, move = list(plan_lanes(query)), self.move
        found = plans
        if move is not None and query.name in move.queries:
            found = [
                (number + part, own, replace(lane, keys=self.keys))
                for number, own, undivided in plans
                for part, lane in self._parts(move, move.queries[query.name], undivided)
            ]
        if len(found) == 1:
            return [RunningLane(query.name, found[0][1])]
        whole = all(keeps_intervals(p.plan.physical) for _, own, _ in plans for p in own.plans)
        return [
            RunningLane(lane_name(query.name, n), own, replace(lane, region=replace(lane.region, whole=whole)))
            for n, own, lane in found
        ]

    def _parts(self, move: DoubledMove, how: str, lane: Lane) -> Iterator[tuple[int, Lane]]:
        """The lanes into which that of a plan is divided while groups move."""
        old, new, at, region = self.groups, move.target.groups, move.split_at, lane.region
        if at is not None and region.until <= at:
            yield STAYING, replace(lane, routing=old)
            return
        if region.since >= at if at is not None else region.since > EVER.since:
            yield COMING, replace(lane, routing=new)
            return
        before = after = lane
        if at is not None:
            before = replace(lane, region=replace(region, until=at))
            after = replace(lane, region=replace(region, since=at))
        marked = at is None
        if how == WHOLE:
            yield STAYING, replace(before, routing=old, marked=marked)
            yield COMING, replace(after, routing=new, second=True)
            return
        both = list(zip(old, new, strict=True))
        yield STAYING, replace(lane, routing=tuple(ELSEWHERE if a != b else a for a, b in both))
        yield LEAVING, replace(before, routing=tuple(a if a != b else ELSEWHERE for a, b in both), marked=marked)
        yield COMING, replace(after, routing=tuple(b if a != b else ELSEWHERE for a, b in both), second=True)


def plan_lanes(query: RunningQuery) -> Iterator[tuple[int, RunningQuery, Lane]]:
    """The plans by which a query runs, with the numbers of their lanes."""
    migration = query.migration
    if migration is None or not migration.apart or migration.moves:
        yield 0, query, Lane()
    elif migration.done:
        yield 0, migration.target, Lane()
    elif migration.replays:
        yield 0, query, Lane()
        yield TARGET, migration.target, Lane(heard=False)
    else:
        yield 0, query, Lane(Region(until=migration.split_at))
        yield TARGET, migration.target, Lane(Region(since=migration.split_at))


def copies_of(routing: Sequence[int], move: DoubledMove) -> dict[int, tuple[int, ...]]:
    """The slots besides the owner's to which rows of groups go."""
    dealt = enumerate(zip(routing, move.target.groups, strict=True))
    return {group: (new,) for group, (old, new) in dealt if old != new}


Becoming = Mapping[int, int]
"""Which lanes of a query, by their numbers, become which; the others are closed, and what they hold is forgotten."""

TO_OWN_PLAN: Becoming = {part: part for part in (STAYING, LEAVING, COMING)}
TO_TARGET: Becoming = {TARGET + part: part for part in (STAYING, LEAVING, COMING)}
# What a query is still to be filled with belongs to no slot: it stays while groups move.
TO_OLD_SLOTS: Becoming = {plan + part: plan for plan in (0, TARGET) for part in (STAYING, LEAVING)} | {KEPT: KEPT}
TO_NEW_SLOTS: Mapping[str, Becoming] = {
    BY_GROUPS: {plan + part: plan for plan in (0, TARGET) for part in (STAYING, COMING)} | {KEPT: KEPT},
    WHOLE: {plan + COMING: plan for plan in (0, TARGET)} | {KEPT: KEPT},
}


def regrouped(segments: Mapping[str, Stored], query: str, becoming: Becoming) -> dict[str, Stored]:
    """All segments, with those of a query's lanes as the lanes that these become."""
    found = {name: stored for name, stored in segments.items() if query_of(name) != query}
    names = ((lane_name(query, old), lane_name(query, new)) for old, new in becoming.items())
    parts = grouped((new, segments[old]) for old, new in names if old in segments)
    return {**found, **{new: together(*stored) for new, stored in parts.items()}}


def together(*lanes: Stored) -> Filled:
    """The segments of several lanes, by fragment and slot."""
    filled: Filled = {}
    for stored in lanes:
        for number, slots in stored.items():
            for slot, entries in slots.items():
                filled.setdefault(number, {}).setdefault(slot, []).extend(entries)
    return {number: {slot: joined(entries) for slot, entries in slots.items()} for number, slots in filled.items()}
