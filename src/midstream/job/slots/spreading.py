"""Spreading partition groups over slots, and bringing them home again, between two batches.

A group is a range of every state, so both are done by naming: a slot that comes to share a group names the home's
range of each copied state, and when it ends, the home names the others' ranges of what was spread. Nothing is sent or
written.

Whatever changes routes, slots or plans inside tasks works on groups that are at home: they are brought home first, and
spread again by the same batch if they can be. A group rests while that is not so, and says why. Plans that change side
by side are lanes, and share groups as any other if both plans can.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import lane_name
from midstream.checkpoint.packs import SegmentEntry, within
from midstream.distribution.balancing import slot_loads
from midstream.distribution.fragments import ARRIVAL, GroupName, Routing, SpreadGroup, key_classes
from midstream.distribution.spread_groups import Kind, copied_leaves, copied_streams, kinds_of_states
from midstream.errors import InternalError, JobError
from midstream.job.lanes import plan_lanes
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.rerouting import Rerouting, merged
from midstream.job.task.exchange import GROUP_BITS, bits_of
from midstream.job.task.reports import Traffic

Queries = Mapping[str, RunningQuery]


@dataclass(slots=True)
class SpreadGroups:
    """The groups that a job wants to be spread, by number, each as it was in the last batch."""

    groups: dict[GroupName, SpreadGroup] = field(default_factory=dict)
    traffic: Sequence[Traffic] = ()
    """Which rows came to the slots in the last batch."""

    def ask(self, group: SpreadGroup) -> None:
        """Spreads a group from the next batch on that can."""
        self.groups[group.name] = group

    def end(self, group: GroupName) -> None:
        """Sends a group home before the next batch."""
        self.groups.pop(group, None)

    @property
    def merging(self) -> dict[str, frozenset[str]]:
        """The queries that are to be cut so that slots can share keys, each with the key classes of these."""
        found: dict[str, frozenset[str]] = {}
        for group in self.groups.values():
            for name in group.merging:
                found[name] = found.get(name, frozenset()) | {group.key_class}
        return found

    def shared_loads(
        self, routing: Routing, loads: Sequence[float], key_class: str = ""
    ) -> tuple[list[float], list[int], list[float]]:
        """The loads of a key class's groups without what is shared, and the slots and loads of that."""
        own, places, more, dealt = list(loads), list[int](), list[float](), list[SpreadGroup]()
        for wanted in self.groups.values():
            if wanted.resting or routing.slots == 1 or wanted.key_class != key_class:
                continue
            dealt.append(replace(wanted, slots=_slots(wanted, dealt, routing, loads)))
            own[wanted.group] = 0.0
            more += [loads[wanted.group] / len(dealt[-1].slots)] * len(dealt[-1].slots)
            places += dealt[-1].slots
        return own, places, more

    def seen(self, last: Iterable[SpreadGroup]) -> list[SpreadGroup]:
        """The groups as a manifest has them: those that were in the last batch, as they were there."""
        known = {group.name: group for group in last}
        found = []
        for wanted in self.groups.values():
            seen = known.get(wanted.name, wanted)
            if (seen.spread, seen.ways) != (wanted.spread, wanted.ways):
                seen = wanted
            found.append(replace(wanted, slots=seen.slots, copied=seen.copied, resting=seen.resting))
        return found

    def beginning(
        self,
        before: Manifest | None,
        queries: Queries,
        stopped: Collection[str],
        routing: Routing,
        wanted: Routing | None,
        rerouting: Rerouting | None,
    ) -> Spreading:
        """What a batch goes on from: groups are at home, unless they stay as they lie."""
        moves = rerouting is not None or (wanted is not None and not wanted.deals_as(routing))
        spread = None if moves else self.placed(before, queries, stopped, routing)
        if spread is None or _sharing(shared_in(before)) != _sharing(spread):
            return Spreading(self, before, brought_home(before, queries), stopped)
        return Spreading(self, before, before, stopped, spread)

    def placed(
        self, before: Manifest | None, queries: Queries, stopped: Collection[str], routing: Routing
    ) -> tuple[SpreadGroup, ...]:
        """The groups with the slots that share them, or with the reason why they rest."""
        if not self.groups:
            return ()
        why_not = _busy(before, queries, stopped)
        found: list[SpreadGroup] = []
        others = len({group.spread for group in self.groups.values() if not group.key_class}) > 1
        for wanted in self.groups.values():
            reason, copied = why_not, tuple[str, ...]()
            try:
                copied = copied if reason else require_spreadable(queries, wanted.spread, others, wanted.key_class)
            except JobError as error:
                reason = error.message
            if reason or routing.slots == 1:
                rests = reason or "there is one slot"
                found.append(replace(wanted, slots=(), copied=(), resting=rests))
                continue
            slots = _slots(wanted, found, routing, () if before is None else before.slots.loads)
            found.append(replace(wanted, slots=slots, copied=copied, resting=""))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Spreading:
    """How a batch comes to share groups: it goes on from `start`; `spread` if nothing changes in that."""

    groups: SpreadGroups
    before: Manifest | None
    start: Manifest | None
    stopped: Collection[str]
    spread: tuple[SpreadGroup, ...] | None = None

    def after(
        self, settled: Manifest | None, queries: Queries, routing: Routing
    ) -> tuple[Manifest | None, tuple[SpreadGroup, ...]]:
        """What there is once state has moved to other plans and slots, and the groups as slots share them."""
        if self.spread is not None:
            return settled, self.spread
        spread = self.groups.placed(settled, queries, self.stopped, routing)
        return spread_out(settled, queries, spread), spread

    def record(
        self, moved: dict[str, Any] | None, batch_id: int, routing: Routing, spread: Iterable[SpreadGroup]
    ) -> dict[str, Any] | None:
        """What is remembered of a change of slots, with the groups that begin and end to be shared."""
        old, new = ({g.name: g for g in groups if g.active} for groups in (shared_in(self.before), spread))
        begun, ended = (sorted(one.keys() - other.keys(), key=str) for one, other in ((new, old), (old, new)))
        if not begun and not ended:
            return moved
        now = {g.name: g for g in spread}
        reasons = [f"{new[g].label} is spread over {len(new[g].slots)} slots: {new[g].reason}" for g in begun]
        reasons += [f"{old[g].label} is at home again: {_why_ended(now.get(g))}" for g in ended]
        nothing = {"batch": batch_id, "slots": [routing.slots] * 2, "groups": 0, "rows_sent": 0, "bytes_written": 0}
        trigger = "; ".join([*([moved["trigger"]] if moved else []), *reasons])
        return {**nothing, **(moved or {}), "trigger": trigger, "spread": list(begun), "brought_home": list(ended)}


