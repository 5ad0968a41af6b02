"""Deciding after a batch which partition groups several slots are to share, from what the slots report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from midstream.adaptation.hot_groups import HotController, HotDecision, HotGroup, HotPolicy
from midstream.distribution.balancing import slot_loads
from midstream.distribution.key_classes import ARRIVAL, in_words
from midstream.distribution.routing import Routing
from midstream.distribution.spread_groups import SpreadGroup
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
    """What is decided from measured loads; `spread` says which groups are shared.

    The number of a group of a later stage is that of its load among those that were measured.
    """
    loads, size = [group.seconds for group in seen.groups], len(batch.slots.routing)
    busy = [0.0] * batch.slots.count
    for group in (*seen.groups, *(load for _, load in seen.shared)):
        busy[int(group.owner)] += group.seconds
    for number, load in seen.shared:
        loads[number] += load.seconds
    total = sum(loads) or 1.0
    loads = [load / total for load in loads]
    arriving = {g: _hot_group(batch, g, loads[g], spread.groups.get(g)) for g in {*_most(loads[:size]), *spread.groups}}
    later = {
        g: HotGroup(loads[g], {}, label=f"Group {g % size} {in_words(seen.classes[g // size])}")
        for g in _most(loads)
        if g >= size
    }
    places = [int(group.owner) for group in seen.groups]
    decision = controller.consider({**arriving, **later}, places, loads, busy, partial(_refused, batch.queries))
    return decision if decision.group is None else replace(decision, group=decision.group % size)


def carry_out(decision: HotDecision, queries: Mapping[str, RunningQuery], spread: SpreadGroups) -> None:
    """Records in `spread` what was decided."""
    if decision.group is not None and decision.action == "spread":
        merging = merging_for(queries, decision.stream)
        spread.ask(SpreadGroup(decision.group, decision.stream, decision.ways, decision.reason, merging=merging))
    if decision.group is not None and decision.action == "bring_home":
        spread.end(decision.group)


def hottest(reports: Sequence[Report], known: ClassLoads) -> dict[int, tuple[Mapping[str, int], str]]:
    """Of the groups with most to do lately: how many rows came of each stream, and the key they are hot by."""
    loads = known.by_class.get(ARRIVAL, ())
    return {group: (rows, _key(reports, group)) for group in _most(loads) if (rows := rows_of(reports, group))}


def _most(loads: Sequence[float]) -> list[int]:
    """The groups with most to do, the first of equal ones first."""
    return np.argsort(-np.asarray(loads, float), kind="stable")[:CANDIDATES].tolist()  # type: ignore[no-any-return]


def spread_hot(
    spread: SpreadGroups, routing: Routing, known: ClassLoads, queries: Mapping[str, RunningQuery], trigger: str
) -> None:
    """Has groups be spread that have more rows than a slot's fair share, and brought home that have much less.

    This is done because it was asked for, so nothing is waited for.
    """
    loads, places, policy = known.loads, known.places(routing), HotPolicy(patience=1)
    total = sum(loads) or 1.0
    shares = [load / total for load in loads]
    cooled = [group for group in spread.groups if loads and shares[group] * routing.slots < policy.cool]
    for group in cooled:
        spread.end(group)
    for group, (rows, key) in spread.arrived.items():
        if group in spread.groups:
            continue
        controller = HotController(policy)
        busy = slot_loads(places, shares, routing.slots)
        hot = {group: HotGroup(shares[group], rows, (), key)}
        decision = controller.consider(hot, places, shares, busy, partial(_refused, queries))
        if decision.action == "spread":
            merging, reason = merging_for(queries, decision.stream), f"{trigger}. {decision.reason}"
            spread.ask(SpreadGroup(group, decision.stream, decision.ways, reason, merging=merging))


def _refused(queries: Mapping[str, RunningQuery], stream: str) -> str:
    try:
        merging_for(queries, stream)
    except JobError as error:
        return error.message
    return ""


def _hot_group(batch: Batch, group: int, share: float, wanted: SpreadGroup | None) -> HotGroup:
    slots = () if wanted is None else wanted.slots or (batch.slots.routing[group],)
    return HotGroup(share, rows_of(batch.reports, group), slots, _key(batch.reports, group))


def rows_of(reports: Sequence[Report], group: int) -> Mapping[str, int]:
    """How many rows of a group came of each stream; none if most of its work comes through an exchange."""
    found: dict[str, int] = {}
    for report in reports:
        for stream, counts in report.traffic.arrived.items():
            found[stream] = found.get(stream, 0) + counts.get(group, 0)
    everything = sum(report.traffic.groups.get(group, 0) for report in reports)
    everything -= sum(counts.get(group, 0) for report in reports for counts in report.traffic.exchanged.values())
    arrived = sum(found.values())
    return {name: count for name, count in found.items() if count} if 2 * arrived >= everything else {}


def _key(reports: Sequence[Report], group: int) -> str:
    """The key that a group is hot by, in words."""
    found = [report.traffic.hot_keys[group] for report in reports if group in report.traffic.hot_keys]
    return max(found, key=lambda hot: hot[1])[0] if found else ""
