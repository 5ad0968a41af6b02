"""How events change a job: a state and an event give the next state, and what is to be done besides.

Nothing else changes a state. An event works on a copy, so one that is refused leaves the state as it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from midstream.adaptation.cost_corrections import with_trial
from midstream.adaptation.policy import mode_of
from midstream.errors import MidstreamError
from midstream.job.actions import Action, RemoveSinks, Reprice, RetireSinks, Unwatch, Watch
from midstream.job.events import (
    AdaptivityChanged,
    AddingRecorded,
    Committed,
    CostsCorrected,
    ErrorPolicySet,
    Event,
    GroupBroughtHome,
    GroupSpread,
    MigrationAsked,
    MigrationCancelled,
    MoveCancelled,
    Opened,
    QueriesForgotten,
    QueryAdded,
    QueryDropped,
    QueryEvent,
    QueryLeftOut,
    QueryReplaced,
    QueryResumed,
    QueryStopped,
    QueryWithdrawn,
    Rebalanced,
    Rescaled,
    Scheduled,
    SettingsChanged,
    ShadowBegun,
    ShadowSwitched,
    SlotsDecided,
    StreamsArrive,
    TextChanged,
    VerifiedMigrationsBegun,
)
from midstream.job.migrations.migrating import (
    begin_migration,
    begin_verified,
    cancel_migration,
    let_shadows_take_places,
    switch_to_shadow,
)
from midstream.job.state import JobState


def after(state: JobState, event: Event) -> tuple[JobState, tuple[Action, ...]]:
    """The state after an event, and what the job is to do; raises an error if the event is refused."""
    state = state.copy()
    match event:
        case Committed(manifest, batch, verified):
            state.committed(manifest, batch, verified)
        case Opened(manifest, uri, slots, bits):
            state.open(manifest, uri, slots, bits)
            return state, (Reprice(state.settings.costs),)
        case MigrationAsked():
            begin_migration(state, event)
        case MigrationCancelled(name, why):
            cancel_migration(state, name, why)
        case VerifiedMigrationsBegun(observed):
            placed = let_shadows_take_places(state)
            begin_verified(state, observed)
            manifest = state.manifest
            retired = [RetireSinks(name, manifest) for name in placed if manifest is not None]
            return state, (*retired, *(Watch(name, None) for name in placed))
        case Rebalanced(routing, trigger, protocol, key_class):
            state.rebalance(routing, trigger, protocol, key_class)
        case MoveCancelled(trigger):
            state.cancel_move(trigger)
        case Rescaled(slots, trigger):
            state.rescale(slots, trigger)
        case SlotsDecided(decided, spread):
            state.wanted = decided or state.wanted
            state.spread = spread
        case GroupSpread(group):
            state.spread.ask(group)
        case GroupBroughtHome(number):
            state.spread.end(number)
        case Scheduled(scheduling):
            state.settings = replace(state.settings, scheduling=scheduling)
        case SettingsChanged(changes):
            state.settings = replace(state.settings, **changes)
        case CostsCorrected(factors):
            costs = with_trial(state.settings.costs, factors)
            state.settings = replace(state.settings, costs=costs)
            return state, (Reprice(costs),)
        case StreamsArrive(routes):
            state.routes = {**routes, **state.routes}
        case _:
            return state, _of_query(state, event)
    return state, ()


def _of_query(state: JobState, event: QueryEvent) -> tuple[Action, ...]:
    """What happens to one query, or to all of them."""
    match event:
        case QueryAdded(query):
            state.queries[query.name] = query
            state.routes.update(query.staged.routes)
        case QueryDropped(name):
            state.drop(name)
            return RemoveSinks(name), Unwatch(name)
        case QueryWithdrawn(name):
            state.queries.pop(name, None)
        case QueriesForgotten():
            state.forget_queries()
            return (Unwatch(None),)
        case QueryReplaced(name, aside, manifest, old):
            state.replace_query(name, aside, manifest, old)
            return RetireSinks(name, manifest), Unwatch(name)
        case ShadowBegun(name, shadow, verification):
            state.faults.forget(shadow.name)
            state.queries[shadow.name] = shadow
            state.routes.update(shadow.staged.routes)
            state.verifications.begin(name, verification)
        case ShadowSwitched(name):
            switch_to_shadow(state, name)
        case QueryLeftOut(manifest):
            state.leave_out(manifest)
        case AddingRecorded(name, settings):
            state.added[name] = settings
            state.texts.pop(name, None)
        case TextChanged(name, declared, text):
            state.texts[name] = (declared, text)
        case ErrorPolicySet(name, policy):
            state.faults.policies[name] = policy
        case QueryStopped(name, batch, error):
            _stop(state, name, batch, error)
        case QueryResumed(name):
            state.faults.resume(name)
        case AdaptivityChanged(name, mode, so_far):
            state.modes[name] = mode_of(mode)
            now = state.policy_for(name, so_far)
            return (Unwatch(name), *(() if now is None else (Watch(name, now),)))
        case _:
            assert_never(event)
    return ()


def _stop(state: JobState, name: str, batch_id: int, error: MidstreamError) -> None:
    """Puts a query in quarantine; a migration that has not begun is over, as its history says."""
    migration = state.queries[name].migration
    if migration is not None and migration.begun is None:
        cancel_migration(state, name)
        state.faults.news.setdefault(name, []).extend(state.cancelled.pop(name))
    state.faults.stop(name, batch_id, error)
