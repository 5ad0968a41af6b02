"""A session: streams and continuous queries over them, run by one Structured Streaming query, exactly once."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from midstream.adaptation.policy import Mode, Policy, policy_of
from midstream.algebra.declarations import Catalog, StreamDeclaration, Timestamps, UserFunction, functions_by_name
from midstream.algebra.plan import Relation
from midstream.algebra.time import ticks
from midstream.checkpoint.failures import storage_refusal
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.spark.cluster import SPARK, SparkCluster
from midstream.cluster.spark.control import Listener
from midstream.cluster.spark.environment import is_gone, require_classic, ship_package, spark_session
from midstream.cluster.spark.frames.declaring import stream_input
from midstream.cluster.spark.frames.results import (
    dead_letters_frame,
    metrics_frame,
    results_frame,
    spark_path,
)
from midstream.cluster.spark.frames.sources import open_source
from midstream.cluster.spark.frames.tagging import StreamInput, columns_of_frame, tagged_union
from midstream.cluster.spark.query import Query
from midstream.cluster.spark.quiet import keep_quiet
from midstream.distribution.balancing import Watch
from midstream.errors import InputError, JobError, MigrationError, QueryError
from midstream.inputs import Duration, declare
from midstream.job.adding import Adding
from midstream.job.arrival import Arrival, Carry
from midstream.job.batch import TICKS
from midstream.job.driver import Driver, Progress, Sink
from midstream.job.heartbeat import Heartbeat
from midstream.job.replacing import REPLACED
from midstream.job.rewording import Rewording, Text
from midstream.job.running_query import MigrationUnderWay, RunningQuery
from midstream.job.task.memory import Memory
from midstream.language import parse
from midstream.optimizer.plans import Plan, plan_query
from midstream.scheduling.schedule import schedule_of

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]*")


class Session:
    """Continuous queries on Spark.

    `checkpoint` is where state, results and progress are kept: whoever opens a session on it again, with the same
    streams and queries, goes on where the last one was. `slots` is how many tasks share the work of a batch,
    `memory_per_slot` what each may hold of it in memory ("512 MB"); what is more goes through local files.
    `metrics_retained` is for how many batches the metrics table goes back, at least.

    With `carry="all"` every column of every stream reaches the tasks, so that no later query ever restarts Spark's
    stream. `scheduling` says which operator runs when; by default as the checkpoint has it, and depth first at first.
    """

    def __init__(
        self,
        spark: SparkSession | None = None,
        *,
        checkpoint: str,
        slots: int | None = None,
        functions: Sequence[UserFunction] = (),
        retained: int = 10,
        carry: Carry = "needed",
        scheduling: str | None = None,
        memory_per_slot: int | str = "1 GB",
        rebalancing: bool = False,
        metrics_retained: int = 100_000,
    ) -> None:
        if carry not in ("needed", "all"):
            raise InputError(f"a session carries the columns that are needed or all, not {carry!r}")
        memory, store = Memory.of(memory_per_slot), CheckpointStore(str(checkpoint))
        self.spark = require_classic(spark if spark is not None else spark_session())
        self.functions = functions_by_name(list(functions))
        self._inputs: dict[str, StreamInput] = {}
        self._stream: StreamingQuery | None = None
        self._trigger: str | None = None
        self._listener: Listener | None = None
        self._stopping = threading.Event()
        default = max(1, self.spark.sparkContext.defaultParallelism)
        self._driver = Driver(SparkCluster(self.spark, store.files), store, slots or default, retained, memory)
        self._driver.metrics_retained = _at_least_one("metrics_retained", metrics_retained)
        self._driver.open(slots)
        self._driver.rebalancing = Watch() if rebalancing else None
        self._arrival = Arrival(self._driver, carry)
        self._adding = Adding(self._driver, self.functions)
        if scheduling is not None:
            self.scheduling = scheduling

    @property
    def scheduling(self) -> str:
        """Which operator runs when: dfs, bfs, rr, batch:K or chain. May be set at any time, from the next batch on."""
        return self._driver.scheduling

    @scheduling.setter
    def scheduling(self, wanted: str) -> None:
        with self._driver.gate:
            self._driver.scheduling = schedule_of(wanted).name

    @property
    def checkpoint(self) -> str:
        """Where the session keeps what it knows."""
        return self._driver.store.uri

    @property
    def catalog(self) -> Catalog:
        """What queries may refer to."""
        streams = {name: s.declaration for name, s in self._inputs.items() if name != TICKS}
        return Catalog(streams, self.functions)

    @property
    def _declarations(self) -> list[StreamDeclaration]:
        return [stream.declaration for stream in self._inputs.values()]

    def stream(
        self,
        name: str,
        frame: DataFrame,
        *,
        time: str = "ts",
        lateness: Duration = 0,
        timestamps: Timestamps = "external",
        skew: Duration | None = None,
        columns: pa.Schema | None = None,
    ) -> Session:
        """Adds a stream: any streaming DataFrame with a time column.

        `timestamps`: external ones come with the rows; internal and latent ones are the time of the batch. `skew` is
        how far an external stream may be behind the others: with it, others need not wait while the stream is silent.
        `columns` are the stream's columns as queries shall see them, if they are not to be taken from the frame.
        """
        _check_name("stream", name)
        if name in self._inputs:
            raise InputError(f"there is a stream {name} already")
        self._inputs[name] = stream_input(name, frame, columns, time, lateness, timestamps, skew)
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
    ) -> Session:
        """Adds a stream from one of Spark's sources, by name, so that others can be added to the session later.

        `columns` are SQL expressions over the source's columns; all of them are taken if there are none.
        """
        _check_name("stream", name)
        frame = open_source(self.spark, name, format, path, schema, options or {}, columns)
        return self.stream(name, frame, time=time, lateness=lateness, timestamps=timestamps, skew=skew)

    def ticks(self) -> Session:
        """Adds a clock that moves time when no rows come; it is recorded as data, so a repeated batch sees it again."""
        frame = open_source(self.spark, "ticks", "rate", None, None, {"rowsPerSecond": "1"}, ["timestamp AS ts"])
        self._inputs[TICKS] = StreamInput(declare(TICKS, columns_of_frame(TICKS, frame), "ts"), frame)
        return self

    def _declare_lateness(self, name: str, lateness: int) -> None:
        known = self._inputs[name]
        self._inputs[name] = replace(known, declaration=replace(known.declaration, lateness=lateness))

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
    ) -> Query:
        """Adds a continuous query; a running session takes it up with the next batch.

        Another text than the checkpoint has under the name is taken up as it is if it is the same query in other words;
        otherwise it is refused, or with `replace=True` takes the old one's place.

        With `share=False` it keeps everything to itself.

        With `adaptive="auto"` it watches its streams and migrates to better plans by itself, with "suggest" it only
        says so in its `decisions`.
        """
        _check_name("query", name)
        if name in self._driver.queries and not replace:
            raise QueryError(f"there is a query {name} already", hint="replace=True puts another in its place")
        relation = parse(cql, self.catalog)
        every = None if emit_every is None else ticks(emit_every, relation.domain)
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
        with self._driver.gate:
            text = Text(name, cql, relation, plan, every, share)
            reworded = Rewording(self._driver, self._adding, self.catalog).make_way(text, replace)
            settled = self._arrival.settled(self._stream is not None)
            running = self._adding.query(name, cql, relation, plan, every, settled, share, policy is not None)
            running.migration = self._remembered_migration(running)
            if policy is not None:
                self._driver.watchers.watch(running, policy)
            self._take_up(running)
            if reworded:
                self._prefer(name, relation, plan, every)
        return Query(self, name)

    def _take_up(self, running: RunningQuery) -> None:
        """Takes a query up with the next batch; Spark's query starts anew only if its rows do not bring all there is to
        read, or do not arrive where the query needs them.
        """
        driver = self._driver
        running_now = self._stream is not None and self._stream.isActive
        if running_now and not self._arrival.serves(running, self._declarations):
            if driver.in_batch:
                raise JobError(
                    f"query {running.name} reads columns that the batch under way does not carry, or by another key",
                    hint='add it between two batches, or open the session with carry="all"',
                )
            driver.routes.update(running.staged.routes)
            driver.queries[running.name] = running
            self._restart()
            return
        driver.routes.update(running.staged.routes)
        driver.queries[running.name] = running

    def _migrate(self, name: str, plan: Plan | str, strategy: str, trigger: str, part: str = "auto") -> None:
        driver = self._driver
        with driver.gate:
            query = self._query(name)
            chosen = plan_query(query.plan.query, plan, query.emit_every)
            target = driver.target(query, chosen)
            driver.begin_migration(name, target, strategy, trigger, part)
            streaming = self._stream is not None and self._stream.isActive
            if streaming and not self._arrival.serves(target, self._declarations):
                self._carry_other_columns(query)

    def _carry_other_columns(self, query: RunningQuery) -> None:
        if self._driver.in_batch:
            query.migration = None
            raise MigrationError("the new plan reads columns that the batch under way does not carry")
        self._restart()

    def _prefer(self, name: str, relation: Relation, plan: Plan | str | None, every: int | None) -> None:
        """Goes over to the plan that a text in other words would have had."""
        wanted = plan_query(relation, plan, every).text
        if wanted and wanted != self._query(name).plan.text:
            try:
                self._migrate(name, wanted, "auto", "the text was put in other words")
            except MigrationError as error:
                log.warning("query %s stays with its plan: %s", name, error)

    def restore_added(self) -> list[str]:
        """Adds the queries again that were added to the job by request and not dropped since; gives their names.

        Starting does so too, for a session that does not have them by then.
        """
        wanted = [name for name in self._driver.added if name not in self._driver.queries]
        for name in wanted:
            told = self._driver.added[name]
            self.query(name, told["cql"], plan=told.get("plan"), adaptive=told.get("adaptive", "off"))
        return wanted

    def was_dropped(self, name: str, cql: str) -> bool:
        """Whether a query of this very text was dropped by request."""
        return self._driver.dropped.get(name) == cql

    def _remembered_migration(self, running: RunningQuery) -> MigrationUnderWay | None:
        """The migration that the checkpoint says is under way."""
        manifest = self._driver.manifest
        told = manifest.migration.get(running.name) if manifest else None
        if told is None:
            return None
        plan = plan_query(running.plan.query, told["plan"], running.emit_every)
        target = self._driver.target(running, plan)
        return MigrationUnderWay.resumed(target, told)

    def drop(self, name: str) -> None:
        """Ends a query; its state goes with the next batch, its results with the next collection."""
        self._query(name)
        with self._driver.gate:
            del self._driver.queries[name]
            self._driver.added.pop(name, None)
            self._driver.sinks.pop(name, None)
            self._driver.watchers.by_query.pop(name, None)

    def rebalance(self, routing: Sequence[int] | None = None) -> bool:
        """Deals partition groups to slots anew, their state with them, beginning with the next batch.

        By default so that no slot has much more to do than others; `routing` names the slot of each group. False if
        nothing would change.
        """
        return self._driver.rebalance(routing)

    @property
    def moves(self) -> list[dict[str, Any]]:
        """The changes of slots that the checkpoint remembers, oldest first."""
        manifest = self._driver.manifest
        return list(manifest.counters.get("moves", ())) if manifest else []

    def sink(self, name: str, write: Sink) -> None:
        """Calls `write(frame, batch_id)` with the results that each batch releases, in order of their start."""
        self._query(name)
        self._driver.sinks.setdefault(name, []).append(write)

    def on_progress(self, listener: Progress) -> None:
        """Calls `listener` with an account of each batch."""
        self._driver.listeners.append(listener)

    def before_batch(self, call: Callable[[int], None]) -> None:
        """Calls `call(batch_id)` before each batch; there, queries can be told to migrate."""
        self._driver.before_batch.append(call)

    def start(self, trigger: str | None = None) -> Session:
        """Starts; `trigger` is an interval such as "5 seconds", or "available" for what there is now; else at once."""
        if self._stream is not None and self._stream.isActive:
            raise JobError("the session is running already")
        if not self._inputs or not self._driver.queries:
            raise JobError("a session needs at least one stream and one query before it starts")
        keep_quiet()
        ship_package(self.spark)
        if self._driver.lease is None:
            self._driver.lease = Heartbeat(self._driver.files)
        self._trigger = trigger
        self._driver.failure = None
        self._stopping.clear()
        listener = Listener(self) if self._listener is None else None
        if listener is not None:
            self.restore_added()
            listener.go_on()
        self._begin()
        if listener is not None:
            listener.listen()
            self._listener = listener
        return self

    def _begin(self) -> None:
        inputs = list(self._inputs.values())
        driver = self._driver
        union, driver.arriving = tagged_union(inputs, driver.routes, self._arrival.begin(self._declarations))
        driver.streams = {port: s.declaration for port, s in enumerate(inputs)}
        writer = union.writeStream.foreachBatch(driver.on_batch).option(
            "checkpointLocation", spark_path(driver.files.full(SPARK))
        )
        if self._trigger == "available":
            writer = writer.trigger(availableNow=True)
        elif self._trigger is not None:
            writer = writer.trigger(processingTime=self._trigger)
        self._stream = writer.start()

    def _restart(self) -> None:
        """Starts Spark's query anew between two batches: its columns follow the queries."""
        self._halt()
        self._begin()

    def _halt(self) -> None:
        """Stops Spark's query while no batch is under way; the gate is held."""
        self._driver.halting = True
        try:
            if self._stream is not None and self._stream.isActive:
                self._stream.stop()
        except (OSError, Py4JError):
            # A signal to all processes ends Spark as well; the batch that this interrupts is repeated later.
            if not is_gone(self.spark):
                raise
        finally:
            self._driver.halting = False

    def process_available(self) -> Session:
        """Works through all that the streams have now, and returns."""
        self.start("available")
        self.wait()
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end; what made a batch fail is raised here."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._stopping.is_set():
                self.stop()
                return True
            if self._ended():
                return True
            if until is not None and time.monotonic() >= until:
                return False

    def _ended(self) -> bool:
        """Waits a moment for the end of Spark's query; what made it fail is raised."""
        stream = self._stream
        if stream is None:
            raise JobError("the session has not been started")
        try:
            # A restart between two batches ends one query of Spark's and starts another.
            return bool(stream.awaitTermination(1)) and stream is self._stream
        except Exception as error:
            if stream is not self._stream or self._stopping.is_set():
                return False
            if self._driver.failure is not None:
                raise self._driver.failure from None
            refused = storage_refusal(str(error), self.checkpoint)
            if refused is not None:
                raise refused from error
            raise

    def finish(self) -> None:
        """Declares that all streams have ended, and gives out every result that waited for that."""
        self._driver.finish()

    def request_stop(self) -> None:
        """Has `wait` end the session after the batch under way."""
        self._stopping.set()

    def stop(self) -> None:
        """Ends the session between two batches; a session on the same checkpoint goes on from there."""
        if self._listener is not None:
            self._listener.stop()
            self._listener = None
        with self._driver.gate:
            self._halt()
        self._driver.compactor.take(wait=True)
        if self._driver.lease is not None:
            self._driver.lease.stop()
            self._driver.lease = None

    def results(self, name: str) -> DataFrame:
        """All results of a query that are released so far; those of one that was replaced by the name it has since."""
        return results_frame(self.spark, self._driver.files, self._driver.manifest, name, self._plan_of(name))

    def _plan_of(self, name: str) -> Plan:
        manifest = self._driver.manifest
        entry = manifest.queries.get(name) if manifest else None
        if name not in self._driver.queries and entry is not None and entry.status == REPLACED:
            return plan_query(parse(entry.cql, self.catalog), None, entry.emit_every)
        return self._query(name).plan

    def dead_letters(self) -> DataFrame:
        """All rows that could not be used, with the reasons."""
        return dead_letters_frame(self.spark, self._driver.files, self._driver.manifest)

    def metrics(self) -> DataFrame:
        """The metrics table: a row per batch, oldest first."""
        return metrics_frame(self.spark, self._driver.files, self._driver.manifest)

    def _query(self, name: str) -> RunningQuery:
        try:
            return self._driver.queries[name]
        except KeyError:
            known = ", ".join(self._driver.queries) or "none"
            raise QueryError(f"there is no query {name}", detail=f"the queries are {known}") from None

    def queries_by(self, name: str) -> Query:
        """A query by its name."""
        self._query(name)
        return Query(self, name)

    @property
    def queries(self) -> Mapping[str, Query]:
        """The session's queries by name."""
        return {name: Query(self, name) for name in self._driver.queries}

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()


def _at_least_one(name: str, number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise JobError(f"{name} must be a whole number above zero, not {number!r}")
    return number


def _check_name(kind: str, name: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name a {kind}", hint="use letters, digits, _ and -")


def declaration_of(session: Session, name: str) -> StreamDeclaration:
    """A stream's declaration."""
    return session.catalog.streams[name]
