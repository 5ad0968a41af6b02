"""Where to break a path so that tuples take the least memory: at the ends of the steepest drops in volume.

Along a path, each operator turns a volume into a smaller or larger one at a cost. From where a fragment starts, it
reaches to the operator after which the volume has dropped most per cost; there the next fragment starts. Fragments that
free the most per cost go first (Babcock et al., Chain).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from midstream.scheduling.graph import GraphNode, QueryGraph
from midstream.scheduling.schedule import Place


@dataclass(frozen=True, slots=True)
class ScheduledFragment:
    """A run `[start, end)` of a path's operators and how fast it frees memory."""

    start: int
    end: int
    slope: float


@dataclass(frozen=True, slots=True)
class Chain:
    """The chosen break nodes, and how urgent the fragment behind each start is."""

    breaks: frozenset[Place]
    priorities: dict[int, float]


def fragments(selectivities: Sequence[float], costs: Sequence[float] | None = None) -> list[ScheduledFragment]:
    """The fragments of a path, from what share of its input each operator gives and what a tuple costs it.

    >>> [(f.start, f.end) for f in fragments([0.9, 0.1, 1.0])]
    [(0, 2), (2, 3)]
    """
    costs = [1.0] * len(selectivities) if costs is None else costs
    volumes, times = [1.0], [0.0]
    for selectivity, cost in zip(selectivities, costs, strict=True):
        times.append(times[-1] + cost * volumes[-1])
        volumes.append(volumes[-1] * selectivity)
    found, start = [], 0
    while start < len(selectivities):
        end = max(range(start + 1, len(volumes)), key=lambda e: (_slope(volumes, times, start, e), e))
        found.append(ScheduledFragment(start, end, _slope(volumes, times, start, end)))
        start = end
    return found


def _slope(volumes: Sequence[float], times: Sequence[float], start: int, end: int) -> float:
    took = times[end] - times[start]
    return (volumes[start] - volumes[end]) / took if took > 0 else 0.0


def chain(graph: QueryGraph) -> Chain:
    """Break nodes for every path from a source to its sink, from what the operators have taken and given so far."""
    breaks: set[Place] = set()
    priorities: dict[int, float] = {}
    for entry in graph.nodes:
        if None not in entry.feeders:
            continue
        for path in _paths([(entry, 0)]):
            for fragment in fragments([_selectivity(node) for node, _ in path]):
                node, port = path[fragment.start]
                if fragment.start > 0:
                    breaks.add((node.name, port))
                priorities[id(node)] = max(fragment.slope, priorities.get(id(node), fragment.slope))
    return Chain(frozenset(breaks), priorities)


def _paths(path: list[tuple[GraphNode, int]]) -> Iterator[list[tuple[GraphNode, int]]]:
    """The operators of a path and on to each sink, each with the input by which the path comes in."""
    readers = path[-1][0].readers
    if not readers:
        yield path
    for reader in readers:
        yield from _paths([*path, reader])


def _selectivity(node: GraphNode) -> float:
    return node.given / node.taken if node.taken and not node.is_fork else 1.0
