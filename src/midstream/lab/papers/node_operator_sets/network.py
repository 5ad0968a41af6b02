"""Where streams are at home, and what it costs to send bytes between nodes: `T(x) = latency + x / rate`.

Costs are seconds of transmission per second of stream time. A node reaches itself for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from midstream.errors import QueryError
from midstream.lab.papers.node_operator_sets.wire import on_the_wire
from midstream.optimizer.sites.links import Link

RESULTS = "results"
"""The node that asked the query, where results are sent (the paper's node 0)."""

on_the_wire(Link)


@on_the_wire
@dataclass(frozen=True, slots=True)
class Relined:
    """A line between two nodes that has become another one."""

    sender: str
    receiver: str
    line: Link

    @property
    def ends(self) -> tuple[str, str]:
        """The nodes that it is between: only what is sent between them costs otherwise than before."""
        return self.sender, self.receiver


@dataclass(frozen=True)
class Network:
    """The home node of each stream and the lines between nodes; `lines` are those that differ from `line`."""

    homes: Mapping[str, str]
    line: Link
    lines: Mapping[tuple[str, str], Link] = field(default_factory=dict)

    def home(self, stream: str) -> str:
        """The node where a stream arrives."""
        if stream not in self.homes:
            raise QueryError(f"stream {stream} has no node", hint="declare the site where it arrives")
        return self.homes[stream]

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes at which streams arrive."""
        return tuple(dict.fromkeys(self.homes.values()))

    def time(self, sender: str, receiver: str, size: float) -> float:
        """`T(x)` between two nodes."""
        if sender == receiver:
            return 0.0
        return self.between(sender, receiver).time(size)

    def between(self, sender: str, receiver: str) -> Link:
        """The line from one node to another."""
        return self.lines.get((sender, receiver), self.line)

    def with_lines(self, lines: Mapping[tuple[str, str], Link]) -> Network:
        """The network with other lines between some nodes."""
        return replace(self, lines={**self.lines, **lines}) if lines else self


def node_per_stream(streams: tuple[str, ...], line: Link) -> Network:
    """The paper's network: one node per stream, all lines alike. Nodes go by their streams' names."""
    return Network({stream: stream for stream in streams}, line)
