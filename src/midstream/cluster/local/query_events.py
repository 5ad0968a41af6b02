"""What happened to a query in memory, in the values that checkpoints give too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from midstream.checkpoint.inspect import tick
from midstream.checkpoint.stored import Forecast, MigrationFigures, Period, StoredMigration
from midstream.migration.history import MigrationRecord
from midstream.optimizer.plans import Plan


def event_of(query: str, plan: Plan, event: Mapping[str, Any]) -> StoredMigration:
    """A query's start, its end, or that it shares nothing any more."""
    with_whom = ", ".join(event.get("shares") or event.get("shared") or ())
    note = f"shares {with_whom}" if event.get("shares") else f"shared {with_whom}" if with_whom else ""
    kind = str(event["event"])
    return StoredMigration(
        query, "", plan.text, "", kind, kind, None, Period(time=_time(plan)), note=note, record=event
    )


def migration_of(query: str, plan: Plan, record: MigrationRecord) -> StoredMigration:
    """A migration after its end."""
    figures = MigrationFigures(
        tick(record.started_at),
        tick(record.ended_at),
        record.wall_seconds,
        record.batches,
        record.processed_twice,
        record.peak_extra_rows,
        record.longest_silence,
        record.longest_silence_seconds,
    )
    names = ("strategy", "duration", "work", "rows", "silence", "ranges")
    forecasts = () if record.predicted is None else (Forecast(*(record.predicted[name] for name in names)),)
    return StoredMigration(
        query,
        record.old_plan,
        record.new_plan,
        record.strategy,
        record.outcome,
        record.trigger,
        record.part,
        Period(split_time=record.split_time, time=_time(plan)),
        forecasts,
        figures,
        record={"event": "migrated", "record": record, **record.as_dict()},
        verified=None if record.verified is None else record.verified.to_json(),
    )


def _time(plan: Plan) -> str:
    return "integer" if plan.query.domain.is_integer else "timestamp"
