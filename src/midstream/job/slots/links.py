"""Links between the sites of a job: declared by its program, changed while it runs, and what its rows take on them.

Links that were changed are in the manifest, and a restart keeps them over those that are declared. Bytes between slots
are counted for each query in every batch; where the cluster measures how long they took, that counts, else what the
links say. A link that was measured to take half as long again as it should, or much less, in two batches on end is
taken to be another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any

from midstream.job.slots.sites import Sites
from midstream.job.task.reports import Report
from midstream.optimizer.sites.links import Link, Links, links_from_json, links_of, links_to_json
from midstream.optimizer.sites.topology import Topology, topology_of

ChangedLinks = Sequence[Sequence[Any]]
"""Links that were changed while the job ran, as a manifest has them."""

Pair = tuple[str, str]

OFF = 1.5
"""From how many times the expected time on a link is off."""

ON_END = 2
"""In how many batches on end."""


@dataclass(frozen=True, slots=True)
class Located:
    """The sites of a job, and the links between them as its program declares them."""

    sites: Sites = field(default_factory=dict)
    declared: Links = field(default_factory=dict)

    def links(self, changed: ChangedLinks) -> Links:
        """The links as they are now."""
        known = {**self.declared, **links_from_json(changed)}
        return {pair: link for pair, link in known.items() if set(pair) <= set(self.sites)}

    def topology(self, slots: int, changed: ChangedLinks) -> Topology | None:
        """Where slots are, and the links between them; None for a job without sites."""
        return topology_of(self.sites, slots, self.links(changed)) if self.sites else None

    def changed(self, changed: ChangedLinks, wanted: Mapping[str, str]) -> list[list[Any]]:
        """What a manifest is to have once some links are others; refuses what is not a link."""
        return links_to_json({**links_from_json(changed), **links_of(wanted, self.sites)})


@dataclass(frozen=True, slots=True)
class Sending:
    """What an exchange of a batch sent over a link: bytes, and the seconds it took, if the cluster has measured it."""

    pair: Pair
    size: int
    seconds: float | None = None


def sendings(reports: Sequence[Report], topology: Topology, query: str | None = None) -> list[Sending]:
    """What the exchanges of a batch sent over links, for one query or for all; slots of a site send side by side."""
    sizes: dict[tuple[int, Pair], int] = {}
    took: dict[tuple[int, Pair], float] = {}
    for report in (report for report in reports if report.slot >= 0):
        here, traffic = topology.slots[report.slot], report.traffic
        for slot, size in (traffic.sent if query is None else traffic.sent_of.get(query, {})).items():
            place = report.stage, (here, topology.slots[slot])
            sizes[place] = sizes.get(place, 0) + size
        for slot, seconds in traffic.received.items():
            place = report.stage - 1, (topology.slots[slot], here)
            took[place] = max(took.get(place, 0.0), seconds)
    known = ((place, size) for place, size in sizes.items() if place[1] in topology.links)
    return [Sending(place[1], size, took.get(place)) for place, size in known]


def link_seconds(reports: Sequence[Report], query: str, topology: Topology) -> float:
    """How long the rows of a query took on links in a batch: each exchange pays the latency of the links it uses."""
    found = sendings(reports, topology, query)
    return sum(topology.links[s.pair].time(s.size) if s.seconds is None else s.seconds for s in found)


@dataclass(slots=True)
class Measuring:
    """Finds links that take another time than they are said to, in several batches on end."""

    off: dict[Pair, list[float]] = field(default_factory=dict)
    """How many times as long as expected each link has taken in the last batches, while it was off."""

    def see(self, reports: Sequence[Report], topology: Topology | None) -> None:
        """Sees what a batch took on links, where the cluster has measured it."""
        found = [] if topology is None else [s for s in sendings(reports, topology) if s.seconds is not None]
        for pair in {sending.pair for sending in found}:
            assert topology is not None
            mine = [sending for sending in found if sending.pair == pair]
            expected = sum(topology.links[pair].time(sending.size) for sending in mine)
            ratio = sum(sending.seconds or 0.0 for sending in mine) / expected if expected > 0 else 1.0
            if 1 / OFF < ratio < OFF:
                self.off.pop(pair, None)
            elif ratio > 0:
                self.off.setdefault(pair, []).append(ratio)

    def news(self, links: Links) -> Links:
        """The links as they were measured that were off for long enough; they are looked at afresh from now on."""
        found = {}
        for pair, ratios in list(self.off.items()):
            if len(ratios) >= ON_END:
                known, ratio = links.get(pair), min(ratios, key=lambda ratio: abs(log(ratio)))
                del self.off[pair]
                if known is not None:
                    found[pair] = Link(known.latency * ratio, known.rate / ratio)
        return found
