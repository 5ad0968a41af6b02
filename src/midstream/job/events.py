"""What happens to a job: each change of its state is one of these, applied by `transitions.after`.

An event that is refused raises an error and leaves the state as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from midstream.adaptation.cost_corrections import Factors
from midstream.adaptation.policy import Policy
from midstream.algebra.statistics import Statistics
from midstream.checkpoint.manifest import Manifest
from midstream.distribution.fragments import GroupName, Route, Routing, SpreadGroup
from midstream.errors import MidstreamError
from midstream.job.batch import Batch
from midstream.job.migrations.verifying import Consequence, Verification
from midstream.job.queries.faults import OnError
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.spreading import SpreadGroups


@dataclass(frozen=True, slots=True)
class Opened:
    """A checkpoint was read: the job goes on from its newest manifest, with other slots if a number is given."""

    manifest: Manifest | None
    uri: str
    slots: int | None = None
    bits: int | None = None


@dataclass(frozen=True, slots=True)
class QueriesForgotten:
    """All queries are to be planned again."""


@dataclass(frozen=True, slots=True)
class QueryAdded:
    """A query runs from the next batch on; its streams arrive by the routes it was cut for."""

    query: RunningQuery


@dataclass(frozen=True, slots=True)
class QueryWithdrawn:
    """A query that was planned is planned again."""

    query: str


@dataclass(frozen=True, slots=True)
class QueryReplaced:
    """A query has another text: `manifest` has its results under another name.

    `old` runs under that name with the next batch, for the last time; None if its text has no meaning any more.
    """

    query: str
    aside: str
    manifest: Manifest
    old: RunningQuery | None


@dataclass(frozen=True, slots=True)
class ShadowBegun:
    """Another text for a query runs beside it, as `shadow`, before it takes its place; `verification` compares them."""

    query: str
    shadow: RunningQuery
    verification: Verification


@dataclass(frozen=True, slots=True)
class ShadowSwitched:
    """The other text of a query is to take its place with the next batch, whatever the comparison has found."""

    query: str


@dataclass(frozen=True, slots=True)
class QueryDropped:
    """A query has ended; the next manifest is without it."""

    query: str


@dataclass(frozen=True, slots=True)
class QueryLeftOut:
    """A query that the checkpoint runs, and that is not declared any more, is not to run; `manifest` is without it."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class AddingRecorded:
    """A query was added by request; the next manifest says with which settings."""

    query: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextChanged:
    """A query that is declared has another text by request, or was dropped; the next manifest says so."""

    query: str
    declared: str
    now: str | None = None


@dataclass(frozen=True, slots=True)
class ErrorPolicySet:
    """A query does something else about values that it cannot work with."""

    query: str
    policy: OnError


@dataclass(frozen=True, slots=True)
class QueryStopped:
    """A value has put a query in quarantine."""

    query: str
    batch: int
    error: MidstreamError


@dataclass(frozen=True, slots=True)
class QueryResumed:
    """A query in quarantine goes on with the next batch; the rows in between are left out for it."""

    query: str


@dataclass(frozen=True, slots=True)
class AdaptivityChanged:
    """A query adapts in another mode; `policy` is how it did so far, None if it did not."""

    query: str
    mode: str
    policy: Policy | None = None


@dataclass(frozen=True, slots=True)
class MigrationAsked:
    """A query is to go over to the plan of `target` with the next batch, in all its slots or in some.

    With `verify` a copy of the query migrates, and the query follows once both have been the same for so many ticks.
    `observed` is what is known of the query's streams.
    """

    query: str
    target: RunningQuery
    strategy: str
    trigger: str
    part: str = "auto"
    slots: Sequence[int] | None = None
    verify: int | None = None
    observed: Statistics | None = None


@dataclass(frozen=True, slots=True)
class MigrationCancelled:
    """A query goes back to its old plan with the next batch, or stays with its text; its history says why."""

    query: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class VerifiedMigrationsBegun:
    """Queries whose migrations were verified go through them; `observed` is what is known of their streams."""

    observed: Mapping[str, Statistics] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """Groups are to be dealt to slots as `routing` says, or evenly by what they have had to do.

    With a `key_class` those of its exchanges move alone.
    """

    routing: Sequence[int] | None
    trigger: str = "asked for"
    protocol: str = "mslb"
    key_class: str = ""


@dataclass(frozen=True, slots=True)
class MoveCancelled:
    """Groups whose rows go to two slots, or that wait for another slot, stay where they were."""

    trigger: str = "asked for"


@dataclass(frozen=True, slots=True)
class Rescaled:
    """Groups are to be dealt to another number of slots."""

    slots: int
    trigger: str = "asked for"


@dataclass(frozen=True, slots=True)
class SlotsDecided:
    """The job has decided by itself how groups are to be dealt (None: as they are), and which slots are to share."""

    routing: Routing | None
    spread: SpreadGroups


@dataclass(frozen=True, slots=True)
class GroupSpread:
    """Several slots are to share a group from the next batch on that can have it so."""

    group: SpreadGroup


@dataclass(frozen=True, slots=True)
class GroupBroughtHome:
    """A group is to have one slot again."""

    group: GroupName


@dataclass(frozen=True, slots=True)
class Scheduled:
    """Operators run in another order from the next batch on."""

    scheduling: str


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """Settings that the next manifest is to have, by name."""

    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CostsCorrected:
    """A trial has found by what the constants are to be multiplied that plans are weighed by; nothing: as at first."""

    factors: Factors


@dataclass(frozen=True, slots=True)
class StreamsArrive:
    """Streams that have no route yet arrive by these."""

    routes: Mapping[str, Route]


@dataclass(frozen=True, slots=True)
class Committed:
    """The manifest of a batch was written, with what has been found by verifications."""

    manifest: Manifest
    batch: Batch
    verified: Mapping[str, Consequence] = field(default_factory=dict)


QueryEvent = (
    QueriesForgotten
    | QueryAdded
    | QueryWithdrawn
    | QueryReplaced
    | ShadowBegun
    | ShadowSwitched
    | QueryDropped
    | QueryLeftOut
    | AddingRecorded
    | TextChanged
    | ErrorPolicySet
    | QueryStopped
    | QueryResumed
    | AdaptivityChanged
)
"""What happens to one query, or to all of them."""

Event = (
    QueryEvent
    | Opened
    | MigrationAsked
    | MigrationCancelled
    | VerifiedMigrationsBegun
    | Rebalanced
    | MoveCancelled
    | Rescaled
    | SlotsDecided
    | GroupSpread
    | GroupBroughtHome
    | Scheduled
    | SettingsChanged
    | CostsCorrected
    | StreamsArrive
    | Committed
)
