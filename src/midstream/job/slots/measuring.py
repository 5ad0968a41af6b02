"""What the groups of a job have to do, from what the slots report of a batch.

The seconds that a slot worked in a stage are parted among its groups of the key classes that the stage reads, by the
rows that came for them; the state that its fragments keep, by what came lately. What a slot has to do is the sum over
all classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from midstream.adaptation.group_moves import GroupLoad
from midstream.adaptation.hot_groups import HotDealing, HotGroup, HotPolicy, Refusal, Sharing, hot_groups
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import query_of
from midstream.checkpoint.records import summed
from midstream.distribution.balancing import skew
from midstream.distribution.fragments import ARRIVAL, GroupName, Routing, SpreadGroup, class_received, in_words
from midstream.distribution.plan_texts import slots_text
from midstream.errors import JobError
from midstream.job.batch import Batch
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.class_dealing import ClassLoads
from midstream.job.slots.spreading import SpreadGroups, merging_for
from midstream.job.task.reports import Report, RowsByGroup, Traffic

WORK = ("state", "kernel", "write")
"""What of a slot's seconds is work of its own, rather than waiting for rows."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a batch took: the groups' loads per second, and for which part of the time the busiest slot worked.

    `groups` are those of all key `classes`, class by class, those of what arrives first. A group that several slots
    share has the load of its home; `shared` are its loads in the others, by its place among `groups`.
    """

    groups: tuple[GroupLoad, ...]
    busy: float
    ticks_per_second: float
    shared: tuple[tuple[int, GroupLoad], ...] = ()
    classes: tuple[str, ...] = (ARRIVAL,)

    def dealt(self, routing: Routing, places: Sequence[int]) -> Routing:
        """The routing with all groups in other slots, class by class."""
        return ClassLoads(dict.fromkeys(self.classes, ())).dealt(routing, places[: len(self.groups)])

    @property
    def loads(self) -> tuple[GroupLoad, ...]:
        """The loads of groups, and then of what slots share of some besides their homes."""
        return (*self.groups, *(load for _, load in self.shared))

    @property
    def fixed(self) -> set[int]:
        """Which of the loads stay where they are, because slots share them."""
        count = len(self.groups)
        return {*range(count, count + len(self.shared)), *(group for group, _ in self.shared)}

    def taking(self, seconds: Sequence[float]) -> Measured:
        """The same, with other seconds of all loads."""
        found = [replace(load, seconds=own) for load, own in zip(self.loads, seconds, strict=True)]
        shared = zip((group for group, _ in self.shared), found[len(self.groups) :], strict=True)
        return replace(self, groups=tuple(found[: len(self.groups)]), shared=tuple(shared))


@dataclass(frozen=True, slots=True)
class DecidedPlanChange:
    """A decided change of a query's plan, in one slot or in all (None), that leaves `ratio` of the query's load."""

    query: str
    slot: int | None
    ratio: float

    def __str__(self) -> str:
        return f"query {self.query}" if self.slot is None else f"query {self.query} in {slots_text([self.slot])}"


@dataclass(frozen=True, slots=True)
class PlansDecided:
    """Changes of plans that were decided after a batch.

    `apart` says why they cannot begin in the same batch as a move by a protocol; empty if they can.
    """

    changes: Sequence[DecidedPlanChange] = ()
    apart: Callable[[str], str] = lambda protocol: ""

    def applied(self, seen: Measured, batch: Batch) -> Measured:
        """What groups are predicted to take by these plans; a slot's work is parted by what its operators did."""
        if not self.changes:
            return seen
        ratios = {(change.query, change.slot): change.ratio for change in self.changes}
        left = [
            sum(part * ratios.get((q, slot), ratios.get((q, None), 1.0)) for q, part in parts.items())
            for slot, parts in enumerate(_parts(batch.reports, batch.slots.count, list(batch.queries)))
        ]
        return seen.taking([load.seconds * left[load.owner] for load in seen.loads])

    @property
    def in_words(self) -> str:
        """What reasons say of it."""
        named = ", ".join(map(str, self.changes))
        return (
            f" Loads are as another plan for {named} is predicted to leave them; both begin at once." if named else ""
        )


