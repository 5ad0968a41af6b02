"""The query graphs and the traffic of the Stream Mill experiments, in virtual time.

Times are nanoseconds; every execution of an operator takes ten microseconds. Whether a tuple passes a selection is
drawn with it, so that every strategy is given the same tuples.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from midstream.algebra.declarations import Timestamps
from midstream.lab.mill.virtual_time import Measured, Mode, VirtualRun, VirtualSource
from midstream.lab.mill.waiting import Pass, SlidingCount, Tuple, Union
from midstream.scheduling.graph import GraphNode, QueryGraph
from midstream.scheduling.schedule import Schedule, schedule_of

SECOND = 1_000_000_000
COST = 10_000
SELECTION = 0.95
SEED = 7


@dataclass(frozen=True, slots=True)
class Traffic:
    """A source's rate per second, how many of its tuples come at once, and whose clock stamps them."""

    rate: float
    burst: int = 1
    timestamps: Timestamps = "internal"


Build = Callable[[QueryGraph, Callable[[Tuple], None]], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """A graph and its traffic over some seconds; `heartbeat` is the period of heartbeats, where they are used."""

    build: Build
    traffic: Mapping[str, Traffic]
    seconds: float
    seed: int = SEED
    heartbeat: int = SECOND // 10


@dataclass(slots=True)
class _Outlet:
    """Gives results to a run that is made only after the graph they come from."""

    run: VirtualRun | None = field(default=None)

    def __call__(self, item: Tuple) -> None:
        assert self.run is not None
        self.run.sink(item)


def simulate(setting: Setting, mode: Mode, schedule: str | Schedule = "dfs") -> Measured:
    """Runs a graph over its traffic."""
    graph, outlet = QueryGraph(), _Outlet()
    setting.build(graph, outlet)
    sources = {
        name: VirtualSource(_arrivals(traffic, setting, name), traffic.timestamps, heartbeat=setting.heartbeat)
        for name, traffic in setting.traffic.items()
    }
    outlet.run = VirtualRun(graph, sources, cost=COST, mode=mode, schedule=schedule_of(schedule))
    return outlet.run.run()


def _arrivals(traffic: Traffic, setting: Setting, name: str) -> list[tuple[int, Tuple]]:
    """A Poisson process of bursts; each tuple carries one number per selection it may meet."""
    chance = random.Random(f"{setting.seed} {name}")
    arrivals: list[tuple[int, Tuple]] = []
    now = 0.0
    while True:
        now += chance.expovariate(traffic.rate / traffic.burst)
        if now > setting.seconds:
            return arrivals
        at = int(now * SECOND)
        arrivals += [(at, Tuple(at, at, [chance.random() for _ in range(4)])) for _ in range(traffic.burst)]


def selection(number: int = 0, share: float = SELECTION) -> Pass:
    """A selection that lets a share of the tuples pass."""
    return Pass(lambda item: item if not isinstance(item.value, list) or item.value[number] < share else None)


def simple_union(graph: QueryGraph, sink: Callable[[Tuple], None], share: float = SELECTION) -> None:
    """Figure 1: two streams, a selection on each, their union."""
    selected: list[GraphNode | str] = [graph.add(f"select {name}", selection(share=share), [name]) for name in "ab"]
    graph.add("union", Union(2), selected, sink)


def bare_union(graph: QueryGraph, sink: Callable[[Tuple], None]) -> None:
    """Figure 1 without its selections."""
    graph.add("union", Union(2), ["a", "b"], sink)


def latent_union(graph: QueryGraph, sink: Callable[[Tuple], None]) -> None:
    """Figure 1 with latent timestamps and selections that let everything pass: the union waits for nothing."""
    selected: list[GraphNode | str] = [graph.add(f"select {name}", selection(share=1.0), [name]) for name in "ab"]
    graph.add("union", Pass(lambda item: item), selected, sink)


def nested_unions(graph: QueryGraph, sink: Callable[[Tuple], None]) -> None:
    """Three streams, two selections on each, two unions with two selections between them."""
    chains = {name: _chain(graph, name, name, 2) for name in "abc"}
    lower = graph.add("union 1", Union(2), [chains["a"], chains["b"]])
    between = _chain(graph, lower, "between", 2)
    graph.add("union 2", Union(2), [between, chains["c"]], sink)


def nested_unions_and_count(slide: int, selections: int = 2) -> Build:
    """Four streams: two nested unions as above, then a union with the count per slide of the fourth stream."""

    def build(graph: QueryGraph, sink: Callable[[Tuple], None]) -> None:
        chains = {name: _chain(graph, name, name, selections) for name in "abcd"}
        lower = graph.add("union 1", Union(2), [chains["a"], chains["b"]])
        middle = graph.add("union 2", Union(2), [_chain(graph, lower, "between", selections), chains["c"]])
        count = graph.add("count", SlidingCount(slide), [chains["d"]])
        upper = _chain(graph, middle, "above", selections)
        graph.add("union 3", Union(2), [upper, count], sink)

    return build


def union_with_count(slide: int) -> Build:
    """A selected stream united with the count per slide of another one."""

    def build(graph: QueryGraph, sink: Callable[[Tuple], None]) -> None:
        selected = graph.add("select a", selection(), ["a"])
        counted = graph.add("count", SlidingCount(slide), [graph.add("select b", selection(), ["b"])])
        graph.add("union", Union(2), [selected, counted], sink)

    return build


def _chain(graph: QueryGraph, start: GraphNode | str, name: str, length: int) -> GraphNode | str:
    for i in range(length):
        start = graph.add(f"select {name} {i + 1}", selection(i, 0.975), [start])
    return start
