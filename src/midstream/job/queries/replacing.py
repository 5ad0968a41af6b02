"""Another text for a query that a checkpoint knows: the same query, or one that takes its place.

Two texts are the same query if, by the plan that runs, both compute the same content under the same column names, keep
the same states by the same keys, and have their rows in the same slots: then everything goes on, and only the text is
new. A query that takes another's place starts as any new one does. For the batch that it comes with, the old one still
runs beside it under another name, so that it can start with what follows from the old one's windows; after that the old
one's state goes, and its results stay readable under that name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from midstream.adaptation.cost_corrections import Factors, with_trial
from midstream.algebra.emission import emission_of
from midstream.algebra.plan import Relation, is_monotone
from midstream.checkpoint.lease import Lease
from midstream.checkpoint.manifest import REPLACED, Manifest, QueryEntry, of_our_own
from midstream.checkpoint.names import copy_name, is_rehearsal, query_of, renamed_lane, replaced_name
from midstream.checkpoint.records import QueryAccount
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError, MidstreamError, query_in
from midstream.job.queries.faults import QUARANTINED, resumed
from midstream.job.queries.running_query import RunningQuery
from midstream.job.queries.verdict import Verdict


def same_query(old: RunningQuery, new: RunningQuery) -> bool:
    """Whether two queries by the same plan are one and the same, state and all."""
    return (
        old.plan.physical.content == new.plan.physical.content
        and old.plan.schema.equals(new.plan.schema)
        and type(old.plan.query) is type(new.plan.query)
        and old.plan.emission == new.plan.emission
        and _kept_by(old) == _kept_by(new)
        and old.staged.routes == new.staged.routes
    )


def _kept_by(query: RunningQuery) -> list[tuple[int, str, tuple[str, ...], tuple[str, ...]]]:
    return sorted(
        (number, state.id, state.key, tuple(map(str, state.schema)))
        for number, box in query.boxes.items()
        for state in box.states()
    )


def refusal(name: str, old_text: str, verdict: Verdict) -> JobError:
    """Says that a text cannot be changed just so."""
    return JobError(
        f"query {name} has another text than in the checkpoint, and it is not the same query in other words",
        detail=f"there it is: {old_text}; if it were replaced: {verdict}",
        hint="run with --replace (session.query(..., replace=True)) to replace it, or give it another name",
    )


def emits_alike(relation: Relation, entry: QueryEntry, every: int | None) -> bool:
    """Whether the results of a query of the same text are cut at the same instants as those that it has given.

    A grid that changed would answer for some slices twice, or never; only a monotone query answers without one.
    """
    return is_monotone(relation) or emission_of(relation, entry.emit_every) == emission_of(relation, every)


def other_emission(name: str, relation: Relation, old: int | None, new: int | None) -> JobError:
    """Says that results cannot be cut at other instants just so."""
    before, after = (emission_of(relation, every).grid.longest_slide for every in (old, new))
    return JobError(
        f"query {name} has another emit_every than in the checkpoint",
        detail=f"it answers every {before} ticks there, and would every {after}: slices would be given twice or never",
        hint="keep emit_every, or run with --replace (session.query(..., replace=True)) to restart the query",
    )


def name_of_old(manifest: Manifest, name: str) -> str:
    """The name under which a replaced query's results stay readable."""
    return replaced_name(name, manifest.batch_id + 1)


def with_name_free(manifest: Manifest, name: str, cql: str, plan: str) -> Manifest:
    """The manifest in which a query goes by another name, so that another can take its own."""
    old, entry = name_of_old(manifest, name), manifest.queries[name]
    moved = under_other_name(manifest, name, old)
    past = manifest.account(name)
    record = {
        "trigger": "another text",
        "old_plan": entry.plan,
        "new_plan": plan,
        "old_text": entry.cql,
        "new_text": cql,
        "strategy": "replace",
        "start_batch": manifest.batch_id + 1,
        "end_batch": manifest.batch_id + 1,
        "status": "done",
        "old_results": old,
    }
    kept = QueryAccount(past.identity, past.results, history=past.history, sharing=past.sharing, removed=past.removed)
    accounts = {**moved.accounts, old: kept, name: QueryAccount(history=[*past.history, record])}
    return replace(moved, accounts=accounts)


