"""Queries of a stored job: what its manifest says of each, in values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from midstream.adaptation.plan_changes import PlanMemory
from midstream.checkpoint.inspect import stored_states, tick
from midstream.checkpoint.manifest import Manifest, QueryEntry
from midstream.checkpoint.names import REHEARSED, query_of
from midstream.checkpoint.packs import entries_in
from midstream.checkpoint.records import MigrationProgress
from midstream.checkpoint.stored import (
    VERIFYING,
    Knowledge,
    Period,
    PlanAlternative,
    StoredDecision,
    StoredMigration,
    StoredQuery,
)
from midstream.codec import read
from midstream.html import Records
from midstream.migration.corrections import Prediction
from midstream.migration.history import MeasuredCosts
from midstream.optimizer.plan_graph import graph_of_record, join_tree


def stored_query(manifest: Manifest, name: str, entry: QueryEntry) -> StoredQuery:
    """A query as of a manifest."""
    account = manifest.account(name)
    plan = account.graph or {}
    return StoredQuery(
        name,
        entry,
        account,
        tick(manifest.advanced_to.get(name)),
        tick(manifest.released.get(name)),
        graph_of_record(entry.plan, plan) if plan else join_tree(entry.plan),
        _knowledge(name, account.knowledge or {}, entry.time),
        _under_way(manifest, name, entry, plan),
        Records(past_migration(name, record, entry.time) for record in account.history),
        tuple(stored_states(manifest, name)),
        manifest.streams.waits.get(name),
        shared_with(manifest, name),
    )


def shared_with(manifest: Manifest, query: str) -> dict[str, int]:
    """How many rows of a query's state other queries keep too, by their names."""
    places: dict[str, dict[str, int]] = {}
    for part, stages in manifest.segments.items():
        held = places.setdefault(query_of(part), {})
        held.update({entry.place: entry.rows for entry in entries_in(stages)})
    own = places.pop(query, {})
    common = {name: sum(rows for place, rows in held.items() if place in own) for name, held in sorted(places.items())}
    return {name: rows for name, rows in common.items() if rows}


def _knowledge(name: str, kept: Mapping[str, Any], time: str) -> Knowledge:
    standing = read(PlanMemory, kept.get("plans", {})).changes.standing
    return Knowledge(
        kept.get("mode", "off"),
        Records(StoredDecision(name, **decision, time=time) for decision in kept.get("decisions", ())),
        tuple(PlanAlternative(text, own.gained, own.looks) for text, own in standing.items()),
        dict(kept.get("observed", {})),
    )


def _under_way(manifest: Manifest, name: str, entry: QueryEntry, plan: Mapping[str, Any]) -> StoredMigration | None:
    account = manifest.account(name)
    if account.plans.migration is not None:
        return _migration(name, entry.plan, account.plans.migration, entry.time, plan.get("target"))
    known = account.plans.local.items()
    going = [(slot, own.plan, own.migration) for slot, own in known if own.migration is not None]
    if going:  # of slots that go by themselves, those with the first one's plans
        _, old, first = going[0]
        slots = tuple(slot for slot, its, migration in going if (its, migration.plan) == (old, first.plan))
        return replace(_migration(name, old, first, entry.time), slots=slots)
    rehearsed = manifest.account(name + REHEARSED).plans.migration
    return None if account.verifying is None else _verifying(name, entry, account.verifying, rehearsed)


def _migration(
    name: str, old: str, known: MigrationProgress, time: str, target: Mapping[str, Any] | None = None
) -> StoredMigration:
    split, account = known.decision.get("split_after"), known.account
    return StoredMigration(
        name,
        old,
        known.plan,
        known.chosen,
        "ending" if known.done else "under way",
        known.trigger,
        known.decision.get("part"),
        Period(known.begun, None, None if split is None else split + 0.5, time),
        tuple(read(Prediction, p) for p in known.decision.get("predictions", ())),
        None if account is None else _figures(asdict(account), account.ended - account.started),
        graph_of_record(known.plan, target) if target else join_tree(known.plan),
    )


def _verifying(
    name: str, entry: QueryEntry, record: Mapping[str, Any], rehearsed: MigrationProgress | None
) -> StoredMigration:
    """A migration that a copy of the query goes through, or has gone through."""
    return StoredMigration(
        name,
        entry.plan,
        record["plan"],
        record["strategy"],
        VERIFYING,
        record["trigger"],
        None,
        Period(None if rehearsed is None else rehearsed.begun, time=entry.time),
        target=join_tree(record["plan"]),
        verified=record.get("differs") or {key: record.get(key) for key in ("since", "compared_to", "difference")},
    )


def past_migration(name: str, record: Mapping[str, Any], time: str) -> StoredMigration:
    """A migration, or another change, of a query as its history records it."""
    predicted = record.get("predicted")
    return StoredMigration(
        name,
        record["old_plan"],
        record["new_plan"],
        record["strategy"],
        record["status"],
        record["trigger"],
        record.get("part"),
        Period(record["start_batch"], record["end_batch"], record.get("split_time"), time),
        () if predicted is None else (read(Prediction, predicted),),
        None if "started_at" not in record else _figures(record, record["wall_seconds"]),
        note=_note(record),
        record=record,
        slots=tuple(record["slots"]) if "slots" in record else None,
        verified=record.get("verified"),
    )


def _note(record: Mapping[str, Any]) -> str:
    if record.get("event") == "started":
        shared = f"; shares state with {', '.join(record['shares'])}" if record["shares"] else ""
        return f"{record['complete']}{record['gap']}{shared}"
    difference = (record.get("verified") or {}).get("difference")
    if difference is None:
        return ""
    return f"{difference}; the new plan's results: {record['new_results']}" if "new_results" in record else difference


def _figures(record: Mapping[str, Any], seconds: float) -> MeasuredCosts:
    return MeasuredCosts(
        tick(record["started_at"]),
        tick(record["ended_at"]),
        round(seconds, 3),
        *(record[name] for name in ("batches", "processed_twice", "peak_extra_rows")),
        *(record[name] for name in ("longest_silence", "longest_silence_seconds")),
    )
