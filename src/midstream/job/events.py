"""What happens to a job: each change of its state is one of these, applied by `JobState.after`.

An event that is refused raises an error and leaves the state as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.adaptation.cost_corrections import Factors, with_trial
from midstream.adaptation.policy import Policy, mode_of
from midstream.algebra.statistics import Statistics
from midstream.checkpoint.manifest import Manifest
from midstream.distribution.fragments import Route, Routing
from midstream.errors import MidstreamError
from midstream.job.actions import RemoveSinks, Reprice, RetireSinks, Unwatch, Watch
from midstream.job.batch import Batch
from midstream.job.migrations.copies import without_copy
from midstream.job.migrations.migrating import (
    begin_verified,
    cancel_migration,
    let_shadows_take_places,
    switch_to_shadow,
)
from midstream.job.migrations.verifying import Consequence, Verification
from midstream.job.queries.faults import OnError
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.spreading import SpreadGroups
from midstream.job.state import Actions, Event, JobState


@dataclass(frozen=True, slots=True)
class Opened(Event):
    """A checkpoint was read: the job goes on from its newest manifest, with other slots if a number is given."""

    manifest: Manifest | None
    uri: str
    slots: int | None = None
    bits: int | None = None

    def happen(self, state: JobState) -> Actions:
        state.open(self.manifest, self.uri, self.slots, self.bits)
        return (Reprice(state.settings.costs),)


@dataclass(frozen=True, slots=True)
class QueriesForgotten(Event):
    """All queries are to be planned again."""

    def happen(self, state: JobState) -> Actions:
        state.forget_queries()
        return (Unwatch(None),)


@dataclass(frozen=True, slots=True)
class QueryAdded(Event):
    """A query runs from the next batch on; its streams arrive by the routes it was cut for."""

    query: RunningQuery

    def happen(self, state: JobState) -> None:
        state.queries[self.query.name] = self.query
        state.routes.update(self.query.staged.routes)


@dataclass(frozen=True, slots=True)
class QueryWithdrawn(Event):
    """A query that was planned is planned again."""

    query: str

    def happen(self, state: JobState) -> None:
        state.queries.pop(self.query, None)


@dataclass(frozen=True, slots=True)
class QueryReplaced(Event):
    """A query has another text: `manifest` has its results under another name.

    `old` runs under that name with the next batch, for the last time; None if its text has no meaning any more.
    """

    query: str
    aside: str
    manifest: Manifest
    old: RunningQuery | None

    def happen(self, state: JobState) -> Actions:
        state.replace_query(self.query, self.aside, self.manifest, self.old)
        return RetireSinks(self.query, self.manifest), Unwatch(self.query)


@dataclass(frozen=True, slots=True)
class ShadowBegun(Event):
    """Another text for a query runs beside it, as `shadow`, before it takes its place; `verification` compares them.

    The last manifest may still have an earlier text that ran beside the query and was cancelled after that batch.
    """

    query: str
    shadow: RunningQuery
    verification: Verification

    def happen(self, state: JobState) -> None:
        state.manifest = None if state.manifest is None else without_copy(state.manifest, self.query)
        state.faults.forget(self.shadow.name)
        state.queries[self.shadow.name] = self.shadow
        state.routes.update(self.shadow.staged.routes)
        state.verifications.begin(self.query, self.verification)


@dataclass(frozen=True, slots=True)
class ShadowSwitched(Event):
    """The other text of a query is to take its place with the next batch, whatever the comparison has found."""

    query: str

    def happen(self, state: JobState) -> None:
        switch_to_shadow(state, self.query)


@dataclass(frozen=True, slots=True)
class QueryDropped(Event):
    """A query has ended; the next manifest is without it."""

    query: str

    def happen(self, state: JobState) -> Actions:
        state.drop(self.query)
        return RemoveSinks(self.query), Unwatch(self.query)


@dataclass(frozen=True, slots=True)
class QueryLeftOut(Event):
    """A query that the checkpoint runs, and that is not declared any more, is not to run; `manifest` is without it."""

    manifest: Manifest

    def happen(self, state: JobState) -> None:
        state.leave_out(self.manifest)


@dataclass(frozen=True, slots=True)
class AddingRecorded(Event):
    """A query was added by request; the next manifest says with which settings."""

    query: str
    settings: Mapping[str, Any]

    def happen(self, state: JobState) -> None:
        state.added[self.query] = self.settings
        state.texts.pop(self.query, None)


@dataclass(frozen=True, slots=True)
class TextChanged(Event):
    """A query that is declared has another text by request, or was dropped; the next manifest says so."""

    query: str
    declared: str
    now: str | None = None

    def happen(self, state: JobState) -> None:
        state.texts[self.query] = (self.declared, self.now)


@dataclass(frozen=True, slots=True)
class ErrorPolicySet(Event):
    """A query does something else about values that it cannot work with."""

    query: str
    policy: OnError

    def happen(self, state: JobState) -> None:
        state.faults.policies[self.query] = self.policy


@dataclass(frozen=True, slots=True)
class QueryStopped(Event):
    """A value has put a query in quarantine."""

    query: str
    batch: int
    error: MidstreamError

    def happen(self, state: JobState) -> None:
        """A migration of it that has not begun is over, as its history says."""
        migration = state.queries[self.query].migration
        if migration is not None and migration.begun is None:
            cancel_migration(state, self.query)
            state.faults.tell(self.query, *state.cancelled.pop(self.query))
        state.faults.stop(self.query, self.batch, self.error)


@dataclass(frozen=True, slots=True)
class QueryResumed(Event):
    """A query in quarantine goes on with the next batch; the rows in between are left out for it."""

    query: str

    def happen(self, state: JobState) -> None:
        state.faults.resume(self.query)


@dataclass(frozen=True, slots=True)
class AdaptivityChanged(Event):
    """A query adapts in another mode; `policy` is how it did so far, None if it did not."""

    query: str
    mode: str
    policy: Policy | None = None

    def happen(self, state: JobState) -> Actions:
        state.modes[self.query] = mode_of(self.mode)
        now = state.policy_for(self.query, self.policy)
        return (Unwatch(self.query), *(() if now is None else (Watch(self.query, now),)))


@dataclass(frozen=True, slots=True)
class MigrationCancelled(Event):
    """A query goes back to its old plan with the next batch, or stays with its text; its history says why."""

    query: str
    why: str = ""

    def happen(self, state: JobState) -> None:
        cancel_migration(state, self.query, self.why)


@dataclass(frozen=True, slots=True)
class VerifiedMigrationsBegun(Event):
    """Queries whose migrations were verified go through them; `observed` is what is known of their streams."""

    observed: Mapping[str, Statistics] = field(default_factory=dict)

    def happen(self, state: JobState) -> Actions:
        placed, manifest = let_shadows_take_places(state), state.manifest
        begin_verified(state, self.observed)
        retired = [RetireSinks(name, manifest) for name in placed if manifest is not None]
        return (*retired, *(Watch(name, None) for name in placed))


@dataclass(frozen=True, slots=True)
class Rebalanced(Event):
    """Groups are to be dealt to slots as `routing` says, or evenly by what they have had to do.

    With a `key_class` those of its exchanges move alone.
    """

    routing: Sequence[int] | None
    trigger: str = "asked for"
    protocol: str = "mslb"
    key_class: str = ""

    def happen(self, state: JobState) -> None:
        state.rebalance(self.routing, self.trigger, self.protocol, self.key_class)


@dataclass(frozen=True, slots=True)
class MoveCancelled(Event):
    """Groups whose rows go to two slots, or that wait for another slot, stay where they were."""

    trigger: str = "asked for"

    def happen(self, state: JobState) -> None:
        state.cancel_move(self.trigger)


@dataclass(frozen=True, slots=True)
class Rescaled(Event):
    """Groups are to be dealt to another number of slots."""

    slots: int
    trigger: str = "asked for"

    def happen(self, state: JobState) -> None:
        state.rescale(self.slots, self.trigger)


@dataclass(frozen=True, slots=True)
class SlotsDecided(Event):
    """The job has decided by itself how groups are to be dealt (None: as they are), and which slots are to share."""

    routing: Routing | None
    spread: SpreadGroups

    def happen(self, state: JobState) -> None:
        state.wanted = self.routing or state.wanted
        state.spread = self.spread


@dataclass(frozen=True, slots=True)
class Scheduled(Event):
    """Operators run in another order from the next batch on."""

    scheduling: str

    def happen(self, state: JobState) -> None:
        state.settings = replace(state.settings, scheduling=self.scheduling)


@dataclass(frozen=True, slots=True)
class SettingsChanged(Event):
    """Settings that the next manifest is to have, by name."""

    changes: Mapping[str, Any]

    def happen(self, state: JobState) -> None:
        state.settings = replace(state.settings, **self.changes)


@dataclass(frozen=True, slots=True)
class CostsCorrected(Event):
    """A trial has found by what the constants are to be multiplied that plans are weighed by; nothing: as at first."""

    factors: Factors

    def happen(self, state: JobState) -> Actions:
        costs = with_trial(state.settings.costs, self.factors)
        state.settings = replace(state.settings, costs=costs)
        return (Reprice(costs),)


@dataclass(frozen=True, slots=True)
class StreamsArrive(Event):
    """Streams that have no route yet arrive by these."""

    routes: Mapping[str, Route]

    def happen(self, state: JobState) -> None:
        state.routes = {**self.routes, **state.routes}


@dataclass(frozen=True, slots=True)
class Committed(Event):
    """The manifest of a batch was written, with what has been found by verifications."""

    manifest: Manifest
    batch: Batch
    verified: Mapping[str, Consequence] = field(default_factory=dict)

    def happen(self, state: JobState) -> None:
        state.committed(self.manifest, self.batch, self.verified)
