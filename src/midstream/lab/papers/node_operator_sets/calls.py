"""What nodes say to each other about changing plans, before a migration starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union as Either

from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan
from midstream.lab.papers.node_operator_sets.repair import Message
from midstream.lab.papers.node_operator_sets.statistics import StreamStatistics
from midstream.lab.papers.node_operator_sets.track import Drained, Full, Tick, TrackMessage
from midstream.lab.papers.node_operator_sets.wire import on_the_wire
from midstream.optimizer.sites.links import Link


@on_the_wire
@dataclass(frozen=True, slots=True)
class Measured:
    """This node's stream has other statistics than the plan in use was made for."""

    own: StreamStatistics


@on_the_wire
@dataclass(frozen=True, slots=True)
class LineMeasured:
    """Bytes from this node to another take another time than the plan in use was made for."""

    receiver: str
    line: Link


@on_the_wire
@dataclass(frozen=True, slots=True)
class LineReport:
    """Tells the leader how long bytes take between two nodes (centralized)."""

    to: str
    sender: str
    receiver: str
    line: Link


@on_the_wire
@dataclass(frozen=True, slots=True)
class Directed:
    """Somebody wants a certain plan; only the leader of centralized members takes this."""

    plan: JoinPlan


@on_the_wire
@dataclass(frozen=True, slots=True)
class Report:
    """Tells the leader a stream's statistics (centralized)."""

    to: str
    stream: str
    own: StreamStatistics


@on_the_wire
@dataclass(frozen=True, slots=True)
class Request:
    """Asks the leader for a turn to modify plans (distributed)."""

    to: str
    node: str


@on_the_wire
@dataclass(frozen=True, slots=True)
class Granted:
    """Gives a node its turn: the number of the change and the number of the plan it leads to."""

    to: str
    change: int
    epoch: int


@on_the_wire
@dataclass(frozen=True, slots=True)
class Repair:
    """A message of distributed modification within a change."""

    to: str
    change: int
    starter: str
    message: Message


@on_the_wire
@dataclass(frozen=True, slots=True)
class Called:
    """Calls a node to migrate once it has had so many messages that nobody waited for."""

    to: str
    change: int
    epoch: int
    members: tuple[str, ...]
    orders: Mapping[str, tuple[str, ...]]
    expected: int


@on_the_wire
@dataclass(frozen=True, slots=True)
class NewEpoch:
    """Tells a node that took no part in its migration that a plan is in use."""

    to: str
    change: int
    epoch: int
    orders: Mapping[str, tuple[str, ...]]


@on_the_wire
@dataclass(frozen=True, slots=True)
class Started:
    """Tells the leader the first batch of a stream that starts under a plan."""

    to: str
    stream: str
    epoch: int
    batch: int


@on_the_wire
@dataclass(frozen=True, slots=True)
class Retired:
    """From a batch on all streams start under a plan: nobody needs later rows for the plans before it."""

    to: str
    epoch: int
    batch: int


MemberMessage = Either[  # noqa: UP007
    TrackMessage, Report, LineReport, Request, Granted, Repair, Called, NewEpoch, Started, Retired
]
MemberEvent = Either[MemberMessage, Measured, LineMeasured, Directed, Full, Tick, Drained]  # noqa: UP007
