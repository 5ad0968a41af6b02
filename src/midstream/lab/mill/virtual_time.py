"""A graph run in virtual time: every execution of an operator costs the same, arrivals come when they are due.

Nothing here depends on the machine, so what is measured (latencies, executions, bursts) is the model's own.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from midstream.algebra.declarations import Timestamps
from midstream.algebra.time import BEGINNING
from midstream.lab.mill.enhanced import EnhancedExecutor
from midstream.lab.mill.waiting import Tuple
from midstream.scheduling.graph import QueryGraph
from midstream.scheduling.schedule import Schedule

Mode = Literal["none", "heartbeats", "punctuation", "on demand"]
DEMANDS: Mapping[Mode, Literal["arcs", "punctuation", "none"]] = {
    "none": "none",
    "heartbeats": "none",
    "punctuation": "punctuation",
    "on demand": "arcs",
}


@dataclass(slots=True)
class VirtualSource:
    """A stream in virtual time. Internal timestamps are those of arrival; external ones come with the tuples.

    An external stream promises that a tuple is never more than `skew` behind the newest one of all streams.
    """

    arrivals: list[tuple[int, Tuple]]
    timestamps: Timestamps = "internal"
    skew: int = 0
    heartbeat: int | None = None
    next: int = 0
    latest: int = BEGINNING

    def __post_init__(self) -> None:
        self.arrivals = sorted(self.arrivals, key=lambda arrival: (arrival[0], arrival[1].time))


def stamped(times: Iterable[int], values: Iterable[object] | None = None) -> list[tuple[int, Tuple]]:
    """Arrivals at the given times, stamped on entry."""
    listed = list(times)
    carried = [None] * len(listed) if values is None else list(values)
    return [(time, Tuple(time, time, value)) for time, value in zip(listed, carried, strict=True)]


@dataclass(slots=True)
class Measured:
    """What a run gave: each result with the time at which it left."""

    results: list[tuple[int, Tuple]] = field(default_factory=list)
    steps: int = 0
    most_waiting: int = 0
    end: int = 0

    @property
    def latencies(self) -> list[int]:
        """How long after its birth each result left."""
        return [left - item.born for left, item in self.results]

    @property
    def mean_latency(self) -> float:
        """The mean of the latencies."""
        return sum(self.latencies) / len(self.results) if self.results else 0.0


class VirtualRun:
    """Runs a graph whose sources deliver in virtual time; `cost` is what one execution takes."""

    def __init__(
        self,
        graph: QueryGraph,
        sources: Mapping[str, VirtualSource],
        *,
        cost: int,
        mode: Mode = "on demand",
        schedule: Schedule | None = None,
        trace: list[str] | None = None,
    ) -> None:
        self.graph = graph
        self.sources = dict(sources)
        self.cost = cost
        self.now = 0
        self.measured = Measured()
        self._arrived = 0
        self.executor = EnhancedExecutor(graph, self.progress, schedule, DEMANDS[mode], trace)
        self._due = [(s.arrivals[0][0], name) for name, s in self.sources.items() if s.arrivals]
        heapq.heapify(self._due)
        self._beats = [
            (s.heartbeat, name) for name, s in self.sources.items() if mode == "heartbeats" and s.heartbeat is not None
        ]
        heapq.heapify(self._beats)

    def sink(self, item: Tuple) -> None:
        """Takes a result."""
        if not item.punctuation:
            self.measured.results.append((self.now, item))

    def run(self) -> Measured:
        """Runs until nothing more arrives and nothing can go on."""
        while True:
            self.deliver()
            arrived = self._arrived
            self.now += self.cost
            if self.executor.step():
                continue
            self.now -= self.cost
            if self._arrived > arrived:
                # Something came while a source was asked how far it is.
                continue
            if not self._due:
                break
            self.now = max(self.now, min(self._due[0][0], self._beats[0][0] if self._beats else self._due[0][0]))
        self.measured.steps = self.executor.steps
        self.measured.end = self.now
        return self.measured

    def deliver(self) -> None:
        """Puts everything that has arrived into its source's buffer, heartbeats included."""
        while self._due and self._due[0][0] <= self.now:
            _, name = heapq.heappop(self._due)
            source = self.sources[name]
            arrived, item = source.arrivals[source.next]
            source.next += 1
            self._arrived += 1
            if source.timestamps == "internal":
                item = item._replace(time=arrived)
            source.latest = max(source.latest, item.time)
            self.graph.sources[name].push(item)
            self.executor.asked = 0
            if source.next < len(source.arrivals):
                heapq.heappush(self._due, (source.arrivals[source.next][0], name))
        while self._due and self._beats and self._beats[0][0] <= self.now:
            at, name = heapq.heappop(self._beats)
            value = self._value(name)
            if value is not None and value > self.sources[name].latest:
                self.graph.sources[name].push(Tuple(value, value, punctuation=True))
            heapq.heappush(self._beats, (at + (self.sources[name].heartbeat or 1), name))
        self.measured.most_waiting = max(self.measured.most_waiting, self.graph.ledger.waiting)

    def progress(self, name: str) -> int | None:
        """How far a source is, once everything that has arrived is delivered."""
        self.deliver()
        return None if len(self.graph.sources[name]) else self._value(name)

    def _value(self, name: str) -> int | None:
        source = self.sources[name]
        if source.timestamps == "internal":
            return self.now
        if source.timestamps == "latent":
            return None
        newest = max(s.latest for s in self.sources.values())
        return newest - source.skew if newest > BEGINNING else None