def _parts(reports: Sequence[Report], slots: int, queries: Sequence[str]) -> list[dict[str, float]]:
    """Which part of the work of each slot is for which query; alike if nothing was done."""
    found: list[dict[str, float]] = [{} for _ in range(slots)]
    for report in (report for report in reports if 0 <= report.slot < slots):
        for (name, _), part in report.fragments.items():
            query, did = query_of(name), part.work
            known = found[report.slot].get(query, 0.0)
            found[report.slot][query] = known + did.probed + did.matched + did.inserted
    alike = {query: 1 / len(queries) for query in queries}
    return [
        {query: work / sum(own.values()) for query, work in own.items()} if sum(own.values()) else alike
        for own in found
    ]


Measure = Callable[[Batch, float], Measured]
"""Measures a batch that began so many seconds after the one before it."""


@dataclass(frozen=True, slots=True)
class _Item:
    """A group in a slot: the rows that came for it, and those of before."""

    key_class: str
    group: int
    slot: int
    rows: float
    lately: float


def measured(batch: Batch, interval: float) -> Measured:
    """What slots report of a batch."""
    reading = _classes_of_stages(batch)
    classes = (ARRIVAL, *sorted({name for names in reading.values() for name in names} - {ARRIVAL}))
    items, elsewhere = _items(batch, classes)
    worked = [0.0] * batch.slots.count
    for report in batch.reports:
        worked[report.slot] += sum(report.seconds.get(name, 0.0) for name in WORK)
    loads = _loads([*items, *elsewhere], batch, reading, interval)
    size = len(batch.slots.routing)
    numbers = [classes.index(item.key_class) * size + item.group for item in elsewhere]
    others = tuple(zip(numbers, loads[len(items) :], strict=True))
    ticks = _ticks(batch.before, batch.reports) / interval
    return Measured(tuple(loads[: len(items)]), max(worked) / interval, ticks, others, classes)


def _classes_of_stages(batch: Batch) -> dict[int, set[str]]:
    """The key classes by which what each stage reads is dealt."""
    found: dict[int, set[str]] = {0: {ARRIVAL}}
    for part in batch.lanes:
        for fragment in part.query.staged.fragments:
            found.setdefault(batch.stage(part.name, fragment), set()).add(class_received(fragment))
    return found


def _items(batch: Batch, classes: Sequence[str]) -> tuple[list[_Item], list[_Item]]:
    """All groups in their slots, class by class, and those that several slots share in the others."""
    slots, size = batch.slots, len(batch.slots.routing)
    counts: dict[str, list[float]] = {name: [0] * size for name in classes}
    for report in batch.reports:
        for group, count in report.traffic.groups.items():
            counts[ARRIVAL][group] += count
        for name in classes[1:]:
            for group, count in report.traffic.of_class(name).items():
                counts[name][group] += count
                counts[ARRIVAL][group] -= count
    known = ClassLoads.of(batch.before).by_class
    lately = {name: list(known.get(name) or [0.0] * size) for name in classes}
    elsewhere = []
    for group, slot, count in _elsewhere(slots.arriving, batch.reports):
        counts[ARRIVAL][group] -= count
        lately[ARRIVAL][group] -= lately[ARRIVAL][group] * _share(count, counts[ARRIVAL][group] + count)
        elsewhere.append(_Item(ARRIVAL, group, slot, count, float(count)))
    for shared in (group for group in slots.shared if group.key_class in counts and group.key_class):
        name, group, total = shared.key_class, shared.group, counts[shared.key_class][shared.group]
        spread = sum(r.traffic.exchanged.get(name, {}).get(shared.spread, {}).get(group, 0) for r in batch.reports)
        each = spread / len(shared.slots) + total - spread
        past = lately[name][group] * _share(each, total)
        counts[name][group], lately[name][group] = each, past
        elsewhere += [_Item(name, group, slot, each, past) for slot in shared.slots[1:]]
    return [
        _Item(name, group, slot, counts[name][group], lately[name][group])
        for name in classes
        for group, slot in enumerate(slots.dealing.table(name))
    ], elsewhere