def _why_ended(group: SpreadGroup | None) -> str:
    return "nothing asks for it any more" if group is None else group.resting


def shared_in(manifest: Manifest | None) -> Sequence[SpreadGroup]:
    """The groups whose state lies in several slots."""
    return () if manifest is None else manifest.slots.shared


def _sharing(groups: Iterable[SpreadGroup]) -> set[tuple[object, ...]]:
    return {(g.name, g.spread, g.slots, g.copied) for g in groups if g.active}


def require_spreadable(queries: Queries, spread: str, others: bool = False, key_class: str = "") -> tuple[str, ...]:
    """The streams that are copied where one is spread; refuses where results would not be the same.

    Of a key class, these are the keys by which fragments receive rows.
    """
    running = [(name, own) for name, query in queries.items() for _, own, _ in plan_lanes(query)]
    plans = [(name, own.staged) for name, own in running]
    copied = copied_leaves(plans, key_class, spread) if key_class else copied_streams(plans, spread, others)
    for _, own in running:
        for fragment in own.staged.fragments:
            kinds_of_states(fragment, own.boxes[fragment.number], spread, key_class)
    return copied


def merging_for(queries: Queries, spread: str, key_class: str = ARRIVAL) -> tuple[str, ...]:
    """The queries that must be merging for a stream, or for what comes by a key of a class, to be spread.

    Refuses where results would not be the same.
    """
    cut, found = dict(queries), list[str]()
    for name, query in queries.items():
        if key_class and key_class not in key_classes(query.staged):
            continue
        try:
            plain = _merging(query, query.merging - {key_class})
            require_spreadable({name: plain}, spread, key_class=key_class)
        except JobError:
            cut[name] = _merging(query, query.merging | {key_class})
            found.append(name)
    require_spreadable(cut, spread, key_class=key_class)
    return tuple(found)


def _merging(query: RunningQuery, classes: frozenset[str]) -> RunningQuery:
    return query if query.merging == classes else merged(query, classes, query.staged.routes, GROUP_BITS)


def _busy(before: Manifest | None, queries: Queries, stopped: Collection[str]) -> str:
    """What has groups rest, whichever they are."""
    if before is not None and before.slots.doubled is not None:
        return f"groups move by {before.slots.doubled.target.protocol}"
    for name, query in queries.items():
        if name in stopped:
            return f"query {name} is in quarantine"
        if query.migrates and not (query.migration is not None and query.migration.splits):
            return f"query {name} migrates"
        if query.local:
            return f"slots run query {name} by different plans"
        if before is not None and name not in before.queries:
            return f"query {name} begins"
    return ""


