"""What a job has to do: flows (`flow.py`) say which, one after the other, and `Job` carries them out."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from midstream.adaptation.policy import Policy
from midstream.checkpoint.manifest import Manifest
from midstream.distribution.fragments import Routing
from midstream.job.batch import Batch
from midstream.job.queries.backfill import ReadAgain as ReadAgain
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.moving import Move
from midstream.job.slots.spreading import SpreadGroups


@dataclass(frozen=True, slots=True)
class MoveState:
    """Move state between slots; the answer is every slot's reports, and the seconds they took."""

    move: Move


@dataclass(frozen=True, slots=True)
class RunSteps:
    """Run the steps of a batch over its rows; the answer is every slot's reports, and the seconds they took."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Decide:
    """Have those who watch queries and slots see a batch that was run; the answer is a `Decided`."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided after a batch: `knowledge` is what manifests keep of the adaptivity of queries.

    Groups are to be dealt by `routing`, and shared as `spread` says, if these are given. `slot_decisions` are those
    about slots, None if nobody decides, and `deciding` is what the deciders remember.
    """

    knowledge: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    routing: Routing | None = None
    spread: SpreadGroups | None = None
    slot_decisions: Sequence[Mapping[str, Any]] | None = None
    deciding: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompareResults:
    """Compare the results of queries with those of their copies.

    The answer is the manifest with what was found, and what follows once it is committed, by query.
    """

    manifest: Manifest
    queries: Mapping[str, RunningQuery]


@dataclass(frozen=True, slots=True)
class Commit:
    """Write the manifest of a batch; the answer is the manifest as it was written."""

    batch: Batch
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Collect:
    """Remove what no manifest names any more."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class CallSinks:
    """Give sinks what a manifest has released and they have not had."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Watch:
    """Watch a query, by a policy; None: by the one that what went by its name was watched by, if it was."""

    query: str
    policy: Policy | None


@dataclass(frozen=True, slots=True)
class Unwatch:
    """Watch a query no more; None stands for all."""

    query: str | None


@dataclass(frozen=True, slots=True)
class Reprice:
    """Weigh plans by constants that trials have corrected."""

    costs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RemoveSinks:
    """Call the sinks of a query no more."""

    query: str


@dataclass(frozen=True, slots=True)
class RetireSinks:
    """Say what the sinks of a query have not had that another takes the place of, as a manifest has it."""

    query: str
    manifest: Manifest


Action = (
    MoveState
    | ReadAgain
    | RunSteps
    | Decide
    | CompareResults
    | Commit
    | Collect
    | CallSinks
    | Watch
    | Unwatch
    | Reprice
    | RemoveSinks
    | RetireSinks
)

T = TypeVar("T")
Flow = Generator[Any, Any, T]
"""Yields actions, and events for the job's state; is sent the answer to each, and the new state after an event."""
