"""What happened to a query in memory, in the values that checkpoints give too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from midstream.checkpoint.inspect import tick
from midstream.checkpoint.stored import Forecast, MigrationFigures, StoredMigration
from midstream.migration.history import MigrationRecord
from midstream.optimizer.plans import Plan


def event_of(query: str, plan: Plan, event: Mapping[str, Any]) -> StoredMigration:
    """A query's start, its end, or that it shares nothing any more."""
    with_whom = ", ".join(event.get("shares") or event.get("shared") or ())
    note = f"shares {with_whom}" if event.get("shares") else f"shared {with_whom}" if with_whom else ""
    kind = str(event["event"])
    return StoredMigration(
        query, "", plan.text, "", kind, kind, None, None, None, note=note, time=_time(plan), record=event
    )


def migration_of(query: str, plan: Plan, told: MigrationRecord) -> StoredMigration:
    """A migration after its end."""
    figures = MigrationFigures(
        tick(told.started_at),
        tick(told.ended_at),
        told.wall_seconds,
        told.batches,
        told.processed_twice,
        told.peak_extra_rows,
        told.longest_silence,
        told.longest_silence_seconds,
    )
    names = ("strategy", "duration", "work", "rows", "silence")
    forecasts = () if told.predicted is None else (Forecast(*(told.predicted[name] for name in names)),)
    return StoredMigration(
        query,
        told.old_plan,
        told.new_plan,
        told.strategy,
        told.outcome,
        told.trigger,
        told.part,
        None,
        None,
        told.split_time,
        forecasts,
        figures,
        time=_time(plan),
        record={"event": "migrated", "record": told, **told.as_dict()},
        verified=None if told.verified is None else told.verified.to_json(),
    )


def _time(plan: Plan) -> str:
    return "integer" if plan.query.domain.is_integer else "timestamp"
