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
from typing import Any, TypeVar

from midstream.algebra.emission import emission_of
from midstream.algebra.plan import Relation, is_monotone
from midstream.checkpoint.manifest import Manifest, QueryEntry
from midstream.checkpoint.names import query_of, renamed_lane
from midstream.checkpoint.records import QueryAccount
from midstream.errors import JobError
from midstream.job.queries.running_query import RunningQuery
from midstream.job.queries.verdict import Verdict

T = TypeVar("T")

REPLACED = "replaced"
"""The status of a query of which only the results are left."""

Change = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Makes something else of what is known by query."""


def mapped(manifest: Manifest, change: Change) -> Manifest:
    """The manifest with all that it has by query changed in the same way."""
    by_query = ("queries", "accounts", "advanced_to", "released", "segments", "migration")
    parts: dict[str, Any] = {part: change(getattr(manifest, part)) for part in by_query}
    outputs = manifest.outputs
    changed = replace(outputs, results=change(outputs.results), listed=change(outputs.listed))
    return replace(manifest, **parts, outputs=changed)


def same_query(old: RunningQuery, new: RunningQuery) -> bool:
    """Whether two queries by the same plan are one and the same, state and all."""
    return (
        old.plan.physical.content == new.plan.physical.content
        and old.plan.query.schema.equals(new.plan.query.schema)
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
    return f"{name}@{manifest.batch_id + 1}"


def with_name_free(manifest: Manifest, name: str, cql: str, plan: str) -> Manifest:
    """The manifest in which a query goes by another name, so that another can take its own."""
    old, entry = name_of_old(manifest, name), manifest.queries[name]
    moved = mapped(manifest, lambda by_query: {renamed(q, name, old): value for q, value in by_query.items()})
    if (move := moved.slots.doubled) is not None:
        doubled = replace(move, queries={renamed(query, name, old): how for query, how in move.queries.items()})
        moved = replace(moved, slots=replace(moved.slots, doubled=doubled))
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


def renamed(lane: str, name: str, new: str) -> str:
    """What a lane is called if a query goes by another name."""
    return renamed_lane(lane, new) if query_of(lane) == name else lane


def with_archive(manifest: Manifest, before: Manifest | None, retired: Iterable[str]) -> Manifest:
    """The manifest with the results of replaced queries; those that just retire leave nothing else."""
    gone = [name for name in retired if name in manifest.queries]
    known = {} if before is None else before.queries
    kept = [name for name, entry in known.items() if entry.status == REPLACED and name not in manifest.queries]
    if not gone and not kept:
        return manifest
    past = before or manifest
    archived = {name: QueryAccount(results=manifest.account(name).results) for name in gone}
    archived |= {name: QueryAccount(results=past.account(name).results) for name in kept}
    return replace(
        manifest,
        queries={
            **manifest.queries,
            **{name: replace(manifest.queries[name], status=REPLACED) for name in gone},
            **_some(past.queries, kept),
        },
        accounts={**manifest.accounts, **archived},
        advanced_to=_some(manifest.advanced_to, manifest.advanced_to.keys() - gone),
        segments={name: held for name, held in manifest.segments.items() if query_of(name) not in gone},
        released={**manifest.released, **_some(past.released, kept)},
        outputs=replace(
            manifest.outputs,
            results={**manifest.outputs.results, **_some(past.outputs.results, kept)},
            listed={**manifest.outputs.listed, **_some(past.outputs.listed, kept)},
        ),
    )


def _some(by_query: Mapping[str, T], names: Collection[str]) -> dict[str, T]:
    return {name: value for name, value in by_query.items() if name in names}
