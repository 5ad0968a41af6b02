"""Where slots are, and what rows that travel between them take.

Rows are spread over sites by shares: those of a stream that lives at a site are there, those that lie by a key are
wherever slots are. What travels from one spread to another goes over each link in the product of both shares. A link is
paid for by `T(x)`: its latency once for each exchange of a batch that uses it, and its bytes by its rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from midstream.algebra.plan import Relation, Stream
from midstream.optimizer.sites.links import Link, Links

Shares = tuple[float, ...]
"""The part of some rows that is at each site."""

Pair = tuple[int, int]
"""Two sites, by their places in the list of sites."""

INTERVAL = 16.0
"""The bytes of a row's validity, which travels with it."""

NOWHERE = ""
"""The site of slots that belong to none."""


Copied = frozenset[str] | None
"""The sites that have a copy of a window in each of their slots; None: all slots have one."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Bytes per tick from site to site, and how many exchanges of a batch use each way."""

    bytes: Mapping[Pair, float] = field(default_factory=dict)
    uses: Mapping[Pair, int] = field(default_factory=dict)

    def __add__(self, other: Transfers) -> Transfers:
        pairs = {**self.bytes, **other.bytes}
        return Transfers(
            {pair: self.bytes.get(pair, 0.0) + other.bytes.get(pair, 0.0) for pair in pairs},
            {pair: self.uses.get(pair, 0) + other.uses.get(pair, 0) for pair in pairs},
        )


@dataclass(frozen=True)
class Topology:
    """The site of each slot, the slots of each declared site, and the links between sites."""

    slots: tuple[str, ...]
    sites: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    links: Links = field(default_factory=dict)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The sites that slots belong to."""
        return tuple(dict.fromkeys(self.slots))

    @cached_property
    def everywhere(self) -> Shares:
        """Rows that lie by a key in all slots."""
        return self._shares(range(len(self.slots)))

    @cached_property
    def one_slot(self) -> Shares:
        """Rows that all lie in the first slot."""
        return self._shares([0])

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many slots each site has."""
        return tuple(self.slots.count(name) for name in self.names)

    def copies(self, sites: Copied) -> tuple[int, ...]:
        """How many copies of a window each site has that is kept in every slot, or in every slot of some sites."""
        if sites is None:
            return self.counts
        at = [self.slots[slot] for slot in {slot for site in sites for slot in self.sites[site]}]
        return tuple(map(at.count, self.names))

    @cached_property
    def _lines(self) -> Mapping[Pair, Link]:
        places = {name: place for place, name in enumerate(self.names)}
        known = ((places.get(a), places.get(b), link) for (a, b), link in self.links.items())
        return {(a, b): link for a, b, link in known if a is not None and b is not None}

    def home(self, site: str | None) -> Shares:
        """Rows of a stream that lives at a site, or by key anywhere."""
        return self._homes.get(site, self.everywhere)

    @cached_property
    def _homes(self) -> Mapping[str | None, Shares]:
        return {name: self._shares(slots) for name, slots in self.sites.items()}

    def _shares(self, slots: Sequence[int]) -> Shares:
        at = [self.slots[slot] for slot in slots]
        return tuple(at.count(name) / len(at) for name in self.names)

    def seconds(self, transfers: Transfers, batch_ticks: float) -> float:
        """What transfers take on links per tick."""
        total = 0.0
        for pair, link in self._lines.items():
            uses = transfers.uses.get(pair, 0)
            if uses:
                total += link.time(transfers.bytes[pair], uses / batch_ticks)
        return total

    def by_name(self, transfers: Transfers) -> dict[tuple[str, str], float]:
        """The bytes per tick between two sites, and between the slots of one, by their names."""
        found = {pair: size * self._leaving(pair) for pair, size in transfers.bytes.items()}
        return {(self.names[a], self.names[b]): size for (a, b), size in found.items() if size > 0}

    def _leaving(self, pair: Pair) -> float:
        return 1.0 if pair[0] != pair[1] else 1 - 1 / self.counts[pair[0]]


class Travelling:
    """Adds up what travels in a plan; what several exchanges of a batch send over a link pays its latency each time."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.bytes: dict[Pair, float] = {}
        self.exchanges: set[tuple[object, Pair]] = set()

    def send(self, exchange: object, start: Shares, end: Shares, size: float) -> None:
        """Rows of so many bytes per tick go from one spread to another."""
        for a, part in enumerate(start):
            for b, there in enumerate(end):
                share = part * there
                if share:
                    self._add(exchange, (a, b), share * size)

    def send_everywhere(self, exchange: object, start: Shares, size: float, sites: Copied = None) -> None:
        """Rows of so many bytes per tick go to every slot, or to every slot of some sites."""
        for a, part in enumerate(start):
            for b, count in enumerate(self.topology.copies(sites)):
                if part and count:
                    self._add(exchange, (a, b), part * size * count)

    def _add(self, exchange: object, pair: Pair, size: float) -> None:
        self.bytes[pair] = self.bytes.get(pair, 0.0) + size
        self.exchanges.add((exchange, pair))

    @property
    def transfers(self) -> Transfers:
        """All of it."""
        uses: dict[Pair, int] = {}
        for _, pair in self.exchanges:
            uses[pair] = uses.get(pair, 0) + 1
        return Transfers(self.bytes, uses)


def topology_of(sites: Mapping[str, Sequence[int]], slots: int, links: Links | None = None) -> Topology:
    """Slots at sites; one that several sites name belongs to the first of them.

    >>> topology_of({"eu": [0, 1], "us": [2]}, 4).slots
    ('eu', 'eu', 'us', '')
    """
    owners = [NOWHERE] * slots
    for name, of_site in reversed(list(sites.items())):
        for slot in of_site:
            if slot < slots:
                owners[slot] = name
    inside = {name: tuple(slot for slot in of_site if slot < slots) for name, of_site in sites.items()}
    return Topology(tuple(owners), {name: found for name, found in inside.items() if found}, dict(links or {}))


def site_of(relation: Relation) -> str | None:
    """Where the stream lives whose window a relation is; None for any slot, or for more than a stream."""
    while len(relation.inputs) == 1:
        relation = relation.inputs[0]
    return relation.site if isinstance(relation, Stream) else None
