"""A session: streams and continuous queries over them on one checkpoint, exactly once, wherever it runs."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, get_args

import pyarrow as pa

from midstream.adaptation.policy import Mode, Policy, policy_of
from midstream.adaptation.scaling import SlotRange
from midstream.algebra.declarations import Catalog, Timestamps, UserFunction, functions_by_name
from midstream.algebra.plan import Relation
from midstream.algebra.time import ticks
from midstream.checkpoint.files import Files
from midstream.checkpoint.metrics import metrics_of
from midstream.checkpoint.names import is_rehearsal
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.records import Settings
from midstream.checkpoint.retention import Retention
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.backend import Backend
from midstream.cluster.enrolment import Enrolment
from midstream.cluster.listener import Listener
from midstream.cluster.query import Query
from midstream.cluster.resuming import leave_out, take_up
from midstream.cluster.run import Run
from midstream.cluster.sessions import Session as AnySession
from midstream.errors import InputError, JobError, QueryError
from midstream.inputs import Duration, StreamSettings
from midstream.job.adding import Adding
from midstream.job.arrival import Arrival, Carry
from midstream.job.attention import reads_of, told_wait, waits
from midstream.job.batch import TICKS
from midstream.job.changed_functions import ChangedFunctions, fingerprints
from midstream.job.commits import Commits
from midstream.job.delivery import Sink
from midstream.job.ending import finish, release
from midstream.job.faults import OnError, on_error_of
from midstream.job.finished import is_finished
from midstream.job.forecast import forecast
from midstream.job.job import Job, Progress
from midstream.job.relocation import require_slots
from midstream.job.rewording import Text
from midstream.job.slot_decisions import deciders, require_protocol
from midstream.job.state import JobState
from midstream.job.task.memory import Memory
from midstream.language import parse
from midstream.optimizer.plans import Plan, plan_query
from midstream.scheduling.schedule import schedule_of

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]*")


class Session(AnySession):
    """Continuous queries on a checkpoint.

    They run on Spark, or in this process with `on="local"`; both have the same checkpoint, so a job may go on there
    where it was here. `spark` is the SparkSession to run on; without one a local one is opened. `on` may also be what
    makes another backend for the files of the checkpoint.

    `checkpoint` is where state, results and progress are kept: whoever opens a session on it again, with the same
    streams and queries, goes on where the last one was. `slots` is how many tasks share the work of a batch,
    between bounds with a range such as "2..8": then slots come when the busiest works most of the time, and go when it
    idles. `memory_per_slot` is what each may hold of it in memory ("512 MB"); what is more goes through local files.
    `metrics_retained` is for how many batches the metrics table goes back, at least.

    With `carry="all"` every column of every stream reaches the tasks, so that no later query ever restarts Spark's
    stream. `scheduling` says which operator runs when; by default as the checkpoint has it, and depth first at first.

    `group_bits` (8 to 12) is chosen when a checkpoint is made: keys are hashed into `2 ** group_bits` partition groups,
    the units that move between slots.

    On Spark the driver runs batches of up to `small_batches` bytes itself, without Python workers: "1 MB" by default, 0
    for none.

    A session with a `name` goes on only with a checkpoint of that name, or one that has none yet.

    `retention` limits what is kept of "results", of "dead_letters" and of results of "replaced" queries, each by age,
    size or batches: `{"results": "30 days", "dead_letters": "1 GB", "replaced": "500 batches"}`; else all is kept.

    If the code of one of the `functions` that queries of the checkpoint call has changed, the start is refused, unless
    `changed_functions` is "accept".
    """

    def __init__(
        self,
        spark: Any = None,
        *,
        checkpoint: str,
        on: str | Callable[[Files], Backend] | None = None,
        slots: int | str | None = None,
        functions: Sequence[UserFunction] = (),
        retained: int = 10,
        carry: Carry = "needed",
        scheduling: str | None = None,
        memory_per_slot: int | str = "1 GB",
        rebalancing: bool = False,
        group_bits: int | None = None,
        metrics_retained: int = 100_000,
        name: str | None = None,
        small_batches: int | str | None = None,
        changed_functions: ChangedFunctions = "refuse",
        retention: Mapping[str, str] | None = None,
    ) -> None:
        if changed_functions not in get_args(ChangedFunctions):
            raise InputError(f"changed functions can be refused or accepted, not {changed_functions!r}")
        if carry not in ("needed", "all"):
            raise InputError(f"a session carries the columns that are needed or all, not {carry!r}")
        memory, store = Memory.of(memory_per_slot), CheckpointStore(str(checkpoint))
        self._backend = _backend(on or "spark", spark, store.files, small_batches)
        self.functions = functions_by_name(list(functions))
        self._listener: Listener | None = None
        commits = Commits(store, retained, _at_least_one("metrics_retained", metrics_retained), Retention.of(retention))
        self._range = SlotRange.of(slots) if isinstance(slots, str) else None
        state = JobState(_first_slots(slots, self._backend.slots), settings=Settings(job=name))
        self._job = Job(self._backend.cluster, commits, state, memory)
        self._job.deciding = deciders(rebalancing, self._range)
        self._code, self._changed_functions = fingerprints(self.functions), changed_functions
        self._slots = None if isinstance(slots, str) else slots
        self._carry, self._group_bits = carry, group_bits
        self._declared: dict[str, dict[str, Any]] = {}
        self._left_out: set[str] = set()
        """What was declared, and what was dropped since the session was opened."""
        self._run = Run(self._backend, self._job, Arrival(self._job, carry))
        self._enrolment = Enrolment(self._run, Adding(self._job, self.functions))
        self._open()
        if scheduling is not None:
            self.scheduling = scheduling

    def _open(self) -> None:
        """Reads what the checkpoint has."""
        self._job.open(self._slots, self._group_bits)
        self._keep_to_range()
        self._run.arrival = Arrival(self._job, self._carry)

    @property
    def scheduling(self) -> str:
        """Which operator runs when: dfs, bfs, rr, batch:K or chain. May be set at any time, from the next batch on."""
        return self._job.state.settings.scheduling

    @scheduling.setter
    def scheduling(self, wanted: str) -> None:
        with self._job.gate:
            self._job.state.schedule(schedule_of(wanted).name)

    @property
    def checkpoint(self) -> str:
        """Where the session keeps what it knows."""
        return self._job.store.uri

    @property
    def catalog(self) -> Catalog:
        """What queries may refer to."""
        streams = {name: s.declaration for name, s in self._run.inputs.items() if name != TICKS}
        return Catalog(streams, self.functions)

    def stream(
        self,
        name: str,
        source: Any,
        *,
        time: str = "ts",
        lateness: Duration = 0,
        timestamps: Timestamps = "external",
        skew: Duration | None = None,
        columns: pa.Schema | None = None,
        max_ahead: Duration = "clock",
    ) -> Self:
        """Adds a stream with a time column: on Spark any streaming DataFrame, in this process the schema of its rows.

        `timestamps`: external ones come with the rows; internal and latent ones are the time of the batch. `skew` is
        how far an external stream may be behind the others: with it, others need not wait while the stream is silent.
        `columns` are the stream's columns as queries shall see them, if they are not to be taken from the source.
        `max_ahead` is how far ahead times are believed: a duration after the stream's latest time so far, "clock" (a
        day after the batch's time, for timestamps) or "any"; rows beyond are dead letters.
        """
        self._require_new_stream(name)
        settings = StreamSettings(time, lateness, timestamps, skew, max_ahead)
        self._run.inputs[name] = self._backend.stream(name, source, columns, settings)
        return self

    def open_stream(
        self,
        name: str,
        format: str,
        *,
        path: str | None = None,
        schema: str | None = None,
        options: Mapping[str, str] | None = None,
        columns: Sequence[str] = (),
        time: str = "ts",
        lateness: Duration = 0,
        timestamps: Timestamps = "external",
        skew: Duration | None = None,
        max_ahead: Duration = "clock",
    ) -> Self:
        """Adds a stream from a source by its format: one of Spark's, or a growing folder of files in this process.

        `columns` are SQL expressions over the source's columns; all of them are taken if there are none.
        """
        self._require_new_stream(name)
        settings = StreamSettings(time, lateness, timestamps, skew, max_ahead)
        self._run.inputs[name] = self._backend.open_stream(name, format, path, schema, options or {}, columns, settings)
        return self

    def _require_new_stream(self, name: str) -> None:
        check_name("stream", name)
        if name in self._run.inputs:
            raise InputError(f"stream {name} already exists")

    def ticks(self) -> Self:
        """Adds a clock that moves time when no rows come; it is recorded as data, so a repeated batch sees it again."""
        self._run.inputs[TICKS] = self._backend.ticks(TICKS)
        return self

    def _declare_lateness(self, name: str, lateness: int) -> None:
        known: Any = self._run.inputs[name]
        self._run.inputs[name] = replace(known, declaration=replace(known.declaration, lateness=lateness))

    def query(
        self,
        name: str,
        cql: str,
        *,
        plan: Plan | str | None = None,
        emit_every: Duration | None = None,
        share: bool = True,
        adaptive: Policy | Mode = "off",
        replace: bool = False,
        on_error: OnError | None = None,
    ) -> Query:
        """Adds a continuous query; a running session takes it up with the next batch.

        Another text than the checkpoint has under the name is taken up as it is if it is the same query in other words;
        otherwise it is refused, or with `replace=True` takes the old one's place.

        With `share=False` it keeps everything to itself.

        With `adaptive="auto"` it watches its streams and migrates to better plans by itself, with "suggest" it only
        says so in its `decisions`.

        `on_error` says what a value does that makes it fail (one that cannot be cast, an overflow): "stop_query" puts
        the query in quarantine until it is resumed, replaced or dropped, and all others go on; "dead_letter" sets the
        rows at fault aside, where they can be told; "stop_job" ends the job. By default as before, "stop_query" at
        first.
        """
        check_name("query", name)
        if name in self._job.queries and not replace:
            raise QueryError(f"query {name} already exists", hint="replace=True puts another in its place")
        relation = parse(cql, self.catalog)
        every = None if emit_every is None else ticks(emit_every, relation.domain)
        if on_error is not None:
            self._job.state.faults.policies[name] = on_error_of(on_error)
        return self._add(name, cql, relation, plan, every, share, policy_of(adaptive), replace)

    def _add(
        self,
        name: str,
        cql: str,
        relation: Relation,
        plan: Plan | str | None = None,
        every: int | None = None,
        share: bool = True,
        policy: Policy | None = None,
        replace: bool = False,
    ) -> Query:
        policy = self._job.state.policy_for(name, policy)
        self._enrolment.add(Text(name, cql, relation, plan, every, share), self.catalog, policy, replace)
        told = {"cql": cql, "relation": relation, "plan": plan, "every": every, "share": share, "policy": policy}
        self._declared[name] = {**told, "replace": replace}
        self._left_out.discard(name)
        return Query(self, name)

    def restore_added(self) -> list[str]:
        """Adds the queries again that were added to the job by request and not dropped since; gives their names.

        Starting does so too, for a session that does not have them by then.
        """
        wanted = [name for name in self._job.state.added if name not in self._job.queries]
        for name in wanted:
            told = self._job.state.added[name]
            self.query(name, told["cql"], plan=told.get("plan"), adaptive=told.get("adaptive", "off"))
        return wanted

    def was_dropped(self, name: str, cql: str) -> bool:
        """Whether a query of this very text was dropped by request."""
        return self._job.state.dropped.get(name) == cql

    def drop(self, name: str) -> None:
        """Ends a query; its state goes with the next batch, its results with the next collection.

        A query of the checkpoint that is not declared can be dropped before the start.
        """
        job = self._job
        with job.gate:
            if name not in job.queries and job.manifest is not None and name in job.manifest.queries:
                leave_out(self, name)
                self._left_out.add(name)
                return
            self._enrolment.query(name)
            self._left_out.add(name)
            self._declared.pop(name, None)
            job.drop(name)

    def resume(self, name: str) -> dict[str, Any]:
        """Has a query in quarantine go on with the next batch, as if the rows since it was stopped had never come.

        Gives why it was stopped, and in which batch.
        """
        return self._job.resume(name).to_json()

    def rebalance(self, routing: Sequence[int] | None = None, *, protocol: str = "auto") -> bool:
        """Deals partition groups to slots anew, their state with them, beginning with the next batch.

        By default so that no slot has much more to do than others; `routing` names the slot of each group. Jobs move
        groups by the protocol "mslb"; others are refused. False if nothing would change.
        """
        require_protocol(protocol)
        return self._job.rebalance(routing)

    def _keep_to_range(self) -> None:
        """Has a checkpoint with too few or too many slots go over to the nearest number that is asked for."""
        state = self._job.state
        if self._range is None:
            return
        require_slots(self._range.most, 2**state.group_bits)
        if state.manifest is not None and state.wanted is None:
            state.rescale(self._range.nearest(state.slots), f"slots = {self._range}")

    def rescale(self, slots: int) -> bool:
        """Deals partition groups to another number of slots, their state with them, beginning with the next batch.

        False if there are so many already. A session that is opened with `slots` on this checkpoint goes back to those,
        and one with a range keeps to it.
        """
        if self._range is not None and self._range.nearest(slots) != slots:
            raise JobError(
                f"{slots} slots are outside of slots = {self._range}", hint="open the session without a range"
            )
        return self._job.rescale(slots)

    def adapt(self, name: str, mode: str) -> dict[str, str]:
        """Changes how a query adapts while it runs: "off", "suggest" or "auto"; a restart keeps it."""
        told = forecast(
            self._job, {"command": "adapt", "query": name, "mode": mode}, lambda cql: parse(cql, self.catalog)
        )
        self._enrolment.adapt(name, mode)
        return told

    @property
    def job(self) -> StoredJob:
        """The job as of its last batch, in the values that `ms.open` gives."""
        return StoredJob.open(self.checkpoint)

    @property
    def slot_decisions(self) -> list[dict[str, Any]]:
        """What was decided about slots and groups, also to stay, with forecast and reason, oldest first."""
        manifest = self._job.manifest
        return [dict(told) for told in manifest.slots.decisions] if manifest else []

    @property
    def moves(self) -> list[dict[str, Any]]:
        """The changes of slots that the checkpoint remembers, oldest first."""
        manifest = self._job.manifest
        return [dict(move) for move in manifest.slots.moves] if manifest else []

    @property
    def waits(self) -> list[str]:
        """The queries that one of their streams holds back, in words."""
        job = self._job
        if job.manifest is None:
            return []
        known = job.manifest.streams
        found = waits(reads_of(job.queries), known.registers, known.silent)
        return [told_wait(wait, self.catalog.streams[wait.stream]) for wait in found]

    def sink(self, name: str, write: Sink) -> None:
        """Calls `write(frame, batch_id)` with the results that each batch releases, in order of their start."""
        self._enrolment.query(name)
        self._job.deliveries.sinks.setdefault(name, []).append(write)

    def on_progress(self, listener: Progress) -> None:
        """Calls `listener` with an account of each batch."""
        self._job.listeners.append(listener)

    def before_batch(self, call: Callable[[int], None]) -> None:
        """Calls `call(batch_id)` before each batch; there, queries can be told to migrate."""
        self._job.before_batch.append(call)

    def start(self, trigger: str | None = None) -> Self:
        """Starts; `trigger` is an interval such as "5 seconds", or "available" for what there is now; else at once.

        Queries that the checkpoint runs and nobody has declared go on as they are.
        """
        if self._backend.active:
            raise JobError("the session is running already")
        if not self._run.inputs:
            raise JobError("a session needs at least one stream before it starts")
        held = self._run.held
        try:
            self._start(trigger)
        except BaseException:
            if not held:
                self.stop()
            raise
        return self

    def _start(self, trigger: str | None) -> None:
        take_up(self)
        self._run.trigger = trigger
        self._job.turns.failure = None
        self._run.stopping.clear()
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
        """Takes rows of one stream, or of several by name, as one batch; they count when this returns.

        If a sink or a listener fails, what it raised is raised here, with a note that the rows count all the same; the
        sinks are called again before the next batch. Only in this process (`on="local"`), and only after `start`.
        """
        from midstream.cluster.local.backend import LocalBackend

        if not isinstance(self._backend, LocalBackend):
            raise JobError("rows are pushed into sessions in this process only", hint='open it with on="local"')
        if not self._run.started or not self._run.held:
            raise JobError("the session has not been started, or has been stopped")
        self._backend.push(self._job, dict(stream) if isinstance(stream, Mapping) else {stream: rows})

    def process_available(self, *, finish: bool = False) -> Self:
        """Works through all that the streams have now, releases what the registers permit, and returns.

        With `finish` the streams are declared to have ended: every result is released, and the job takes in no more.
        """
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
        """Waits for the end; what made a batch fail is raised here."""
        ended = self._run.wait(None if timeout is None else time.monotonic() + timeout)
        if self._run.stopping.is_set():
            self.stop()
        return ended

    def finish(self) -> None:
        """Declares that all streams have ended, and gives out every result that waited for that.

        A session that runs works through what the streams have now before. Rows that come later are not taken in: to
        start again is refused.
        """
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
        """Has `wait` end the session after the batch under way."""
        self._run.stopping.set()

    def stop(self) -> None:
        """Ends the session between two batches; a session on the same checkpoint goes on from there."""
        if self._listener is not None:
            self._listener.stop()
            self._listener = None
        self._run.stop()

    def results(self, name: str) -> Any:
        """All results of a query that are released so far, also of one that is not declared.

        Those of one that was replaced are under the name it has since.
        """
        return self._backend.results(self._job.manifest, name, self._plan_of(name))

    def _plan_of(self, name: str) -> Plan:
        manifest = self._job.manifest
        entry = manifest.queries.get(name) if manifest else None
        if name not in self._job.queries and entry is not None:
            return plan_query(parse(entry.cql, self.catalog), None, entry.emit_every)
        return self._enrolment.query(name).plan

    def dead_letters(self) -> Any:
        """All rows that could not be used, with the reasons."""
        return self._backend.dead_letters(self._job.manifest)

    def metrics(self, batches: int | None = None) -> pa.Table:
        """The metrics table: a row per batch, oldest first; with `batches`, about that many from its end."""
        return metrics_of(self._job.files, self._job.manifest, batches)

    def queries_by(self, name: str) -> Query:
        """A query by its name."""
        self._enrolment.query(name)
        return Query(self, name)

    @property
    def queries(self) -> Mapping[str, Query]:
        """The session's queries by name."""
        return {name: Query(self, name) for name in self._job.queries if not is_rehearsal(name)}


def _first_slots(wanted: int | str | None, usual: int) -> int:
    """With how many slots a job begins."""
    if isinstance(wanted, str):
        return SlotRange.of(wanted).least
    return usual if wanted is None else _at_least_one("slots", wanted)


def _at_least_one(name: str, number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise JobError(f"{name} must be a whole number above zero, not {number!r}")
    return number


def check_name(kind: str, name: str) -> None:
    """Refuses a name that a stream or query cannot have."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name a {kind}", hint="use letters, digits, _ and -")


def _backend(
    on: str | Callable[[Files], Backend], spark: Any, files: Files, small_batches: int | str | None
) -> Backend:
    """Where a session runs."""
    if callable(on):
        return on(files)
    if on == "local":
        if spark is not None:
            raise InputError('a session with on="local" runs without Spark', hint="leave the SparkSession out")
        from midstream.cluster.local.backend import LocalBackend

        return LocalBackend(files)
    if on == "spark":
        from midstream.cluster.spark.backend import SparkBackend

        return SparkBackend(spark, files, small_batches)
    raise InputError(f"a session cannot run on {on!r}", hint="use on='spark' or on='local'")
