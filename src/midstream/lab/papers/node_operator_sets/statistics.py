"""What a node knows of its own stream, and how partial results grow from it.

A stream has one selectivity factor (the fraction of its rows that have the same key) when all joins are on one key;
a partial result then carries the greatest factor of its parts, and a pair matches with the smaller of both. Where
conditions differ, `selectivities` gives for each other stream the chance that a pair satisfies the conditions between
them, as this stream's node knows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from midstream.lab.papers.node_operator_sets.network import Network
from midstream.lab.papers.node_operator_sets.wire import on_the_wire


@on_the_wire
@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """Rows per second, rows in the window, bytes of a row, and how selective conditions on the stream are."""

    rate: float
    rows: float
    size: float
    factor: float = 1.0
    selectivities: Mapping[str, float] = field(default_factory=dict)

    def partners(self, flow: Flow) -> float:
        """How many rows of the window match a partial result on average."""
        if not self.selectivities:
            return min(flow.factor, self.factor) * self.rows
        chance = 1.0
        for stream in (flow.head, *flow.met):
            chance *= self.selectivities.get(stream, 1.0)
        return chance * self.rows

    def dearer_than(self, other: StreamStatistics) -> bool:
        """Whether probing its window costs as much or more wherever it is probed."""
        return self.rate >= other.rate and self.rows >= other.rows and self.size >= other.size

    def grown(self, rate: float) -> StreamStatistics:
        """The same stream at another rate, with a window of the same length in time."""
        return replace(self, rate=rate, rows=self.rows * rate / self.rate)


Statistics = Mapping[str, StreamStatistics]


@on_the_wire
@dataclass(frozen=True, slots=True)
class Flow:
    """Partial results of a head's rows: the streams they have met, their rate, size and factor, and where they are."""

    head: str
    met: tuple[str, ...]
    rate: float
    size: float
    factor: float
    node: str


def starting(head: str, own: StreamStatistics, network: Network) -> Flow:
    """A head's rows before they have met anything."""
    return Flow(head, (), own.rate, own.size, own.factor, network.home(head))


def after(flow: Flow, target: str, own: StreamStatistics, node: str) -> Flow:
    """What comes out of probing a target at a node."""
    return Flow(
        flow.head,
        (*flow.met, target),
        flow.rate * own.partners(flow),
        flow.size + own.size,
        max(flow.factor, own.factor),
        node,
    )
