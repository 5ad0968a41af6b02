"""Migrations that are planned before a query runs, each for a moment of application time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from midstream.algebra.declarations import Catalog
from midstream.algebra.time import TimeDomain, ticks
from midstream.errors import MigrationError
from midstream.migration.in_part import way
from midstream.migration.registry import strategy_named
from midstream.optimizer.plans import Plan, plan_query


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A migration to start when the input's time reaches a tick."""

    at: int
    plan: Plan
    strategy: str
    part: str = "auto"
    verify: int | None = None


def planned_changes(
    plan: Plan, migrations: Sequence[Any], emit_every: int | None, catalog: Catalog
) -> list[PlannedChange]:
    """The wanted migrations in order of time, each checked against the plan that will run by then."""
    changes = []
    for wanted in sorted(migrations, key=lambda m: tick_of(m.at, plan.domain)):
        target = plan_query(plan.query, wanted.plan, emit_every)
        way(strategy_named(wanted.strategy), plan, target, catalog.functions, wanted.part)
        domain = plan.domain
        verify = None if wanted.verify is None else ticks(wanted.verify, domain)
        changes.append(PlannedChange(tick_of(wanted.at, domain), target, wanted.strategy, wanted.part, verify))
        plan = target
    return changes


def tick_of(at: int | dt.datetime, domain: TimeDomain) -> int:
    """A moment of application time as a tick."""
    if isinstance(at, dt.datetime) == domain.is_integer:
        wanted = "an integer" if domain.is_integer else "a datetime"
        raise MigrationError(f"a migration of this query starts at {wanted}, not at {at!r}")
    return at if isinstance(at, int) else pa.scalar(at, domain.output_type).value