def under_other_name(manifest: Manifest, name: str, new: str) -> Manifest:
    """The manifest in which a query goes by another name."""

    def renamed(known: Mapping[str, Any]) -> dict[str, Any]:
        return {renamed_lane(lane, new) if query_of(lane) == name else lane: own for lane, own in known.items()}

    return manifest.mapped(renamed)


def with_archive(manifest: Manifest, before: Manifest | None, retired: Iterable[str]) -> Manifest:
    """The manifest with the results of replaced queries; those that just retire leave nothing else."""
    manifest = manifest.without({name for name in retired if is_rehearsal(name)})
    known = {} if before is None else before.queries
    kept = {name for name, entry in known.items() if entry.status == REPLACED and name not in manifest.queries}
    gone = {name for name in retired if name in manifest.queries}
    if before is not None:
        manifest = manifest.with_queries_of(before, kept)
    return with_results_only(manifest, gone)


def with_results_only(manifest: Manifest, queries: Collection[str]) -> Manifest:
    """The manifest with nothing but their results of some queries, which are replaced."""

    def others(known: Mapping[str, Any]) -> dict[str, Any]:
        return {name: own for name, own in known.items() if query_of(name) not in queries}

    replaced = {name: replace(manifest.queries[name], status=REPLACED) for name in queries}
    accounts = {name: manifest.account(name) for name in queries}
    left = {name: QueryAccount(own.identity, own.results, removed=own.removed) for name, own in accounts.items()}
    return replace(
        manifest,
        queries={**manifest.queries, **replaced},
        accounts={**manifest.accounts, **left},
        advanced_to=others(manifest.advanced_to),
        segments=others(manifest.segments),
    )


RUNNING = "running"

ALIVE = (RUNNING, QUARANTINED)
"""The states of queries that the job still has."""


def undeclared(manifest: Manifest | None, declared: Collection[str]) -> dict[str, QueryEntry]:
    """The queries that a checkpoint runs and nobody has declared."""
    known = {} if manifest is None else manifest.queries
    return {name: entry for name, entry in known.items() if entry.status in ALIVE and name not in declared}


def cannot_go_on(name: str, entry: QueryEntry, error: MidstreamError) -> JobError:
    """Says that a query of the checkpoint is declared no longer, and cannot go on as it is either."""
    return JobError(
        f"query {name} of the checkpoint is no longer declared and cannot continue: {error.message}",
        detail=f"it is: {entry.cql}; rows that it does not see would be missing in its results",
        hint=f"declare what it needs, or end it by name: --drop {name}, or midstream drop CHECKPOINT {name}",
    )


def without_query(manifest: Manifest, name: str) -> Manifest:
    """The manifest without a query, or without the results of one that was replaced."""
    query_in(manifest.queries, name)
    # A migration's new plan, and a copy by which it is verified, are under the query's name with a sign after it.
    gone = (name, copy_name(name))
    left = manifest.without(gone)
    if manifest.queries[name].status not in ALIVE or manifest.account(name).added is not None:
        return left
    declared, _ = left.asked.texts.get(name, (manifest.queries[name].cql, None))
    return replace(left, asked=replace(left.asked, texts={**left.asked.texts, name: (declared, None)}))


def drop_at_rest(store: CheckpointStore, name: str) -> Manifest:
    """Drops a query of a job that does not run; fails if one does."""
    return _changed_at_rest(store, lambda manifest: without_query(manifest, name))


def resume_at_rest(store: CheckpointStore, name: str) -> Manifest:
    """Takes a query of a job that does not run out of quarantine; fails if one does."""
    return _changed_at_rest(store, lambda manifest: resumed(manifest, name))


def correct_at_rest(store: CheckpointStore, factors: Factors) -> Manifest:
    """Corrects the cost constants of a job that does not run by what a trial has found; fails if one does."""

    def change(manifest: Manifest) -> Manifest:
        return replace(
            manifest, settings=replace(manifest.settings, costs=with_trial(manifest.settings.costs, factors))
        )

    return _changed_at_rest(store, change)


def _changed_at_rest(store: CheckpointStore, change: Callable[[Manifest], Manifest]) -> Manifest:
    with Lease.take(store.files, above=store.epoch()) as lease:
        manifest = store.latest()
        if manifest is None:
            raise JobError(
                f"no batch is done at {store.uri}", hint="is this the checkpoint that the job was started with?"
            )
        made = replace(of_our_own(manifest, change(manifest)), epoch=lease.number)
        store.commit(made)
        return made
