"""Plans that change while groups move by a protocol that sends their rows to two slots: what may go on at once.

While groups move, a query of one stage runs in tracks: the groups that stay, those that leave and those that come. A
track is an execution over the rows of its groups, and every strategy takes an execution to another plan without a
change in its results. So all tracks migrate alike, by one decision, and each still answers for its own side of the
split time. A track that comes to its slots while a migration is under way opens it with nothing in its states.

What leaves by PTLB has marks in its states. It needs no other plan, because it is forgotten when nothing old is left,
so it stays with the one it has, and the migration of the other tracks ends after the move. A migration that has begun
before such a move has states without a place for marks: the move waits for its end.

A query of several stages runs twice meanwhile, by the old routing and by the new one, each time in all its stages.
Where its plans are in the same stages, each of its fragments goes over to the other plan inside its tasks, in both.
Plans of other stages, or with other routes, run side by side in different slots. To do that once for each routing would
take four plans that answer for different times, so such a migration and a move wait for each other. A move waits for
any migration of several stages that has begun before it: the second of the two runs would have to begin in its midst.
"""

from __future__ import annotations

from midstream.checkpoint.manifest import Manifest
from midstream.errors import MigrationError
from midstream.job.doubling import Doubling
from midstream.job.plans.migration_choice import fit_tasks
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.moving_migrations import in_tasks
from midstream.migration.legality import keeps_intervals

SPLIT_TIME, PTLB = "split_time_balancing", "ptlb"

SHARED = "spread"
"""What stands for a protocol where several slots come to share a group."""


def holds_up(protocol: str, query: RunningQuery) -> str:
    """Why groups of a query cannot begin to move by a protocol as long as it migrates; empty if they can."""
    if query.migration is not None and query.migration.apart:
        return f"query {query.name} migrates between plans that lie in different slots"
    if query.migrates and len(query.staged.fragments) > 1:
        return f"query {query.name} migrates, and its plan has several stages"
    if any(not _same_form(own, own.migration.target) for own in _plans(query) if own.migration is not None):
        return f"query {query.name} migrates between plans of which one keeps the intervals of rows"
    if protocol == PTLB and in_tasks(query):
        return f"query {query.name} migrates, and its states have no place for marks"
    return ""


def held_up(doubling: Doubling | None, query: RunningQuery) -> str:
    """Why a query, whatever it is to go over to, cannot migrate before groups have moved; empty if it can."""
    if doubling is None or query.name not in doubling.queries or len(query.staged.fragments) == 1:
        return ""
    return f"groups move by {doubling.protocol} since batch {doubling.begun}, and its plan has several stages"


def not_together(protocol: str, query: RunningQuery, target: RunningQuery) -> str:
    """Why a query cannot begin to migrate in the batch in which groups begin to move by a protocol; empty if it can."""
    if protocol == SHARED:
        return "slots share no group while a query migrates"
    if len(query.staged.fragments) > 1 or not fit_tasks(query, target):
        return f"the plans of query {query.name} have several stages, or need rows in other slots"
    if protocol in (SPLIT_TIME, PTLB) and not _same_form(query, target):
        return f"query {query.name} migrates between plans of which one keeps the intervals of rows"
    return ""


def is_doubled(manifest: Manifest | None, query: RunningQuery) -> bool:
    """Whether groups of a query move to two slots."""
    return (
        manifest is not None and manifest.slots.doubled is not None and query.name in manifest.slots.doubled["queries"]
    )


def keeps_from(manifest: Manifest | None, query: RunningQuery, target: RunningQuery) -> str:
    """Why a query cannot go over to a plan before groups have moved; empty if it can."""
    record = None if manifest is None else manifest.slots.doubled
    if record is None or query.name not in record["queries"]:
        return ""
    if not _same_form(query, target):
        return "one of its plans keeps the intervals of rows, and the other does not"
    if not fit_tasks(query, target):
        return "its plans have different stages, or need rows in other slots"
    return ""


def require_both(manifest: Manifest | None, query: RunningQuery, target: RunningQuery) -> None:
    """Raises a MigrationError if a query cannot go over to a plan while its groups move."""
    reason = keeps_from(manifest, query, target)
    record = None if manifest is None else manifest.slots.doubled
    if not reason or record is None:
        return
    raise MigrationError(
        f"query {query.name} cannot go over to {target.plan.text or 'another plan'} while groups move "
        f"by {record['protocol']}, since batch {record['begun']}",
        detail=reason,
        hint="ask again once the groups have moved, as status says, or cancel the move",
    )


def _plans(query: RunningQuery) -> list[RunningQuery]:
    return [query, *query.local.values()]


def _same_form(query: RunningQuery, target: RunningQuery) -> bool:
    """Whether results of both plans are cut at the split time in one way: whole, or not."""
    return keeps_intervals(query.plan.physical) == keeps_intervals(target.plan.physical)
