"""Deciding after a batch which partition groups several slots are to share, from what the slots report."""

from __future__ import annotations

from collections.abc import Mapping

from midstream.adaptation.balance import GroupLoad
from midstream.adaptation.hot_groups import HotController, HotDecision, HotGroup
from midstream.distribution.spread_groups import SpreadGroup
from midstream.errors import JobError
from midstream.job.batch import Batch
from midstream.job.spreading import SpreadGroups, require_spreadable

CANDIDATES = 4
"""How many groups with most to do are looked at."""


def decide(
    controller: HotController,
    batch: Batch,
    groups: tuple[GroupLoad, ...],
    shared: tuple[tuple[int, GroupLoad], ...],
    spread: SpreadGroups,
) -> HotDecision:
    """What is decided of loads that were measured; `spread` is told of it."""
    loads = [group.seconds for group in groups]
    busy = [0.0] * batch.slots
    for group in (*groups, *(load for _, load in shared)):
        busy[int(group.owner)] += group.seconds
    for number, load in shared:
        loads[number] += load.seconds
    total = sum(loads) or 1.0
    loads = [load / total for load in loads]
    most = sorted(range(len(loads)), key=lambda group: (-loads[group], group))[:CANDIDATES]
    known = {g: _hot_group(batch, g, loads[g], spread.groups.get(g)) for g in {*most, *spread.groups}}

    def refused(stream: str) -> str:
        try:
            require_spreadable(batch.queries, stream)
        except JobError as error:
            return error.message
        return ""

    decision = controller.consider(known, batch.routing, loads, busy, refused)
    if decision.group is not None and decision.action == "spread":
        spread.ask(SpreadGroup(decision.group, decision.stream, decision.ways, decision.reason))
    if decision.group is not None and decision.action == "bring_home":
        spread.end(decision.group)
    return decision


def _hot_group(batch: Batch, group: int, share: float, wanted: SpreadGroup | None) -> HotGroup:
    slots = () if wanted is None else wanted.slots or (batch.routing[group],)
    return HotGroup(share, _rows(batch, group), slots, _key(batch, group))


def _rows(batch: Batch, group: int) -> Mapping[str, int]:
    """How many rows of a group came of each stream; none if most of its work comes through an exchange."""
    found: dict[str, int] = {}
    for report in batch.reports:
        for stream, counts in report.arrived.items():
            found[stream] = found.get(stream, 0) + counts.get(group, 0)
    everything = sum(report.groups.get(group, 0) for report in batch.reports)
    arrived = sum(found.values())
    return {name: count for name, count in found.items() if count} if 2 * arrived >= everything else {}


def _key(batch: Batch, group: int) -> str:
    """The key that a group is hot by, in words."""
    found = [report.hot_keys[group] for report in batch.reports if group in report.hot_keys]
    return max(found, key=lambda hot: hot[1])[0] if found else ""