def _loads(items: Sequence[_Item], batch: Batch, reading: Mapping[int, set[str]], interval: float) -> list[GroupLoad]:
    """What each group takes of its slot's time and state."""
    now = summed(((item.key_class, item.slot), item.rows) for item in items)
    before = summed(((item.key_class, item.slot), item.lately) for item in items)
    seconds, rows, held = (dict[tuple[str, int], float]() for _ in range(3))
    classes = {(p.name, f.number): class_received(f) for p in batch.lanes for f in p.query.staged.fragments}
    for report in batch.reports:
        places = [(name, report.slot) for name in sorted(reading.get(report.stage, ()))]
        here = sum(now.get(place, 0.0) for place in places)
        for place in places:
            seconds[place] = seconds.get(place, 0.0) + report.processor * _share(now.get(place, 0.0), here)
        for name, part in report.fragments.items():
            place = (classes.get(name, ARRIVAL), report.slot)
            rows[place] = rows.get(place, 0.0) + part.state_rows
            held[place] = held.get(place, 0.0) + part.state_bytes
    return [
        GroupLoad(
            item.slot,
            seconds.get(place, 0.0) / interval * _share(item.rows, now[place]),
            rows.get(place, 0.0) * _share(item.lately, before[place]),
            held.get(place, 0.0) * _share(item.lately, before[place]),
            item.rows / interval,
        )
        for item in items
        for place in [(item.key_class, item.slot)]
    ]


def _elsewhere(groups: Sequence[SpreadGroup], reports: Sequence[Report]) -> list[tuple[int, int, int]]:
    """The rows of groups that several slots share, in the slots that are not their homes."""
    found = []
    for shared in groups:
        arrived = {
            report.slot: report.traffic.arrived.get(shared.spread, RowsByGroup()).get(shared.group, 0)
            for report in reports
            if report.stage == 0
        }
        found += [(shared.group, slot, arrived.get(slot, 0)) for slot in shared.slots[1:]]
    return found


def _share(count: float, total: float) -> float:
    return count / total if total else 0.0


def _ticks(manifest: Manifest | None, reports: Sequence[Report]) -> float:
    """How far event time has come with a batch."""
    before = {} if manifest is None else manifest.streams.latest
    latest = [(s, t) for report in reports for s, t in report.streams.latest.items()]
    return float(max((t - before[s] for s, t in latest if before.get(s, BEGINNING) > BEGINNING), default=0))


CANDIDATES = 4
"""How many groups with most to do are looked at."""


