"""A continuous query of a session, as its user sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from midstream.adaptation.cost_corrections import costs_text
from midstream.algebra.physical import render_physical
from midstream.algebra.statistics import UNKNOWN, Statistics
from midstream.algebra.time import BEGINNING, ticks
from midstream.checkpoint.metrics import metrics_of
from midstream.checkpoint.plotting import plot_batches
from midstream.checkpoint.stored import StoredDecision, StoredMigration
from midstream.checkpoint.stored_queries import past_migration, shared_with
from midstream.checkpoint.stored_results import valid_now
from midstream.checkpoint.subscriptions import Subscription
from midstream.cluster.continuous_query import ContinuousQuery
from midstream.cluster.run import Enrolment
from midstream.errors import MigrationError
from midstream.html import Records
from midstream.inputs import Duration
from midstream.job.commands.accounts import decisions_of, history_of, statistics_of
from midstream.job.commands.forecast import migration_text, moved_text
from midstream.job.events import ShadowSwitched
from midstream.job.job import Job
from midstream.job.outputs.results import results_of_query
from midstream.job.plans.local_plans import SlotPlans, explained, migrating_to, plans_by_slot
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.class_dealing import dealt_apart
from midstream.optimizer.growth import growth
from midstream.optimizer.plans import Plan


class Query(ContinuousQuery):
    """A continuous query of a session."""

    def __init__(self, enrolment: Enrolment, name: str) -> None:
        self._enrolment = enrolment
        self.name = name

    @property
    def _job(self) -> Job:
        return self._enrolment.job

    @property
    def _running(self) -> RunningQuery:
        return self._enrolment.query(self.name)

    @property
    def cql(self) -> str:  # type: ignore[override]
        """Its text."""
        return self._running.cql

    @property
    def plan(self) -> Plan | SlotPlans:  # type: ignore[override]
        """The plan that runs; the plan of each slot where they differ."""
        running = self._running
        return SlotPlans(self.plans) if running.local else running.plan

    @property
    def plans(self) -> dict[int, Plan]:
        """The plan that each slot runs."""
        return plans_by_slot(self._running, self._job.state.slots)

    @property
    def quarantine(self) -> dict[str, Any] | None:
        """Why and since which batch it takes in nothing; None if it is at work."""
        fault = self._job.state.faults.stopped.get(self.name)
        return None if fault is None else asdict(fault)

    def resume(self) -> None:
        """Goes on with the next batch, as if the rows since it was stopped had never come."""
        self._job.resume(self.name)

    def explain(self) -> str:
        """The plan in fragments, as it runs; every plan with its slots where they differ."""
        running, job, known = self._running, self._job, self._enrolment.catalog.streams
        selected = self._enrolment.run.backend.explanation(job, [known[name] for name in sorted(running.streams)])
        warnings = [f"Warning: {sentence}" for sentence in growth(running.plan.physical)]
        moved = moved_text(job, running)
        apart = dealt_apart(running, job.state.routing)
        costs = [costs_text(job.state.settings.costs)] if job.state.settings.costs else []
        parts = [explained(running, job.state.slots), *selected, *self._shared(), *apart, *moved, *costs, *warnings]
        return "\n".join(parts)

    def _drawn(self) -> str:
        different = {plan.text: plan for plan in self.plans.values()}
        return "\n\n".join(render_physical(plan.physical) for plan in different.values())

    def _shared(self) -> list[str]:
        manifest = self._job.manifest
        common = shared_with(manifest, self.name) if manifest else {}
        return [f"Keeps {rows:,} rows of state together with {other}" for other, rows in common.items()]

    def migrate(
        self,
        plan: Plan | str,
        strategy: str = "auto",
        *,
        part: str = "auto",
        trigger: str = "asked for",
        slots: Sequence[int] | None = None,
        queue: bool = False,
        verify: Duration | None = None,
    ) -> None:
        """Goes over to another plan, beginning with the next batch, while results keep coming.

        With `slots` only these do, each by itself; plans with the same stages and routes may differ from slot to slot.

        Only the part in which the plans differ migrates, unless `part` is "whole". A named strategy must be legal for
        both plans; with the part "smallest" it is enough that it is legal for the part, as it is for "auto".

        With `verify`, a duration of stream time, a copy of the query migrates first and runs on beside it for so long.
        What both release is compared snapshot by snapshot. The query goes over only if nothing differs; otherwise it
        stays, and its history names the first instant that differs, and where the new plan's results are.
        """
        if queue:
            raise MigrationError(
                "migrations of a job do not queue", hint="wait for the end of the one that is under way, or cancel it"
            )
        stretch = None if verify is None else ticks(verify, self._running.plan.domain)
        self._enrolment.migrate(self.name, plan, strategy, trigger, part, slots, stretch)

    def explain_migration(self, plan: Plan | str, *, part: str = "auto", preference: str = "least_silence") -> str:
        """Which part of the plan would migrate to another one, and what each strategy is predicted to take."""
        return migration_text(self._job, self._running, plan, part, preference)

    def cancel_migration(self) -> None:
        """Goes back to the plan before the migration under way, with the next batch; nothing is lost or doubled."""
        self._job.cancel_migration(self.name)

    def switch(self) -> None:
        """Lets the text that `session.replace(…, verify=…)` runs beside it take its place with the next batch."""
        self._job.apply(ShadowSwitched(self.name))

    @property
    def migrating(self) -> str | None:
        """The plan it is migrating to, or being verified with, if any; what slots migrate to, if only some do."""
        return migrating_to(self._running) or self._job.state.verifications.target_of(self.name)

    @property
    def history(self) -> Records[StoredMigration]:
        """Its migrations, oldest first, also those before a restart; the last may be waiting or under way."""
        past = history_of(self._job, self._running)
        return Records(past_migration(self.name, record, self._running.plan.domain.word) for record in past)

    @property
    def decisions(self) -> Records[StoredDecision]:
        """What was decided about its plan, also to stay, oldest first and also before a restart."""
        time = self._running.plan.domain.word
        return Records(StoredDecision(self.name, **past, time=time) for past in decisions_of(self._job, self.name))

    @property
    def observed(self) -> Statistics:
        """What is known of its streams and operators, as the optimizer reads it; nothing unless it is adaptive."""
        watcher = self._job.watchers.by_query.get(self.name)
        return UNKNOWN if watcher is None else watcher.observed

    @property
    def statistics(self) -> dict[str, Any]:
        """Counts of what it did and holds, as of the last batch; with what was `observed` if it is adaptive."""
        return statistics_of(self._job, self._running)

    def results(self) -> Any:
        """All results released so far."""
        return self._enrolment.results(self.name)

    def plot(self) -> Any:
        """Draws results, state and time of each batch, with its migrations, as a figure of matplotlib."""
        return plot_batches(self.name, metrics_of(self._job.files, self._job.manifest, None), self.history)

    def table(self) -> pa.Table:
        """All results released so far, in order, in this process."""
        job = self._job
        if job.manifest is None:
            from midstream.job.task.results import result_table

            return result_table(self._running.plan, None)
        return results_of_query(job.files, job.manifest, self.name, self._running.plan)

    def current(self) -> pa.Table:
        """The results that are valid at the last instant for which all are known."""
        manifest = self._job.manifest
        return self.table() if manifest is None else valid_now(self.table(), manifest, self.name)

    def subscribe(self, since: int | None = None) -> Subscription:
        """Results as they are released, from an instant on, in ticks; also by `async for`. It ends with the job."""
        return Subscription(self._job.store.uri, self.name, BEGINNING if since is None else since)

    def __repr__(self) -> str:
        return f"Query({self.name!r}, {self._running.cql!r})"
