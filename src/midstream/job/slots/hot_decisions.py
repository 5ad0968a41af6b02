"""Which partition groups are hot, from what the slots report of a batch, and having slots share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from midstream.adaptation.hot_groups import Dealing, HotGroup, HotPolicy, Refusal, Sharing, hot_groups
from midstream.distribution.balancing import skew
from midstream.distribution.key_classes import in_words
from midstream.distribution.routing import Routing
from midstream.distribution.spread_groups import Name, SpreadGroup
from midstream.errors import JobError
from midstream.job.batch import Batch
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.class_dealing import ClassLoads
from midstream.job.slots.measuring import Measured
from midstream.job.slots.spreading import SpreadGroups, merging_for
from midstream.job.task.reports import Report

CANDIDATES = 4
"""How many groups with most to do are looked at."""


def hot_look(batch: Batch, seen: Measured, spread: SpreadGroups) -> tuple[dict[int, HotGroup], Dealing]:
    """The groups that may be hot or are shared, by their places among those of all classes, and how all are dealt."""
    loads, size = [group.seconds for group in seen.groups], len(batch.slots.routing)
    busy = skew([load.owner for load in seen.loads], [load.seconds for load in seen.loads], batch.slots.count)
    for place, load in seen.shared:
        loads[place] += load.seconds
    total = sum(loads) or 1.0
    shares = [load / total for load in loads]
    looking = {*_most(shares[:size]), *_most(shares)}
    looking |= {i for name in spread.groups if (i := _place(name, seen.classes, size)) is not None}
    known = {}
    for place in sorted(looking):
        name = place if place < size else (seen.classes[place // size], place % size)
        slots = () if name not in spread.groups else spread.groups[name].slots or (seen.groups[place].owner,)
        known[place] = replace(_hot_group(batch.reports, name), share=shares[place], slots=slots)
    return known, Dealing([group.owner for group in seen.groups], shares, batch.slots.count, busy)


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


def hottest(reports: Sequence[Report], known: ClassLoads) -> dict[Name, HotGroup]:
    """The groups with most to do lately of which rows came, of each key class."""
    names: list[Name] = [(c, group) if c else group for c, loads in known.by_class.items() for group in _most(loads)]
    return {name: hot for name in names if (hot := _hot_group(reports, name)).rows}


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
    dealing = Dealing(places, [load / total for load in loads], routing.slots, skew(places, loads, routing.slots))
    for name in list(spread.groups):
        place = _place(name, classes, size)
        if place is None or dealing.loads[place] * routing.slots < policy.cool:
            spread.end(name)
    for name, hot in spread.arrived.items():
        place = _place(name, classes, size)
        if name in spread.groups or place is None:
            continue
        hot = replace(hot, share=dealing.loads[place])
        for found in hot_groups({place: hot}, dealing, policy, refused(queries)):
            if not found.against:
                carry_out(found.change, f"{trigger}. {found.fact} {found.done}", queries, spread)


def _place(name: Name, classes: Sequence[str], size: int) -> int | None:
    """The place of a group among those of all classes; None if its class is not there."""
    if isinstance(name, int):
        return name
    return classes.index(name[0]) * size + name[1] if name[0] in classes else None


def _most(loads: Sequence[float]) -> list[int]:
    """The groups with most to do, the first of equal ones first."""
    return np.argsort(-np.asarray(loads, float), kind="stable")[:CANDIDATES].tolist()  # type: ignore[no-any-return]


def _hot_group(reports: Sequence[Report], name: Name) -> HotGroup:
    """What slots report of a group: the rows that came of each stream, or by each key of its class."""
    if isinstance(name, int):
        found = [report.traffic.hot_keys[name] for report in reports if name in report.traffic.hot_keys]
        return HotGroup(name, 0.0, _rows_of(reports, name), key=max(found, key=lambda hot: hot[1])[0] if found else "")
    key_class, group = name
    rows: dict[str, int] = {}
    for report in reports:
        for key, counts in report.traffic.exchanged.get(key_class, {}).items():
            if counts.get(group):
                rows[key] = rows.get(key, 0) + counts[group]
    return HotGroup(group, 0.0, rows, key_class=key_class, words=in_words(key_class))


def _rows_of(reports: Sequence[Report], group: int) -> Mapping[str, int]:
    """How many rows of a group came of each stream; none if most of its work comes through an exchange."""
    found: dict[str, int] = {}
    for report in reports:
        for stream, counts in report.traffic.arrived.items():
            found[stream] = found.get(stream, 0) + counts.get(group, 0)
    everything = sum(report.traffic.groups.get(group, 0) for report in reports)
    by_key = (counts for report in reports for by in report.traffic.exchanged.values() for counts in by.values())
    everything -= sum(counts.get(group, 0) for counts in by_key)
    arrived = sum(found.values())
    return {name: count for name, count in found.items() if count} if 2 * arrived >= everything else {}
