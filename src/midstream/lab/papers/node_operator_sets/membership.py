"""What a node keeps to control plans: its share, a change that it drafts, and the turns of all, if it leads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from midstream.lab.papers.node_operator_sets.calls import Called, MemberMessage
from midstream.lab.papers.node_operator_sets.centralized import Coordinator
from midstream.lab.papers.node_operator_sets.distributed import Repairing
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan
from midstream.lab.papers.node_operator_sets.network import Relined
from midstream.lab.papers.node_operator_sets.statistics import StreamStatistics
from midstream.lab.papers.node_operator_sets.track import Track
from midstream.lab.papers.node_operator_sets.wire import on_the_wire


@on_the_wire
@dataclass(frozen=True)
class Draft:
    """A change in which this node modifies its share; `called` has the end of modification, when it is there."""

    change: int
    starter: str
    since: float
    node: Repairing
    called: Called | None = None
    relined: Relined | None = None
    """The line that the change is about, at its starter."""


@on_the_wire
@dataclass(frozen=True)
class Lead:
    """What the leader keeps: who waits for a turn, the change in progress, and how far old plans have drained."""

    nodes: tuple[str, ...]
    drained: int = 0
    changes: int = 0
    change: int | None = None
    since: float = 0.0
    waiting: tuple[str, ...] = ()
    coordinator: Coordinator | None = None
    planned: JoinPlan | None = None
    wanted: JoinPlan | None = None
    absent: tuple[str, ...] = ()
    started: Mapping[str, int] = field(default_factory=dict)
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@on_the_wire
@dataclass(frozen=True)
class Member:
    """A node's plans and its part in changing them. `base` is its share for repairs, None in centralized mode.

    `wanted` and `relined` are what it has measured of its stream and of its lines and has not changed plans for yet.
    `retired` has for a plan the batch from which on all streams start under it.
    """

    stream: str
    leader: str
    patience: float
    track: Track
    base: Repairing | None = None
    draft: Draft | None = None
    wanted: StreamStatistics | None = None
    relined: tuple[Relined, ...] = ()
    asked: float | None = None
    lead: Lead | None = None
    retired: Mapping[int, int] = field(default_factory=dict)

    @property
    def node(self) -> str:
        """The node's name."""
        return self.track.node


Stepped = tuple[Member, tuple[MemberMessage, ...]]


def everyone(member: Member) -> tuple[str, ...]:
    """All nodes with streams."""
    if member.lead is not None:
        return member.lead.nodes
    assert member.base is not None
    return tuple(member.base.nodes)


def leading(member: Member) -> Lead:
    """What a node that leads keeps for that."""
    assert member.lead is not None, f"{member.node} does not lead"
    return member.lead
