"""Deciding after a batch which partition groups several slots are to share, from what the slots report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from midstream.adaptation.hot_groups import HotController, HotDecision, HotGroup, HotPolicy
from midstream.distribution.balancing import slot_loads
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


def decide(controller: HotController, batch: Batch, seen: Measured, spread: SpreadGroups) -> HotDecision:
    """What is decided from measured loads; `spread` says which groups are shared."""
    loads, size = [group.seconds for group in seen.groups], len(batch.slots.routing)
    busy = [0.0] * batch.slots.count
    for group in (*seen.groups, *(load for _, load in seen.shared)):
        busy[int(group.owner)] += group.seconds
    for number, load in seen.shared:
        loads[number] += load.seconds
    total = sum(loads) or 1.0
    loads = [load / total for load in loads]
    looking = {*_most(loads[:size]), *_most(loads)}
    looking |= {i for name in spread.groups if (i := _place(name, seen.classes, size)) is not None}
    known = {}
    for number in looking:
        name = _name(number, seen.classes, size)
        slots = () if name not in spread.groups else spread.groups[name].slots or (int(seen.groups[number].owner),)
        known[number] = _hot_group(batch.reports, name, loads[number], slots)
    places = [int(group.owner) for group in seen.groups]
    decision = controller.consider(known, places, loads, busy, partial(_refused, batch.queries))
    if decision.group is None:
        return decision
    _, key = _exchanged_by(decision.stream)
    by, number = seen.classes[decision.group // size], decision.group % size
    return replace(decision, group=number, stream=key or decision.stream, key_class=by)


def carry_out(decision: HotDecision, queries: Mapping[str, RunningQuery], spread: SpreadGroups) -> None:
    """Records in `spread` what was decided."""
    if decision.group is None:
        return
    key_class = decision.key_class
    if decision.action == "spread":
        asked = SpreadGroup(decision.group, decision.stream, decision.ways, decision.reason, key_class=key_class)
        spread.ask(replace(asked, merging=merging_for(queries, decision.stream, key_class)))
    if decision.action == "bring_home":
        spread.end((key_class, decision.group) if key_class else decision.group)


def hottest(reports: Sequence[Report], known: ClassLoads) -> dict[Name, tuple[Mapping[str, int], str]]:
    """Of the groups with most to do lately: how many rows came of each stream, and the key they are hot by.

    Of those of a key class, how many came by each of its keys.
    """
    found: dict[Name, tuple[Mapping[str, int], str]] = {}
    for key_class, loads in known.by_class.items():
        for group in _most(loads):
            name = (key_class, group) if key_class else group
            hot = _hot_group(reports, name, 0.0, ())
            if hot.rows:
                found[name] = hot.rows, hot.key
    return found


def _place(name: Name, classes: Sequence[str], size: int) -> int | None:
    """The place of a group among those of all classes; None if its class is not there."""
    if isinstance(name, int):
        return name
    return classes.index(name[0]) * size + name[1] if name[0] in classes else None


def _name(place: int, classes: Sequence[str], size: int) -> Name:
    return place if place < size else (classes[place // size], place % size)


def _most(loads: Sequence[float]) -> list[int]:
    """The groups with most to do, the first of equal ones first."""
    return np.argsort(-np.asarray(loads, float), kind="stable")[:CANDIDATES].tolist()  # type: ignore[no-any-return]


def spread_hot(
    spread: SpreadGroups, routing: Routing, known: ClassLoads, queries: Mapping[str, RunningQuery], trigger: str
) -> None:
    """Spreads groups that have more rows than a slot's fair share, and brings those home that have much less.

    This is done because it was asked for, so nothing is waited for.
    """
    loads, places, policy = known.loads, known.places(routing), HotPolicy(patience=1)
    total, classes, size = sum(loads) or 1.0, list(known.by_class), len(routing.groups)
    shares = [load / total for load in loads]
    for name in list(spread.groups):
        place = _place(name, classes, size)
        if loads and (place is None or shares[place] * routing.slots < policy.cool):
            spread.end(name)
    for name, (rows, key) in spread.arrived.items():
        place = _place(name, classes, size)
        if name in spread.groups or place is None or not loads:
            continue
        controller = HotController(policy)
        busy = slot_loads(places, shares, routing.slots)
        hot = {place: HotGroup(shares[place], rows, (), key, _label(name))}
        decision = controller.consider(hot, places, shares, busy, partial(_refused, queries))
        if decision.action == "spread":
            _, by = _exchanged_by(decision.stream)
            found = replace(
                decision, group=place % size, stream=by or decision.stream, key_class=classes[place // size]
            )
            carry_out(replace(found, reason=f"{trigger}. {decision.reason}"), queries, spread)


def _refused(queries: Mapping[str, RunningQuery], stream: str) -> str:
    key_class, key = _exchanged_by(stream)
    try:
        merging_for(queries, key or stream, key_class)
    except JobError as error:
        return error.message
    return ""


FOR = " for groups by "


def _exchanged_by(stream: str) -> tuple[str, str]:
    """The key class and the key in what rows of a group of a later stage are called; nothing for a stream."""
    key, _, key_class = stream.partition(FOR)
    return (key_class, key) if key_class else ("", "")


def _label(name: Name) -> str:
    return "" if isinstance(name, int) else f"Group {name[1]} {in_words(name[0])}"


def _hot_group(reports: Sequence[Report], name: Name, share: float, slots: tuple[int, ...]) -> HotGroup:
    if isinstance(name, int):
        return HotGroup(share, rows_of(reports, name), slots, _key(reports, name))
    key_class, group = name
    rows: dict[str, int] = {}
    for report in reports:
        for key, counts in report.traffic.exchanged.get(key_class, {}).items():
            rows[f"{key}{FOR}{key_class}"] = rows.get(f"{key}{FOR}{key_class}", 0) + counts.get(group, 0)
    return HotGroup(share, {key: count for key, count in rows.items() if count}, slots, label=_label(name))


def rows_of(reports: Sequence[Report], group: int) -> Mapping[str, int]:
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


def _key(reports: Sequence[Report], group: int) -> str:
    """The key that a group is hot by, in words."""
    found = [report.traffic.hot_keys[group] for report in reports if group in report.traffic.hot_keys]
    return max(found, key=lambda hot: hot[1])[0] if found else ""
