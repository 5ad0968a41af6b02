"""Decided moves of groups, weighed against changes of plans that were decided after the same batch.

What a group takes is parted among queries by what their operators did in the group's slot: rows looked up, candidate
pairs and rows stored. What a change of plan costs is stated in ticks of the running plan's work, which the measured
load turns into seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from midstream.adaptation.balance import GroupLoad
from midstream.adaptation.hot_groups import HotDecision
from midstream.adaptation.weighing import PlanChange, SlotChange, Terms, Weighed, weigh
from midstream.checkpoint.names import copy_name
from midstream.distribution.balancing import slot_loads
from midstream.job.batch import Batch
from midstream.job.slots.both_at_once import SHARED
from midstream.job.task.reports import Report
from midstream.job.task.sides import base_name


@dataclass(frozen=True, slots=True)
class PlansDecided:
    """Changes of plans that were decided after a batch, with their prices in ticks of the running plans' work.

    `apart` says why they cannot begin in the same batch as a move by a protocol; empty if they can.
    """

    changes: Sequence[PlanChange] = ()
    apart: Callable[[str], str] = lambda protocol: ""

    def against(
        self,
        batch: Batch,
        loads: Sequence[GroupLoad],
        move: SlotChange,
        protocol: str,
        window: float,
        horizon: float,
        ticks_per_second: float,
    ) -> Weighed:
        """Weighs them against a move; a window has so many seconds, and changes last for `horizon` windows."""
        priced = [replace(c, price=c.price / ticks_per_second if ticks_per_second else 0.0) for c in self.changes]
        # While slots run by plans of their own no group is shared, so neither would follow the other.
        exclude = protocol == SHARED and any(change.slot is not None for change in self.changes)
        terms = Terms(horizon * window, window, apart=self.apart(protocol), exclude=exclude)
        parts = _parts(batch.reports, batch.slots.count, list(batch.queries))
        by_query = [{q: load.seconds * part for q, part in parts[int(load.owner)].items()} for load in loads]
        return weigh([[(int(load.owner), 1.0)] for load in loads], by_query, batch.slots.count, priced, move, terms)

    @property
    def queries(self) -> list[str]:
        """The queries whose plans are to change."""
        return sorted({change.query for change in self.changes})


def moved_groups(loads: Sequence[GroupLoad], routing: Sequence[int], price: float) -> SlotChange:
    """A move of groups to other slots; what several slots share stays, after the groups."""
    places = [*routing, *(int(load.owner) for load in loads[len(routing) :])]
    return SlotChange([[(slot, 1.0)] for slot in places], price)


def shared_group(loads: Sequence[GroupLoad], decision: HotDecision, rows: Mapping[str, int], slots: int) -> SlotChange:
    """A group shared by its home and the slots with least to do; what is not spread of it is done in each of them."""
    places = [[(int(load.owner), 1.0)] for load in loads]
    group = decision.group
    assert group is not None
    part, home = rows.get(decision.stream, 0) / max(1, sum(rows.values())), int(loads[group].owner)
    each = slot_loads([int(load.owner) for load in loads], [load.seconds for load in loads], slots)
    others = sorted((slot for slot in range(slots) if slot != home), key=lambda slot: (each[slot], slot))
    places[group] = [(slot, part / decision.ways + 1 - part) for slot in (home, *others[: decision.ways - 1])]
    return SlotChange(places)


def _parts(reports: Sequence[Report], slots: int, queries: Sequence[str]) -> list[dict[str, float]]:
    """Which part of the work of each slot is for which query; alike if nothing was done."""
    found: list[dict[str, float]] = [{} for _ in range(slots)]
    for report in (report for report in reports if 0 <= report.slot < slots):
        for (name, _), part in report.fragments.items():
            query, did = base_name(name), part.work
            known = found[report.slot].get(query, 0.0)
            found[report.slot][query] = known + did.probed + did.matched + did.inserted
    alike = {query: 1 / len(queries) for query in queries}
    return [
        {query: work / sum(own.values()) for query, work in own.items()} if sum(own.values()) else alike
        for own in found
    ]


@dataclass(frozen=True, slots=True)
class PutOff:
    """A change that waits for another one since a batch: groups for the plans of some queries, or these for groups."""

    first: str
    queries: tuple[str, ...]
    since: int

    def plan_still_changes(self, batch: Batch) -> bool:
        """Whether a query for whose plan groups wait still goes over to it, or is about to."""
        if batch.batch_id <= self.since:
            return True
        known = [batch.queries[name] for name in self.queries if name in batch.queries]
        return any(query.migrates or copy_name(query.name) in batch.queries for query in known)

    @property
    def reason(self) -> str:
        """Why groups wait."""
        named = " and ".join(self.queries)
        return f"The plan of {named} changes first, as was weighed after batch {self.since}; that must show first."

    def to_json(self) -> dict[str, Any]:
        """What a manifest says."""
        return {"first": self.first, "queries": list(self.queries), "since": self.since}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> PutOff:
        """From what a manifest says."""
        return PutOff(record["first"], tuple(record["queries"]), record["since"])
