"""A run of a session's job: its backend at work, from the start to the stop, and the queries that it takes up."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from midstream.adaptation.policy import Policy
from midstream.algebra.declarations import Catalog, StreamDeclaration
from midstream.algebra.time import INFINITY, ticks
from midstream.checkpoint.commands import ReplaceQuery
from midstream.checkpoint.lease import LostLease
from midstream.checkpoint.names import copy_name, is_rehearsal
from midstream.cluster.backend import Backend, Input
from midstream.errors import ClusterError, JobError, MidstreamError, MigrationError, query_in
from midstream.job.batch import TICKS
from midstream.job.circumstances import require_unfinished
from midstream.job.commands.adding import Adding, first_plan
from midstream.job.commands.replacement import changes_by, is_much, require_taken_after_old, shadow_by
from midstream.job.commands.rewording import Replacement, Rewording, Text
from midstream.job.ending import finish, is_delivered
from midstream.job.events import QueryAdded, ShadowBegun
from midstream.job.job import Job
from midstream.job.migrations.shadows import ShadowText
from midstream.job.migrations.verifying import Verification
from midstream.job.plans.local_plans import resumed
from midstream.job.queries.completeness import COMPLETE, lacking_rows
from midstream.job.queries.running_query import RunningQuery
from midstream.job.queries.succession import hands_on
from midstream.language import parse
from midstream.migration.verified import Stretch
from midstream.optimizer.plans import Plan, plan_query

log = logging.getLogger(__name__)

START_AGAIN = "start the job again: it resumes where it was"


@dataclass(slots=True)
class Run:
    """The backend of a session, the driver that it calls, and the streams that it reads.

    `stopping` is set to have the run end after the batch under way, `over` when it has been stopped or cannot go on.
    While a backend is halted no batch can come, but the run is not over: only an event ends it.
    """

    backend: Backend
    job: Job
    inputs: dict[str, Input] = field(default_factory=dict)
    started: bool = False
    trigger: str | None = None
    stopping: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def declarations(self) -> list[StreamDeclaration]:
        """The streams, as they were declared."""
        return [stream.declaration for stream in self.inputs.values()]

    @property
    def held(self) -> bool:
        """Whether this process holds the checkpoint's lease."""
        return self.job.commits.lease is not None

    def begin(self) -> None:
        """Starts the backend."""
        self.job.streams = dict(enumerate(self.declarations))
        self.started = True
        self.backend.begin(self.job, list(self.inputs.values()), self.trigger)
        if self.job.commits.lease is not None:
            self.job.commits.lease.work()

    def lacks(self, streams: Collection[str]) -> list[str]:
        """Which of some streams were declared after the backend has begun, so that batches do not bring them."""
        brought = {declaration.name for declaration in self.job.streams.values()}
        return sorted({*streams} - brought) if self.backend.active else []

    def restart(self) -> None:
        """Has batches bring the streams that were declared since the backend has begun; the gate is held."""
        self.halt()
        try:
            self.begin()
        except BaseException as error:
            self.job.turns.failure = error
            self.job.record_error(error)
            self.over.set()
            raise

    def halt(self) -> None:
        """Stops the backend while no batch is under way; the gate is held."""
        self.job.turns.halting = True
        try:
            self.backend.halt()
        finally:
            self.job.turns.halting = False

    def deliver_last(self) -> None:
        """Calls the sinks of a finished job that have not had its last results; there is nothing else to start."""
        if is_delivered(self.job):
            require_unfinished(self.job.manifest, self.job.store.uri)
        finish(self.job)
        self.started = True
        self.stopping.set()

    def wait(self, until: float | None) -> bool:
        """Waits for the end, at most until a moment; false if it has not come. What made a batch fail is raised."""
        while not self.stopping.is_set():
            if self._ended():
                return True
            if until is not None and time.monotonic() >= until:
                return False
        return True

    def _ended(self) -> bool:
        """Waits a moment for the end; what made a batch fail is raised."""
        if not self.started:
            raise JobError("the session has not been started")
        try:
            ended = self.over.is_set() or self.backend.ended(self.job)
            if ended and self.job.turns.failure is not None:
                raise self.job.turns.failure
            if ended and not self.over.is_set() and self.trigger != "available":
                raise ClusterError("no batches come any more, although nobody has stopped the job", hint=START_AGAIN)
            return ended
        except Exception as error:
            if self.stopping.is_set():
                return False
            self.job.record_error(error)
            raise

    def take_in_the_rest(self) -> None:
        """Works through what the streams of a running session have now."""
        self.trigger = "available"
        with self.job.gate:
            self.halt()
            self.job.turns.failure = None
            self.begin()
        self.wait(None)

    def lose(self, error: LostLease) -> None:
        """Ends the run, because somebody else drives the job; `wait` raises the reason.

        A batch that is under way ends by itself: it cannot be committed.
        """
        job = self.job
        if job.turns.in_batch or not job.gate.acquire(blocking=False):
            return
        try:
            if job.turns.failure is None:
                log.error("the job ends here: %s", error)
                job.turns.failure = error
            self.halt()
            self.over.set()
        finally:
            job.gate.release()

    def stop(self) -> None:
        """Ends the run between two batches, and lets go of the checkpoint."""
        job = self.job
        with job.gate:
            self.halt()
            self.over.set()
        job.deliveries.close()
        job.commits.stop()


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Enrolment:
    """Adds queries to a run. Rows come with all columns of their streams: only one of a new stream restarts it."""

    run: Run
    adding: Adding

    @property
    def job(self) -> Job:
        """Who runs the queries."""
        return self.run.job

    @property
    def catalog(self) -> Catalog:
        """What queries may refer to."""
        streams = {name: stream.declaration for name, stream in self.run.inputs.items() if name != TICKS}
        texts = {q.name: q.cql for q in self.job.queries.values()}
        # What reads a query that is being filled is a query over its new text, and takes its place with it.
        coming = {name: known.shadow for name, known in self.job.state.verifications.by_query.items() if known.shadow}
        texts |= {name: shadow.cql for name, shadow in coming.items() if name in texts and not shadow.columns}
        return Catalog(streams, self.adding.functions, queries=texts)

    def results(self, name: str) -> Any:
        """All results of a query that are released so far, also of one that is not declared.

        Those of one that was replaced are under the name it has since.
        """
        return self.run.backend.results(self.job.manifest, name, self._plan_of(name))

    def _plan_of(self, name: str) -> Plan:
        manifest = self.job.manifest
        entry = manifest.queries.get(name) if manifest else None
        if name not in self.job.queries and entry is not None:
            return plan_query(parse(entry.cql, self.catalog), None, entry.emit_every)
        return self.query(name).plan

    def query(self, name: str) -> RunningQuery:
        """A query by its name; copies by which migrations are verified have none of their own."""
        return query_in({known: query for known, query in self.job.queries.items() if not is_rehearsal(known)}, name)

    def add(self, text: Text, catalog: Catalog, policy: Policy | None, replace: bool) -> None:
        """Takes a query up; what the checkpoint knows of it goes on."""
        with self.job.gate:
            text, reworded = Rewording(self.job, self.adding, catalog).make_way(text, replace)
            running = self._with_migrations(
                self.adding.query(
                    text.name, text.cql, text.relation, text.plan, text.every, text.share, policy is not None
                )
            )
            running.begins = text.begins
            lacking = self.run.lacks({source.stream.name for source in running.sources})
            if lacking and self.job.turns.in_batch:
                raise JobError(
                    f"query {text.name} reads stream {lacking[0]}, which the batch under way does not bring",
                    hint="add it between two batches",
                )
            if text.begins.rate is not None and self.fill_from_sources not in self.job.before_batch:
                self.job.before_batch.append(self.fill_from_sources)
            if policy is not None:
                self.job.watchers.watch(running, policy)
            self.job.apply(QueryAdded(running))
            if lacking:
                self.run.restart()
            if reworded:
                self._prefer(text)

    def _with_migrations(self, running: RunningQuery) -> RunningQuery:
        """The query with the migration and the plans of slots that the checkpoint tells of."""
        manifest = self.job.manifest
        if manifest is None:
            return running

        def by_plan(text: str) -> RunningQuery:
            return self.job.state.target(running, plan_query(running.plan.query, text, running.emit_every))

        return resumed(running, manifest.account(running.name).plans, by_plan)

    def changed(self, command: ReplaceQuery) -> list[Text]:
        """The texts that change with a query's, all of which can; what they start with they have at once."""
        texts = [change.text for change in changes_by(self.job, command, self.catalog)]
        return [dataclasses.replace(t, begins=dataclasses.replace(t.begins, rate=None)) for t in texts]

    def begin_shadows(self, command: ReplaceQuery) -> None:
        """Runs other texts beside queries, to fill their windows or to compare both, before they take places."""
        changes = changes_by(self.job, command, self.catalog)
        shadow = shadow_by(self.job, command, changes, self.catalog)
        if shadow is None:
            self.begin_to_fill(changes)
        else:
            new = changes[0].new
            self._begin_shadow(new, shadow, Stretch(ticks(command.verify or 0, new.plan.domain)))

    def begin_to_fill(self, changes: Sequence[Replacement]) -> None:
        """Runs texts that change together beside the old ones, until the windows of all are full and none is ahead."""
        require_taken_after_old(self.job, changes)
        much = is_much(self.job, changes)
        for change in changes:
            new, name = change.new, changes[0].aside
            # One for which few rows are read begins like any new query, and waits for the others.
            paced = (much and change.verdict.given > 0 and hands_on(new)) or bool(new.begins.again)
            begins = dataclasses.replace(new.begins, paced=paced, withhold=False)
            shadow = ShadowText(change.text.cql, withhold=new.begins.withhold, change=name)
            self._begin_shadow(dataclasses.replace(new, begins=begins), shadow, Stretch(1))

    def _begin_shadow(self, new: RunningQuery, shadow: ShadowText, stretch: Stretch) -> None:
        told = ("replace", "another text", "whole", INFINITY, INFINITY)
        shadow = dataclasses.replace(shadow, withhold=shadow.withhold or new.begins.withhold)
        verification = Verification(new.plan.text, *told, stretch, shadow=shadow)
        self.job.apply(ShadowBegun(new.name, dataclasses.replace(new, name=copy_name(new.name)), verification))

    def fill_from_sources(self, batch_id: int) -> None:
        """Begins to fill the windows of queries that lack rows and are to have them from sources.

        A query is filled by being replaced with itself, once it has begun.
        """
        queries = [q for q in self.job.queries.values() if q.begins.rate is not None and not q.begins.paced]
        changing = self.job.state.verifications.by_query
        for query in lacking_rows(self.job.manifest, queries, changing) if queries else ():
            incomplete = "withhold" if query.begins.withhold else "emit"
            command = ReplaceQuery(query.name, query.cql, None, incomplete, backfill_rate=query.begins.rate)
            query.begins = dataclasses.replace(query.begins, rate=None)
            try:
                (change,) = changes_by(self.job, command, self.catalog)
            except MidstreamError as error:
                log.warning("%s", error)
                continue
            if change.new.begins.again:
                self.begin_to_fill([change])
            if change.new.begins.again or change.verdict.complete != COMPLETE:
                log.warning("query %s: %s", query.name, change.verdict)

    def _prefer(self, text: Text) -> None:
        """Goes over to the plan that a text in other words would have had."""
        wanted = first_plan(self.job, text.relation, text.plan, text.every).text
        if wanted and wanted != self.query(text.name).plan.text:
            try:
                self.migrate(text.name, wanted, "auto", "the text was put in other words")
            except MigrationError as error:
                log.warning("query %s stays with its plan: %s", text.name, error)

    def migrate(
        self,
        name: str,
        plan: Plan | str,
        strategy: str,
        trigger: str,
        part: str = "auto",
        slots: Sequence[int] | None = None,
        verify: int | None = None,
    ) -> None:
        """Migrates a query to another plan, beginning with the next batch."""
        job = self.job
        with job.gate:
            query = self.query(name)
            target = job.state.target(query, plan_query(query.plan.query, plan, query.emit_every))
            job.begin_migration(name, target, strategy, trigger, part, slots, verify)

    def adapt(self, name: str, mode: str) -> None:
        """Changes how a query adapts."""
        with self.job.gate:
            self.job.adapt(name, mode)
