"""Links between the sites of a job: declared by its program, changed while it runs, and what its rows take on them.

Links that were changed are in the manifest, and a restart keeps them over those that are declared. Bytes between slots
are counted for each query in every batch; where the cluster measures how long they took, that counts, else what the
links say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from midstream.job.slots.sites import Sites
from midstream.job.task.reports import Report
from midstream.optimizer.sites.links import Links, links_from_json, links_of, links_to_json
from midstream.optimizer.sites.topology import Topology, topology_of

Told = Sequence[Sequence[Any]]
"""Links that were changed while the job ran, as a manifest has them."""

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Located:
    """The sites of a job, and the links between them as its program declares them."""

    sites: Sites = field(default_factory=dict)
    declared: Links = field(default_factory=dict)

    def links(self, told: Told) -> Links:
        """The links as they are now."""
        known = {**self.declared, **links_from_json(told)}
        return {pair: link for pair, link in known.items() if set(pair) <= set(self.sites)}

    def topology(self, slots: int, told: Told) -> Topology | None:
        """Where slots are, and the links between them; None for a job without sites."""
        return topology_of(self.sites, slots, self.links(told)) if self.sites else None

    def changed(self, told: Told, wanted: Mapping[str, str]) -> list[list[Any]]:
        """What a manifest is to have once some links are others; refuses what is not a link."""
        return links_to_json({**links_from_json(told), **links_of(wanted, self.sites)})


def links_summary(links: Links) -> dict[str, str]:
    """Links as users write them."""
    return {f"{sender} -> {receiver}": str(link) for (sender, receiver), link in sorted(links.items())}


def sent_between(reports: Sequence[Report], query: str, topology: Topology) -> dict[Pair, int]:
    """The bytes of a query's rows in a batch between sites, and between the slots of one."""
    found: dict[Pair, int] = {}
    for report in reports:
        for slot, size in report.traffic.sent_of.get(query, {}).items():
            if slot != report.slot and report.slot >= 0:
                pair = topology.slots[report.slot], topology.slots[slot]
                found[pair] = found.get(pair, 0) + size
    return found


def link_seconds(reports: Sequence[Report], query: str, topology: Topology) -> float:
    """How long the rows of a query took on links in a batch: each exchange pays the latency of the links it uses."""
    total = 0.0
    for stage in {report.stage for report in reports}:
        sent = sent_between([report for report in reports if report.stage == stage], query, topology)
        total += sum(topology.links[pair].time(size) for pair, size in sent.items() if pair in topology.links)
    return total
