"""Plans that change while groups move to two slots: what may go on at once.

A query's lanes are a sequence in time, so a migration between plans in different slots and a move of groups open their
lanes one after the other. A migration inside tasks happens in each lane: a lane is an execution over the rows of its
groups, and every strategy takes an execution to another plan without a change in its results. So all lanes migrate
alike, by one decision, and each still answers for its own time. A lane that is opened meanwhile begins the migration
with nothing in its states.

What leaves by PTLB has marks in its states. It needs no other plan, because it is forgotten when nothing old is left,
so it stays with the one it has, and the migration of the other lanes ends after the move. A migration that has begun
before such a move has states without a place for marks: the move waits for its end. A move also waits for a migration
inside the tasks of several stages, and for one that moves state bit by bit.
"""

from __future__ import annotations

from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.records import DoubledMove
from midstream.distribution.move_legality import DOUBLED, PTLB
from midstream.errors import MigrationError
from midstream.job.plans.migration_choice import fit_tasks
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.moving_migrations import in_tasks
from midstream.migration.legality import keeps_intervals

SHARED = "spread"
"""What stands for a protocol where several slots come to share a group."""


def holds_up(protocol: str, query: RunningQuery) -> str:
    """Why groups of a query cannot begin to move by a protocol as long as it migrates; empty if they can."""
    migration = query.migration
    if migration is not None and migration.apart:
        waits = protocol == PTLB or migration.moves or migration.replays
        return f"query {query.name} migrates between plans that lie in different slots" if waits else ""
    if query.migrates and len(query.staged.fragments) > 1:
        return f"query {query.name} migrates, and its plan has several stages"
    if any(not _same_form(own, own.migration.target) for own in _plans(query) if own.migration is not None):
        return f"query {query.name} migrates between plans of which one keeps the intervals of rows"
    if protocol == PTLB and in_tasks(query):
        return f"query {query.name} migrates, and its states have no place for marks"
    return ""


def not_together(protocol: str, query: RunningQuery, target: RunningQuery) -> str:
    """Why a query cannot begin to migrate in the batch in which groups begin to move by a protocol; empty if it can."""
    if protocol == SHARED:
        return "slots share no group while a query migrates"
    if len(query.staged.fragments) > 1 or not fit_tasks(query, target):
        return f"the plans of query {query.name} have several stages, or need rows in other slots"
    if protocol in DOUBLED and not _same_form(query, target):
        return f"query {query.name} migrates between plans of which one keeps the intervals of rows"
    return ""


def move_of(manifest: Manifest | None, query: str) -> DoubledMove | None:
    """The move of groups of a query to two slots, if there is one."""
    move = None if manifest is None else manifest.slots.doubled
    return move if move is not None and query in move.queries else None


def keeps_from(manifest: Manifest | None, query: RunningQuery, target: RunningQuery) -> str:
    """Why a query cannot go over to a plan before groups have moved; empty if it can."""
    if move_of(manifest, query.name) is None or not fit_tasks(query, target) or _same_form(query, target):
        return ""
    return "one of its plans keeps the intervals of rows, and the other does not"


def require_both(manifest: Manifest | None, query: RunningQuery, target: RunningQuery) -> None:
    """Raises a MigrationError if a query cannot go over to a plan while its groups move."""
    reason, move = keeps_from(manifest, query, target), move_of(manifest, query.name)
    if reason and move is not None:
        raise MigrationError(
            f"query {query.name} cannot go over to {target.plan.text or 'another plan'} while groups move "
            f"by {move.protocol}, since batch {move.begun}",
            detail=reason,
            hint="ask again once the groups have moved, as status says, or cancel the move",
        )


def _plans(query: RunningQuery) -> list[RunningQuery]:
    return [query, *query.local.values()]


def _same_form(query: RunningQuery, target: RunningQuery) -> bool:
    """Whether results of both plans are cut at the split time in one way: whole, or not."""
    return keeps_intervals(query.plan.physical) == keeps_intervals(target.plan.physical)
