"""A session: streams and continuous queries over them on one checkpoint, exactly once, wherever it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Self

import pyarrow as pa

from midstream.adaptation.policy import policy_of
from midstream.adaptation.scaling import SlotRange
from midstream.algebra.declarations import Catalog, functions_by_name
from midstream.algebra.time import ticks
from midstream.checkpoint.commands import Adapt, ReplaceQuery, command_of
from midstream.checkpoint.files import Files
from midstream.checkpoint.metrics import metrics_of
from midstream.checkpoint.names import is_rehearsal
from midstream.checkpoint.places import JobPlaces
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.records import Settings
from midstream.checkpoint.retention import Retention
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.backend import Backend, first_slots, opened_backend
from midstream.cluster.listener import Commanded, Listener
from midstream.cluster.options import QueryOptions, SessionOptions
from midstream.cluster.query import Query
from midstream.cluster.resuming import leave_out, take_up, to_be_filled
from midstream.cluster.run import Enrolment, Run
from midstream.cluster.trial import Texts, Trial
from midstream.cluster.trying import Change, Trying
from midstream.distribution.fragments import Route
from midstream.distribution.move_legality import protocol_named
from midstream.errors import InputError, JobError, QueryError
from midstream.inputs import Duration, NamedSource, StreamSettings
from midstream.job.batch import TICKS
from midstream.job.circumstances import is_finished
from midstream.job.commands.accounts import links_after, waits_of
from midstream.job.commands.adding import Adding
from midstream.job.commands.forecast import forecast
from midstream.job.commands.rewording import DeclaredQuery, Text, verdicts
from midstream.job.commits import Commits
from midstream.job.ending import finish, release
from midstream.job.events import ErrorPolicySet, MoveCancelled, QueryDropped, Scheduled, StreamsArrive
from midstream.job.job import Job
from midstream.job.outputs.delivery import Sink
from midstream.job.outputs.progress import Progress
from midstream.job.queries.changed_functions import fingerprints
from midstream.job.queries.faults import on_error_of
from midstream.job.queries.running_query import Beginning
from midstream.job.queries.verdict import Verdict
from midstream.job.slots.relocation import require_slots
from midstream.job.slots.sites import Located, home_of, require_fixed, require_home, require_slots_of_sites, sites_of
from midstream.job.slots.slot_decisions import deciders
from midstream.job.state import JobState
from midstream.job.task.memory import Memory
from midstream.language import parse
from midstream.optimizer.sites.links import links_of
from midstream.scheduling.schedule import Schedule, schedule_of


class CheckpointSession(Commanded):
    """Continuous queries on a checkpoint, on Spark or in this process."""

    def _prepare(
        self, options: SessionOptions, spark: Any, checkpoint: Any, on: str | Callable[[Files], Backend] | None
    ) -> None:
        options.require_checkpoint()
        memory, store = Memory.of(options.memory_per_slot), CheckpointStore(str(checkpoint))
        self._backend = opened_backend(on or "spark", spark, store.files, options.small_batches)
        self._options, self._places = options, JobPlaces.of(str(checkpoint))
        self.functions = functions_by_name(list(options.functions))
        self._listener: Listener | None = None
        commits = Commits(store, options.retained, options.metrics_retained, Retention.of(options.retention))
        self._range = SlotRange.of(options.slots) if isinstance(options.slots, str) else None
        state = JobState(first_slots(options.slots, self._backend.slots), settings=Settings(job=options.name))
        self._job = Job(self._backend.cluster, commits, state, memory)
        self._sites = sites_of(options.sites)
        require_fixed(self._sites, rebalancing=options.rebalancing, slots_that_come_and_go=self._range)
        self._job.watchers.located = Located(self._sites, links_of(options.links, self._sites))
        self._job.deciding = deciders(options.rebalancing, self._range)
        self._code, self._changed_functions = fingerprints(self.functions), options.changed_functions
        self._declared: dict[str, DeclaredQuery] = {}
        self._left_out: set[str] = set()
        """What was declared, and what was dropped since the session was opened."""
        self._run = Run(self._backend, self._job)
        self._enrolment = Enrolment(self._run, Adding(self._job, self.functions))
        self._open()
        require_slots_of_sites(self._sites, self._job.state.wanted_slots)
        if options.scheduling is not None:
            self.scheduling = options.scheduling

    def _open(self) -> None:
        """Reads what the checkpoint has."""
        slots = self._options.slots
        self._job.open(None if isinstance(slots, str) else slots, self._options.group_bits)
        self._keep_to_range()

    @property
    def scheduling(self) -> str:
        return self._job.state.settings.scheduling

    @scheduling.setter
    def scheduling(self, wanted: str | Schedule) -> None:
        self._job.apply(Scheduled(schedule_of(wanted).name))

    @property
    def checkpoint(self) -> str:
        """Where the session keeps what it knows."""
        return self._job.store.uri

    @property
    def catalog(self) -> Catalog:
        return self._enrolment.catalog

    def _add_stream(
        self, name: str, source: Any, settings: StreamSettings, columns: pa.Schema | None, on_demand: bool
    ) -> None:
        self._require_new_stream(name)
        if not on_demand:
            raise InputError("on_demand is an option of streams in memory", hint="leave the skew out: others then wait")
        home = self._home(name, settings)
        self._run.inputs[name] = self._backend.stream(name, source, columns, settings)
        self._live_at(name, home)

    def _open_stream(self, source: NamedSource, settings: StreamSettings) -> None:
        self._require_new_stream(source.name)
        home = self._home(source.name, settings)
        self._places.reads(source.name, source.path, source.options)
        self._run.inputs[source.name] = self._backend.open_stream(source, settings)
        self._live_at(source.name, home)

    def _home(self, name: str, settings: StreamSettings) -> Route:
        home = home_of(name, settings.site, self._sites)
        state = self._job.state
        require_home(state.manifest, name, home, state.slots, state.wanted_slots)
        return home

    def _live_at(self, name: str, home: Route) -> None:
        if home.slots:
            self._job.apply(StreamsArrive({name: home}))

    def _require_new_stream(self, name: str) -> None:
        if name in self._run.inputs:
            raise InputError(f"stream {name} already exists")

    def ticks(self) -> Self:
        self._run.inputs[TICKS] = self._backend.ticks(TICKS)
        return self

    def _declare_lateness(self, name: str, lateness: int) -> None:
        known: Any = self._run.inputs[name]
        self._run.inputs[name] = replace(known, declaration=replace(known.declaration, lateness=lateness))

    def query(self, name: str, cql: str, **options: Any) -> Query:
        found = super().query(name, cql, **options)
        assert isinstance(found, Query)
        return found

    def _add_query(self, name: str, cql: str, options: QueryOptions) -> Query:
        if not options.keep:
            raise QueryError("keep is an option of queries in memory", hint="limit what is kept by retention")
        if name in self._job.queries and not options.replace:
            raise QueryError(f"query {name} already exists", hint="replace=True puts another in its place")
        cql = cql if options.replace else self._job.state.text_to_go_on_with(name, cql)
        relation = parse(cql, self.catalog)
        every = None if options.emit_every is None else ticks(options.emit_every, relation.domain)
        if options.on_error is not None:
            self._job.apply(ErrorPolicySet(name, on_error_of(options.on_error)))
        since, rate = Beginning.since_tick(options.since, relation.domain), options.backfill_rate
        begins = Beginning(options.incomplete == "withhold", since, rate=rate)
        text = Text(name, cql, relation, options.plan, every, options.share, begins)
        return self._add(DeclaredQuery(text, policy_of(options.adaptive), options.replace))

    def _add(self, declared: DeclaredQuery) -> Query:
        name = declared.text.name
        declared = replace(declared, policy=self._job.state.policy_for(name, declared.policy))
        self._enrolment.add(declared.text, self.catalog, declared.policy, declared.replace)
        self._declared[name] = declared
        self._left_out.discard(name)
        return Query(self._enrolment, name)

    def replace(self, name: str, cql: str, *, dry_run: bool = False, **options: Any) -> dict[str, Any]:
        command = command_of(ReplaceQuery, {"query": name, "cql": cql, **options})
        assert isinstance(command, ReplaceQuery)
        with self._job.gate:
            told = forecast(self._job, command, self.catalog)
            if not dry_run and (command.verify is not None or told["paced"]):
                self._enrolment.begin_shadows(command)
            elif not dry_run:
                for text in self._enrolment.changed(command):
                    self._add(replace(self._declared[text.name], text=text, replace=True))
        return told

    def try_(self, texts: Texts | None = None, *, last: Duration = 50, on: str = "local", **change: Any) -> Trial:
        return Trying.beside(self, on).tried(Change.of(texts, change), last)

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """What the queries that come with the next batch start with, those among them that take others' places."""
        later = to_be_filled(self)
        return {name: one.behind_old() if name in later else one for name, one in verdicts(self._job).items()}

    def restore_added(self) -> list[str]:
        wanted = [name for name in self._job.state.added if name not in self._job.queries]
        for name in wanted:
            self.query(name, **self._job.state.added[name])
        return wanted

    def was_dropped(self, name: str, cql: str) -> bool:
        return self._job.state.current_text(name, cql) is None

    def drop(self, name: str) -> None:
        job = self._job
        with job.gate:
            known = job.manifest is not None and name in job.manifest.queries and not is_rehearsal(name)
            if known and name not in job.queries:
                leave_out(self, name)
                self._left_out.add(name)
                return
            self._enrolment.query(name)
            self._left_out.add(name)
            self._declared.pop(name, None)
            job.apply(QueryDropped(name))

    def resume(self, name: str) -> dict[str, Any]:
        return asdict(self._job.resume(name))

    def rebalance(self, routing: Sequence[int] | None = None, *, protocol: str = "auto", by: str | None = None) -> bool:
        return self._job.rebalance(routing, protocol_named(protocol), by or "")

    def cancel_rebalance(self) -> None:
        self._job.apply(MoveCancelled())

    def _keep_to_range(self) -> None:
        """Has a checkpoint with too few or too many slots go over to the nearest number that is asked for."""
        state = self._job.state
        if self._range is None:
            return
        require_slots(self._range.most, 2**state.group_bits)
        if state.manifest is not None and state.wanted is None:
            state.rescale(self._range.nearest(state.slots), f"slots = {self._range}")

    def rescale(self, slots: int) -> bool:
        if self._range is not None and self._range.nearest(slots) != slots:
            raise JobError(
                f"{slots} slots are outside of slots = {self._range}", hint="open the session without a range"
            )
        return self._job.rescale(slots)

    def links(self, wanted: Mapping[str, str] | None = None) -> dict[str, str]:
        return links_after(self._job, wanted)

    def adapt(self, name: str, mode: str) -> dict[str, str]:
        record = forecast(self._job, Adapt(name, mode), self.catalog)
        self._enrolment.adapt(name, mode)
        return record

    @property
    def job(self) -> StoredJob:
        return StoredJob.open(self.checkpoint)

    @property
    def slot_decisions(self) -> list[dict[str, Any]]:
        return [dict(record) for record in self._job.manifest.slots.decisions] if self._job.manifest else []

    @property
    def moves(self) -> list[dict[str, Any]]:
        return [dict(move) for move in self._job.manifest.slots.moves] if self._job.manifest else []

    @property
    def waits(self) -> list[str]:
        return waits_of(self._job, self.catalog.streams)

    def sink(self, name: str, write: Sink) -> None:
        self._enrolment.query(name)
        self._places.writes(name, write)
        self._job.deliveries.add(name, write, self._job.manifest)

    def on_progress(self, listener: Progress) -> None:
        self._job.announcements.listeners.append(listener)

    def before_batch(self, call: Callable[[int], None]) -> None:
        self._job.before_batch.append(call)

    def start(self, trigger: str | None = None) -> Self:
        if self._backend.active:
            raise JobError("the session is running already")
        if not self._run.inputs:
            raise JobError("a session needs at least one stream before it starts")
        held = self._run.held
        try:
            self._start(trigger)
        except BaseException as error:
            self._job.record_error(error)
            if not held:
                self.stop()
            raise
        return self

    def _start(self, trigger: str | None) -> None:
        take_up(self)
        self._run.trigger = trigger
        self._job.turns.failure = None
        self._run.stopping.clear()
        self._run.over.clear()
        if is_finished(self._job.manifest):
            self._run.deliver_last()
            return
        listener = Listener(self) if self._listener is None else None
        if listener is not None:
            listener.go_on()
        self._run.begin()
        if listener is not None:
            listener.listen()
            self._listener = listener

    def push(self, stream: str | Mapping[str, object], rows: object = None) -> None:
        from midstream.cluster.local.backend import LocalBackend

        if not isinstance(self._backend, LocalBackend):
            raise JobError("rows are pushed into sessions in this process only", hint='open it with on="local"')
        if not self._run.started or self._job.commits.lease is None:
            raise JobError("the session has not been started, or has been stopped")
        self._backend.push(self._job, dict(stream) if isinstance(stream, Mapping) else {stream: rows})

    def process_available(self, *, finish: bool = False) -> Self:
        self.start("available")
        self.wait()
        self.end_available(finish)
        return self

    def end_available(self, finish: bool = False) -> None:
        """After `start("available")` and `wait`: releases what waited for another batch, or finishes."""
        if self._run.stopping.is_set() or not self._run.held:
            return
        if finish:
            self.finish()
        else:
            release(self._job)

    def wait(self, timeout: float | None = None) -> bool:
        ended = self._run.wait(None if timeout is None else time.monotonic() + timeout)
        if self._run.stopping.is_set():
            self.stop()
        return ended

    def finish(self) -> None:
        held = self._run.held
        try:
            if not held or self._backend.active:
                self._take_in_the_rest()
            if self._job.turns.failure is not None:
                raise self._job.turns.failure
            if self._run.held:  # else it was stopped meanwhile
                finish(self._job)
        finally:
            if not held:
                self.stop()

    def _take_in_the_rest(self) -> None:
        """Works through what the streams have now, so that nothing that has come is left out."""
        if self._backend.active:
            self._run.take_in_the_rest()
        else:
            self.start("available")
            self.wait()

    def request_stop(self) -> None:
        self._run.stopping.set()

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.stop()
            self._listener = None
        self._run.stop()

    def results(self, name: str) -> Any:
        return self._enrolment.results(name)

    def dead_letters(self) -> Any:
        """All rows that could not be used, with the reasons."""
        return self._backend.dead_letters(self._job.manifest)

    def metrics(self, batches: int | None = None) -> pa.Table:
        return metrics_of(self._job.files, self._job.manifest, batches)

    def queries_by(self, name: str) -> Query:
        """A query by its name."""
        self._enrolment.query(name)
        return Query(self._enrolment, name)

    @property
    def queries(self) -> Mapping[str, Query]:
        return {name: Query(self._enrolment, name) for name in self._job.queries if not is_rehearsal(name)}
