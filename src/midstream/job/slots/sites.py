"""Sites: named sets of slots at which streams live.

The rows of a stream that lives at a site come in at its slots. Where they must lie by a key they travel from there, and
a routed join keeps the stream's window by key among these slots. Slots are not pinned to hosts: a site says between
which slots rows travel, and which executors run them is Spark's to say. Where streams live at sites, slots are fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any

from midstream.algebra.names import check_name
from midstream.checkpoint.manifest import Manifest
from midstream.distribution.fragments import Route
from midstream.errors import InputError, JobError
from midstream.job.task.reports import Report
from midstream.optimizer.sites.links import Link, Links, links_from_json, links_of, links_to_json
from midstream.optimizer.sites.topology import Topology, topology_of

Sites = Mapping[str, tuple[int, ...]]


def sites_of(wanted: Mapping[str, Sequence[int]] | None) -> Sites:
    """Sites as they are declared, by name; refuses what is not a set of slots.

    >>> sites_of({"eu": [0, 1], "us": [2]})
    {'eu': (0, 1), 'us': (2,)}
    """
    found: dict[str, tuple[int, ...]] = {}
    for name, slots in (wanted or {}).items():
        check_name("site", name)
        if isinstance(slots, str) or not isinstance(slots, Sequence) or not all(map(_is_slot, slots)) or not slots:
            raise InputError(
                f"site {name} is a list of slots, not {slots!r}", hint='write {"eu": [0, 1], "us": [2, 3]}'
            )
        found[name] = tuple(sorted(set(slots)))
    return found


def _is_slot(slot: Any) -> bool:
    return isinstance(slot, int) and not isinstance(slot, bool) and slot >= 0


def require_slots_of_sites(sites: Sites, slots: int) -> None:
    """Refuses sites with slots that a job does not have."""
    for name, of_site in sites.items():
        if of_site[-1] >= slots:
            raise JobError(
                f"site {name} names slot {of_site[-1]}, which the job does not have",
                detail=f"its slots are 0 to {slots - 1}",
                hint=f"open it with slots={of_site[-1] + 1} or more, another number than it was last opened with",
            )


def require_fixed(sites: Sites, **moving: object) -> None:
    """Refuses options by which slots would be added, removed or given other groups."""
    unfit = [name for name, said in moving.items() if said]
    if sites and unfit:
        raise JobError(f"a job with sites has no {' and no '.join(unfit)}", detail="the slots of sites are fixed")


def home_of(stream: str, site: str | None, sites: Sites) -> Route:
    """How the rows of a stream come in that lives at a site, or anywhere."""
    if site is None:
        return Route(None)
    if site not in sites:
        known = ", ".join(sites) or "none"
        raise InputError(
            f"stream {stream} lives at site {site!r}, which is not declared",
            detail=f"the sites are {known}",
            hint=f'declare it: sites={{"{site}": [0, 1]}} of the session, or the key sites of a job',
        )
    return Route(None, slots=sites[site])


def require_home(manifest: Manifest | None, stream: str, home: Route, slots: int, wanted: int) -> None:
    """Refuses a home where a stream cannot live in a job that has, or goes over to, some number of slots."""
    _require_same_home(manifest, stream, home)
    if home.slots:
        _require_slots_of_home(stream, home, slots, wanted)


def _require_same_home(manifest: Manifest | None, stream: str, home: Route) -> None:
    """Refuses that a stream moves while there is a checkpoint: its windows lie at the old site."""
    if manifest is None or stream not in manifest.settings.arrival:
        return
    before = tuple(manifest.settings.homes.get(stream, ()))
    if before != home.slots:
        raise JobError(
            f"stream {stream} cannot move: in the checkpoint it lives {_named(before)}, now {_named(home.slots)}",
            hint="declare the sites that it was made with, or use a new checkpoint",
        )


def _require_slots_of_home(stream: str, home: Route, slots: int, wanted: int) -> None:
    """Refuses a home in slots that a job does not have, or while it goes over to another number of them."""
    if slots != wanted:
        raise JobError(
            f"stream {stream} cannot live at a site yet: the job goes over from {slots} to {wanted} slots",
            hint="add it once the job has gone over",
        )
    if home.slots[-1] >= slots:
        raise JobError(
            f"stream {stream} would live in slot {home.slots[-1]}, which the job does not have",
            detail=f"its slots are 0 to {slots - 1}",
            hint=f"go over to {home.slots[-1] + 1} slots first: rescale({home.slots[-1] + 1})",
        )


def require_no_homes(routes: Mapping[str, Route], what: str) -> None:
    """Refuses to change slots while streams live at sites."""
    living = sorted(name for name, route in routes.items() if route.slots)
    if living:
        raise JobError(
            f"a job with sites cannot {what}",
            detail=f"{', '.join(living)} live in slots that are fixed",
            hint="leave the sites out, on a new checkpoint",
        )


def _named(slots: Sequence[int]) -> str:
    return f"in slots {', '.join(map(str, slots))}" if slots else "in any slot"


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

    def see(self, reports: Sequence[Report], topology: Topology) -> None:
        """Sees what a batch took on links, where the cluster has measured it."""
        found = [s for s in sendings(reports, topology) if s.seconds is not None]
        for pair in {sending.pair for sending in found}:
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
