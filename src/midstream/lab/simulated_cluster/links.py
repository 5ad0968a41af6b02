"""A link: when, and how often, a message that is sent arrives.

A message first waits until those before it are on the wire, then for its own size over the bandwidth, then for the
latency and up to `jitter` more. Messages keep their order unless one is drawn for reordering: then it does not wait for
the arrival of those before it. Each link draws from randomness of its own, so that other links do not change its draws.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from random import Random

from midstream.errors import InternalError


@dataclass(frozen=True, slots=True)
class SimulatedLink:
    """How messages travel one way; `loss`, `duplication` and `reordering` are the chances of each message.

    `bandwidth` is in units of size per unit of time.
    """

    latency: float = 0.0
    bandwidth: float = inf
    jitter: float = 0.0
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0

    def __post_init__(self) -> None:
        chances = (self.loss, self.duplication, self.reordering)
        if self.latency < 0 or self.jitter < 0 or self.bandwidth <= 0 or not all(0 <= c <= 1 for c in chances):
            raise InternalError(f"no link can be like this: {self}")


@dataclass(slots=True)
class SimulatedWire:
    """A link between two machines in use: until when it transmits, and the latest arrival that keeps the order."""

    random: Random
    free: float = 0.0
    last: float = 0.0
    sent: int = 0
    lost: int = 0
    duplicated: int = 0
    size: float = field(default=0.0)

    def arrivals(self, link: SimulatedLink, now: float, size: float) -> list[float]:
        """When copies of a message that is sent now arrive; none if it is lost."""
        self.free = max(self.free, now) + size / link.bandwidth
        self.sent += 1
        self.size += size
        # All draws are made for every message: a chance of zero must not shift the draws of the others.
        loss, duplication, reordering, *delays = (self.random.random() for _ in range(5))
        if loss < link.loss:
            self.lost += 1
            return []
        copies = 2 if duplication < link.duplication else 1
        self.duplicated += copies - 1
        found = [self.free + link.latency + link.jitter * delay for delay in delays[:copies]]
        if reordering >= link.reordering:
            found = [max(self.last, arrival) for arrival in found]
            self.last = max(found)
        return found