def hot_look(batch: Batch, seen: Measured, spread: SpreadGroups) -> tuple[dict[int, HotGroup], HotDealing]:
    """The groups that may be hot or are shared, by their places among those of all classes, and how all are dealt."""
    loads, size = [group.seconds for group in seen.groups], len(batch.slots.routing)
    busy = skew([load.owner for load in seen.loads], [load.seconds for load in seen.loads], batch.slots.count)
    for place, load in seen.shared:
        loads[place] += load.seconds
    total = sum(loads) or 1.0
    shares = [load / total for load in loads]
    looking = {*_most(shares[:size]), *_most(shares)}
    looking |= {i for name in spread.groups if (i := _place(name, seen.classes, size)) is not None}
    known, traffic = {}, [report.traffic for report in batch.reports]
    for place in sorted(looking):
        name = place if place < size else (seen.classes[place // size], place % size)
        slots = () if name not in spread.groups else spread.groups[name].slots or (seen.groups[place].owner,)
        known[place] = replace(_hot_group(traffic, name), share=shares[place], slots=slots)
    return known, HotDealing([group.owner for group in seen.groups], shares, batch.slots.count, busy)


def carry_out(sharing: Sharing, reason: str, queries: Mapping[str, RunningQuery], spread: SpreadGroups) -> None:
    """Records in `spread` what was decided."""
    hot, stream = sharing.hot, sharing.stream
    asked = SpreadGroup(hot.group, stream, sharing.ways, reason, key_class=hot.key_class)
    if stream:
        spread.ask(replace(asked, merging=merging_for(queries, stream, hot.key_class)))
    else:
        spread.end(asked.name)


def refused(queries: Mapping[str, RunningQuery]) -> Refusal:
    """Says why a stream, or what comes by a key, cannot be spread."""

    def why(hot: HotGroup, stream: str) -> str:
        try:
            merging_for(queries, stream, hot.key_class)
        except JobError as error:
            return error.message
        return ""

    return why


def spread_hot(
    spread: SpreadGroups, routing: Routing, known: ClassLoads, queries: Mapping[str, RunningQuery], trigger: str
) -> None:
    """Spreads groups that have more rows than a slot's fair share, and brings those home that have much less.

    This is done because it was asked for, so nothing is waited for.
    """
    loads, places, policy = known.loads, known.places(routing), HotPolicy()
    if not loads:
        return
    total, classes, size = sum(loads) or 1.0, list(known.by_class), len(routing.groups)
    dealing = HotDealing(places, [load / total for load in loads], routing.slots, skew(places, loads, routing.slots))
    for shared in list(spread.groups):
        place = _place(shared, classes, size)
        if place is None or dealing.loads[place] * routing.slots < policy.cool:
            spread.end(shared)
    for number, (key_class, of_class) in enumerate(known.by_class.items()):
        for group in _most(of_class):
            name: GroupName = (key_class, group) if key_class else group
            hot, at = _hot_group(spread.traffic, name), number * size + group
            if name in spread.groups or not hot.rows:
                continue
            hot = replace(hot, share=dealing.loads[at])
            for found in hot_groups({at: hot}, dealing, policy, refused(queries)):
                if not found.against:
                    carry_out(found.change, f"{trigger}. {found.fact} {found.done}", queries, spread)


def _place(name: GroupName, classes: Sequence[str], size: int) -> int | None:
    """The place of a group among those of all classes; None if its class is not there."""
    if isinstance(name, int):
        return name
    return classes.index(name[0]) * size + name[1] if name[0] in classes else None


def _most(loads: Sequence[float]) -> list[int]:
    """The groups with most to do, the first of equal ones first."""
    return np.argsort(-np.asarray(loads, float), kind="stable")[:CANDIDATES].tolist()  # type: ignore[no-any-return]


def _hot_group(traffic: Sequence[Traffic], name: GroupName) -> HotGroup:
    """What slots report of a group: the rows that came of each stream, or by each key of its class."""
    if isinstance(name, int):
        found = [slot.hot_keys[name] for slot in traffic if name in slot.hot_keys]
        return HotGroup(name, 0.0, _rows_of(traffic, name), key=max(found, key=lambda hot: hot[1])[0] if found else "")
    key_class, group = name
    by_key = (pair for slot in traffic for pair in slot.exchanged.get(key_class, {}).items())
    rows = summed((key, counts[group]) for key, counts in by_key if counts.get(group))
    return HotGroup(group, 0.0, rows, key_class=key_class, words=in_words(key_class))


def _rows_of(traffic: Sequence[Traffic], group: int) -> Mapping[str, int]:
    """How many rows of a group came of each stream; none if most of its work comes through an exchange."""
    arrivals = (pair for slot in traffic for pair in slot.arrived.items())
    found = summed((stream, counts.get(group, 0)) for stream, counts in arrivals)
    everything = sum(slot.groups.get(group, 0) for slot in traffic)
    by_key = (counts for slot in traffic for by in slot.exchanged.values() for counts in by.values())
    everything -= sum(counts.get(group, 0) for counts in by_key)
    arrived = sum(found.values())
    return {name: count for name, count in found.items() if count} if 2 * arrived >= everything else {}