def _slots(
    wanted: SpreadGroup, others: Sequence[SpreadGroup], routing: Routing, loads: Sequence[float]
) -> tuple[int, ...]:
    """The slots that share a group: as before if they can, else its home and those that have least to do."""
    table = routing.table(wanted.key_class)
    home, ways = table[wanted.group], min(wanted.ways, routing.slots)
    if wanted.slots[:1] == (home,) and len(wanted.slots) == ways and max(wanted.slots) < routing.slots:
        return wanted.slots
    each = slot_loads(routing.groups, loads, routing.slots) if loads else [0.0] * routing.slots
    for other in others if loads else ():
        for slot in other.slots:
            each[slot] += loads[other.group] / len(other.slots)
        each[routing.table(other.key_class)[other.group]] -= loads[other.group] if other.slots else 0.0
    free = sorted((slot for slot in range(routing.slots) if slot != home), key=lambda slot: (each[slot], slot))
    return (home, *free[: ways - 1])


def brought_home(before: Manifest | None, queries: Queries) -> Manifest | None:
    """The manifest as if no group were spread: what was spread is at home, and copies are forgotten."""
    shared = shared_in(before)
    if before is None or not shared:
        return before
    segments = before.segments
    for group in shared:
        segments = _changed(segments, queries, group, lambda places, kinds, g=group: _at_home(places, kinds, g, before))
    return replace(before, segments=segments, slots=replace(before.slots, shared=()))


def spread_out(before: Manifest | None, queries: Queries, groups: Sequence[SpreadGroup]) -> Manifest | None:
    """The manifest with the copies that slots need to share groups that are at home."""
    if before is None:
        return before
    segments = before.segments
    for group in groups:
        if group.active:
            segments = _changed(
                segments, queries, group, lambda places, kinds, g=group: _copied(places, kinds, g, before)
            )
    return replace(before, segments=segments, slots=replace(before.slots, shared=tuple(g for g in groups if g.active)))


Places = Mapping[int, Sequence[SegmentEntry]]
Kinds = Mapping[tuple[str, tuple[str, ...]], Kind]


def _changed(segments: Mapping[str, Any], queries: Queries, group: SpreadGroup, change: Any) -> dict[str, Any]:
    """The segments with those of all fragments changed that read a group's spread stream.

    A query that begins has none, and may be one that could not share the group.
    """
    found = {name: dict(fragments) for name, fragments in segments.items()}
    lanes = ((lane_name(name, n), own) for name, query in queries.items() for n, own, _ in plan_lanes(query))
    for name, own in lanes:
        for fragment in (f for f in own.staged.fragments if f.number in found.get(name, {})):
            kinds = kinds_of_states(fragment, own.boxes[fragment.number], group.spread, group.key_class)
            if kinds:
                found[name][fragment.number] = change(found[name][fragment.number], kinds)
    return found


def _at_home(places: Places, kinds: Kinds, group: SpreadGroup, before: Manifest) -> dict[int, list[SegmentEntry]]:
    start, end = group.hashes(bits_of(len(before.slots.routing)))
    home, *others = group.slots
    found = {slot: list(entries) for slot, entries in places.items()}
    for slot in others:
        entries, found[slot] = found.get(slot, []), []
        for entry in entries:
            found[slot] += [*within([entry], 0, start), *within([entry], end, 2**64)]
            inside = within([entry], start, end)
            if inside and _kind_of(entry, kinds) == "spread":
                found.setdefault(home, []).extend(inside)
    return {slot: entries for slot, entries in found.items() if entries}


def _copied(places: Places, kinds: Kinds, group: SpreadGroup, before: Manifest) -> dict[int, list[SegmentEntry]]:
    start, end = group.hashes(bits_of(len(before.slots.routing)))
    home, *others = group.slots
    found = {slot: list(entries) for slot, entries in places.items()}
    parts = within((e for e in places.get(home, ()) if _kind_of(e, kinds) == "copied"), start, end)
    for slot in others:
        found[slot] = [*found.get(slot, []), *parts]
    return {slot: entries for slot, entries in found.items() if entries}


def _kind_of(entry: SegmentEntry, kinds: Kinds) -> Kind:
    kind = kinds.get((entry.state, entry.key))
    if kind is None:
        raise InternalError(f"nothing says whether the state {entry.state} is spread over slots or copied")
    return kind
