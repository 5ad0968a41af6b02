"""What a request for another text of a query changes, and how both are compared before it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from midstream.algebra.declarations import Catalog
from midstream.algebra.time import ticks
from midstream.checkpoint.commands import ReplaceQuery
from midstream.errors import JobError, QueryError, query_in
from midstream.job.commands.adding import Adding
from midstream.job.commands.rewording import Replacement, Rewording, Text
from midstream.job.events import ShadowSwitched
from midstream.job.job import Job
from midstream.job.migrations.shadows import ShadowText, shadow_of
from midstream.job.queries.filling import Pace
from midstream.job.queries.running_query import Beginning
from midstream.job.queries.succession import can_wait, hands_on
from midstream.job.task.results import result_table
from midstream.language import parse
from midstream.language.over_queries import with_queries
from midstream.migration.verified import Stretch

Record = dict[str, Any]


def replacement(job: Job, command: ReplaceQuery, catalog: Catalog) -> Record:
    """What putting another text in a query's place would do."""
    changes = changes_by(job, command, catalog)
    if shadow_by(job, command, changes, catalog) is not None or is_paced(job, changes):
        paced = command.verify is None
        if paced:
            require_taken_after_old(job, changes)
        changes = [replace(change, verdict=change.verdict.behind_old(paced)) for change in changes]
    first, *readers = [change.to_json() for change in changes]
    return {**first, "readers": readers}


def is_paced(job: Job, changes: Sequence[Replacement]) -> bool:
    """Whether texts that change together run beside the old ones for some batches before all take places.

    That is while their windows are filled, and until the old ones have answered up to where they begin.
    """
    return is_much(job, changes) or any(
        change.new.begins.again or (change.verdict.gap and can_wait(change.freed, change.aside, change.new))
        for change in changes
    )


def require_taken_after_old(job: Job, changes: Sequence[Replacement]) -> None:
    """Refuses texts whose results sinks cannot take after those that the old texts give them until then.

    A sink that has had nothing yet is given results of the old text first.
    """
    for change in changes:
        old = result_table(query_in(job.queries, change.text.name).plan, None).schema
        job.deliveries.require_taken(change.text.name, result_table(change.new.plan, None).schema, old)


def is_much(job: Job, changes: Sequence[Replacement]) -> bool:
    """Whether more rows are to be given to texts that change together than with one batch.

    What nobody remembers is read at once: a text through which rows only pass has nothing to be filled.
    """
    most = Pace.of(job.manifest, ()).rows
    return most is not None and sum(change.verdict.given for change in changes if hands_on(change.new)) > most


def changes_by(job: Job, command: ReplaceQuery, catalog: Catalog) -> list[Replacement]:
    """What a request for another text changes: the query first, then those that read it."""
    begins = Beginning(command.incomplete == "withhold", rate=command.backfill_rate)
    old = query_in(job.queries, command.query)
    cql = with_queries(command.cql, catalog.queries, catalog.streams)
    text = Text(old.name, cql, parse(cql, catalog), command.plan, old.emit_every, old.share, begins)
    rewording = Rewording(job, Adding(job, catalog.functions), catalog)
    texts = rewording.with_readers(text)
    if command.backfill_rate is not None and command.verify is not None:
        why = f"query {old.name} cannot be filled from its sources: it is verified"
        raise JobError(why, hint="leave backfill_rate out")
    return rewording.changes(texts)


def shadow_by(job: Job, command: ReplaceQuery, changes: Sequence[Replacement], catalog: Catalog) -> ShadowText | None:
    """The text that a request has run beside a query to compare both, if it has; refuses what cannot be compared."""
    first, *readers = changes
    if command.verify is None:
        asked = [name for name in ("columns", "where", "then") if getattr(command, name) not in (None, "switch")]
        if asked:
            raise QueryError(f"{asked[0]} is about texts that are compared", hint="give verify, such as '1 hour', too")
        return None
    stopped = command.query in job.state.faults.stopped
    if readers or stopped or not first.verdict.ever_complete:
        why = "other queries read it" if readers else "it is in quarantine" if stopped else first.verdict.complete
        raise JobError(f"another text of query {command.query} cannot be verified: {why}", hint="leave verify out")
    Stretch(ticks(command.verify, first.new.plan.domain))  # refuses what is no stretch of time
    old = query_in(job.queries, command.query).plan
    return shadow_of(command, old, first.new.plan, first.text.cql, catalog.functions)


def switched(job: Job, name: str) -> Record:
    """What letting the other text of a query take its place would do."""
    job.state.after(ShadowSwitched(query_in(job.queries, name).name))
    known = job.state.verifications.by_query[name]
    assert known.shadow is not None
    return {"query": name, "cql": known.shadow.cql, "verified": known.found().to_json()}
