"""The migrations that watchers have decided on, as events: they begin with the next batch, if they still can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from midstream.checkpoint.names import copy_name
from midstream.job.events import MigrationAsked
from midstream.job.queries.running_query import RunningQuery
from midstream.job.state import JobState
from midstream.job.watchers import Watchers
from midstream.optimizer.plans import plan_query


def wishes(watchers: Watchers, state: JobState) -> Iterator[MigrationAsked]:
    """What queries, and slots of them, are to go over to."""
    for name, watcher in watchers.by_query.items():
        if name not in state.queries or name in state.faults.stopped:
            continue
        query, wish = state.queries[name], watcher.wish
        if query.migration is not None:
            continue
        if wish is not None and copy_name(name) not in state.queries and query.plan.text == wish["plan"]:
            yield _asked(state, query, wish, verify=watcher.adaptive.verify, observed=watcher.observed)
        for slot, wanted in watcher.slot_wishes.items():
            own = query.in_slot(slot)
            if slot < state.slots and own.migration is None and own.plan.text == wanted["plan"]:
                yield _asked(state, query, wanted, slots=[slot], observed=watcher.observed)


def _asked(state: JobState, query: RunningQuery, wish: Mapping[str, Any], **more: Any) -> MigrationAsked:
    target = state.target(query, plan_query(query.plan.query, wish["target"], query.emit_every))
    return MigrationAsked(query.name, target, wish["strategy"], wish["reason"], **more)
