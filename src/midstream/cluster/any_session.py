"""A session, as its users see it, wherever it runs: every method and option, in one place.

A session without a checkpoint keeps everything in memory; on a checkpoint it runs in this process or on Spark. The
kinds of sessions say how; what only one of them makes possible is refused by the others, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import pyarrow as pa

from midstream.algebra.declarations import Catalog, Timestamps, UserFunction
from midstream.algebra.names import check_name
from midstream.checkpoint.stored import StoredDecision, StoredMigration
from midstream.cluster.continuous_query import ContinuousQuery, session_html
from midstream.cluster.options import ON_A_CHECKPOINT, Incomplete, Instant, QueryOptions, SessionOptions
from midstream.cluster.session_tables import SessionTables
from midstream.errors import JobError
from midstream.html import Records
from midstream.inputs import Duration, Format, NamedSource, StreamSettings

if TYPE_CHECKING:
    from midstream.adaptation.policy import Mode, Policy
    from midstream.checkpoint.files import Files
    from midstream.checkpoint.reading import StoredJob
    from midstream.cluster.backend import Backend
    from midstream.cluster.trial import Texts, Trial
    from midstream.job.queries.changed_functions import ChangedFunctions
    from midstream.job.queries.faults import OnError
    from midstream.optimizer.plans import Plan
    from midstream.scheduling.schedule import Schedule


class Session(SessionTables):
    """Streams and continuous queries over them; queries can be added, migrated and dropped while rows keep coming.

    `Session(spark, checkpoint="path")` runs on Spark; without a SparkSession a local one is opened.
    `Session(checkpoint="path", on="local")` runs in this process on the same kind of checkpoint, so a job may go on
    there where it was here. `Session()` keeps everything in memory: rows are pushed, and nothing is left when it ends.

    Declare streams with `stream` or `open_stream`, queries with `query`, then `start`. `queries` has what runs; a query
    has its `plan`, `results()`, `history`, `decisions` and `migrate`. As a context manager it stops at the end.

    `functions` are the user's own functions. `scheduling` says which operator runs when; by default as the checkpoint
    has it, and depth first at first. In memory, `clock` gives the time, in ticks, of rows that the session stamps; by
    default the wall clock for timestamps and the number of pushes for integers.

    `checkpoint` is where state, results and progress are kept: a session that is opened on it again, with the same
    streams and queries, goes on where the last one was. `on` may also be what makes another backend for its files.
    The other settings need a checkpoint:

    - `slots` is how many tasks share the work of a batch. With a range such as "2..8" slots come when the busiest works
      most of the time, and go when it idles. With `rebalancing`, partition groups move to slots that have less to do.
    - `memory_per_slot` is what each slot may hold in memory ("512 MB"); what is more goes through local files.
    - `group_bits` (8 to 12), for a new checkpoint: `2 ** group_bits` partition groups are what moves between slots.
    - `small_batches`: batches of up to so many bytes are run by Spark's driver itself, without Python workers; "1 MB"
      by default, and where Spark runs in one process "8 MB", of Parquet files even more.
    - At least `retained` manifests are kept, at most twice as many, and metrics of at least `metrics_retained` batches.
      `retention` limits what is kept: `{"results": "30 days", "dead_letters": "1 GB", "replaced": "500 batches"}`.
    - `sites` are named sets of slots, `{"eu": [0, 1], "us": [2, 3]}`, at which streams may live. Slots are fixed then.
      `links` are latencies and rates between two sites, `{"eu <-> us": "80 ms, 10 MB/s"}`, or `"eu -> us"` one way.
    - A session with a `name` goes on only with a checkpoint of that name, or one that has none yet.
    - If the code of `functions` that queries call has changed, a start needs `changed_functions="accept"`.

    >>> from midstream import Session
    >>> session = Session()
    >>> _ = session.stream("A", pa.schema([("ts", pa.int64()), ("k", pa.int64())]))
    >>> query = session.query("ones", "SELECT k FROM A [RANGE 5] WHERE k = 1")
    >>> session.push("A", [{"ts": 1, "k": 1}, {"ts": 2, "k": 2}])
    >>> query.results().to_pylist()
    [{'k': 1, 'valid_from': 1, 'valid_to': 7}]
    """

    _kind_of: ClassVar[Callable[[Any, Any, object], type[Session]]]
    """The kind that a SparkSession, a checkpoint and a place ask for; set by `sessions`, which knows them all."""

    dead_letters: Any
    """The rows that could not be used, and why: a list in memory; on a checkpoint a method that gives a table."""

    def __new__(cls, spark: Any = None, *, checkpoint: Any = None, on: object = None, **options: Any) -> Session:
        return super().__new__(cls._kind_of(spark, checkpoint, on) if cls is Session else cls)

    def __init__(
        self,
        spark: Any = None,
        *,
        checkpoint: Any = None,
        on: str | Callable[[Files], Backend] | None = None,
        functions: Sequence[UserFunction] = (),
        scheduling: str | Schedule | None = None,
        clock: Callable[[], int] | None = None,
        slots: int | str | None = None,
        retained: int = SessionOptions.retained,
        memory_per_slot: int | str = SessionOptions.memory_per_slot,
        rebalancing: bool = False,
        group_bits: int | None = None,
        metrics_retained: int = SessionOptions.metrics_retained,
        name: str | None = None,
        small_batches: int | str | None = None,
        changed_functions: ChangedFunctions = SessionOptions.changed_functions,
        retention: Mapping[str, str] | None = None,
        sites: Mapping[str, Sequence[int]] | None = None,
        links: Mapping[str, str] | None = None,
    ) -> None:
        first = functions, scheduling, clock, slots, retained, memory_per_slot, rebalancing, group_bits
        more = metrics_retained, name, small_batches, changed_functions, retention, sites, links
        super().__init__()
        self._prepare(SessionOptions(*first, *more), spark, checkpoint, on)

    def _prepare(self, options: SessionOptions, spark: Any, checkpoint: Any, on: Any) -> None:
        raise NotImplementedError

    @property
    def catalog(self) -> Catalog:
        """The streams and functions that queries may refer to."""
        raise NotImplementedError

    @property
    def scheduling(self) -> str | Schedule:
        """Which operator runs when: dfs, bfs, rr, batch:K or chain. May be set at any time, from the next batch on."""
        raise NotImplementedError

    @scheduling.setter
    def scheduling(self, wanted: str | Schedule) -> None:
        raise NotImplementedError

    def stream(
        self,
        name: str,
        source: Any,
        /,
        *,
        time: str = StreamSettings.time,
        lateness: Duration = StreamSettings.lateness,
        timestamps: Timestamps = StreamSettings.timestamps,
        skew: Duration | None = None,
        max_ahead: Duration = StreamSettings.max_ahead,
        site: str | None = None,
        columns: pa.Schema | None = None,
        on_demand: bool = True,
    ) -> Self:
        """Adds a stream: on Spark any streaming DataFrame, in this process the schema of its rows or a table.

        `timestamps`: external ones come with the rows; internal and latent ones are given when they arrive. `skew` is
        how far an external stream may be behind the others: with it, others need not wait while the stream is silent.
        `max_ahead` is how far ahead times are believed: a duration after the stream's latest time so far, "clock" (a
        day after the clock, for timestamps) or "any"; rows beyond are dead letters. At a `site` rows come in at its
        slots. On a checkpoint, `columns` are the stream's columns as queries shall see them, if not those of the
        source. In memory, with `on_demand=False`, a silent stream holds the others back.
        """
        settings = StreamSettings(time, lateness, timestamps, skew, max_ahead, site)
        self._add_stream(check_name("stream", name), source, settings, columns, on_demand)
        return self

    def _add_stream(self, name: str, source: Any, settings: StreamSettings, columns: Any, on_demand: bool) -> None:
        raise NotImplementedError

    def open_stream(
        self,
        name: str,
        format: Format,
        *,
        path: str | None = None,
        schema: str | None = None,
        options: Mapping[str, str] | None = None,
        columns: Sequence[str] = (),
        time: str = StreamSettings.time,
        lateness: Duration = StreamSettings.lateness,
        timestamps: Timestamps = StreamSettings.timestamps,
        skew: Duration | None = None,
        max_ahead: Duration = StreamSettings.max_ahead,
        site: str | None = None,
    ) -> Self:
        """Adds a stream by its format, one of Spark's or a growing folder of files; or from a source of one's own.

        `columns` are SQL expressions over the source's columns; all of them are taken if there are none.
        """
        source = NamedSource.of(name, format, path, schema, options or {}, columns)
        self._open_stream(source, StreamSettings(time, lateness, timestamps, skew, max_ahead, site))
        return self

    def _open_stream(self, source: NamedSource, settings: StreamSettings) -> None:
        self._needs_checkpoint("sources that have a name")

    def ticks(self) -> Self:
        """Adds a clock that moves time when no rows come; it is recorded as data, so a repeated batch sees it again."""
        self._needs_checkpoint("clock that ticks")

    def query(
        self,
        name: str,
        cql: str,
        *,
        plan: Plan | str | None = None,
        emit_every: Duration | None = None,
        share: bool = True,
        adaptive: Policy | Mode = QueryOptions.adaptive,
        replace: bool = False,
        on_error: OnError | None = None,
        keep: bool = True,
        incomplete: Incomplete = QueryOptions.incomplete,
        since: Instant = QueryOptions.since,
        backfill_rate: int | None = None,
        dialect: str | None = None,
    ) -> ContinuousQuery:
        """Adds a continuous query, also while others run, and perhaps over one: it starts now, or with the next batch.

        `plan` forces a join tree or probe orders. With `share=False` it keeps everything to itself. In memory, with
        `keep=False`, its results are forgotten once polled. `dialect`: whose text it is, as of `ms.run`.

        On a checkpoint, another text than the checkpoint has under the name is taken up as it is if it is the same
        query in other words; otherwise it is refused, or with `replace=True` takes the old one's place. It starts with
        what follows from windows of others; its history says from when on results are complete. Until then they are
        given, or with `incomplete="withhold"` are not; with a `backfill_rate` rows are read again from sources, so many
        a batch. A new query answers from now on or an earlier instant (`since`; "retained": any), as rows are kept.

        With `adaptive="auto"` it watches its streams and migrates to better plans by itself, with "suggest" it only
        says so in its `decisions`.

        `on_error` says what a value does that makes it fail (one that cannot be cast, an overflow): "stop_query" (the
        default at first) puts it in quarantine until it is resumed, replaced or dropped; "dead_letter" sets the rows at
        fault aside, where they can be identified; "stop_job" ends the job.
        """
        begins = incomplete, since, backfill_rate
        options = QueryOptions(plan, emit_every, share, adaptive, replace, on_error, keep, *begins)
        return self._add_query(check_name("query", name), self._standing_alone(cql, self.catalog, dialect), options)

    def _add_query(self, name: str, cql: str, options: QueryOptions) -> ContinuousQuery:
        raise NotImplementedError

    @property
    def queries(self) -> Mapping[str, ContinuousQuery]:
        """The session's queries by name."""
        raise NotImplementedError

    def replace(self, name: str, cql: str, *, dry_run: bool = False, **options: Any) -> dict[str, Any]:
        """Puts another text in a query's place: says what each window starts with, and from when on all is complete.

        Options are `plan`, `incomplete`, `backfill_rate` and `verify`: for so long both run and are compared, on
        `columns` or all, `where` a condition holds; then it changes, or with `then="wait"` by its `switch()`.
        """
        self._needs_checkpoint("state that a changed query could start with")

    def try_(self, texts: Texts | None = None, *, last: Duration = 50, on: str = "local", **change: Any) -> Trial:
        """Tries other texts, `plans`, `emit_every`, `slots` or settings on the last batches, beside the job."""
        self._needs_checkpoint("recent rows to try a change on")

    def drop(self, name: str) -> None:
        """Drops a query, with its state, also one that is not declared; its results go with the next collection."""
        raise NotImplementedError

    def was_dropped(self, name: str, cql: str) -> bool:
        """Whether a query of this very text was dropped by request, so that a program need not declare it again."""
        return False

    def start(self, trigger: str | None = None) -> Self:
        """Starts; `trigger` is an interval such as "5 seconds", or "available" for what there is now; else at once.

        Queries that the checkpoint runs and nobody has declared go on as they are. In memory there is nothing to start.
        """
        raise NotImplementedError

    def push(self, stream: str | Mapping[str, object], rows: object = None) -> None:
        """Takes rows of one stream, or of several by name, as one batch: anything that `ms.run` takes.

        Results that they complete are released when this returns; on a checkpoint counts and the like a batch later.
        The streams that are not among them are silent. On a checkpoint the rows count when this returns: if a sink or a
        listener fails, that is raised here with a note. Any thread may push, but nothing within a batch. Not on Spark.
        """
        raise NotImplementedError

    def stop(self) -> None:
        """Ends the session; on a checkpoint a later one resumes from there."""
        raise NotImplementedError

    def results(self, name: str) -> Any:
        """All results of a query that are released so far: an Arrow table, on Spark a DataFrame."""
        return self.queries[name].results()

    @property
    def history(self) -> Records[StoredMigration]:
        """All changes of all queries, by the batch in which they began, as `ms.open` gives them."""
        found = [change for query in self.queries.values() for change in query.history]
        return Records(sorted(found, key=lambda m: -1 if m.start_batch is None else m.start_batch))

    @property
    def decisions(self) -> Records[StoredDecision]:
        """All decisions about all queries, by moment, as `ms.open` gives them."""
        found = [decision for query in self.queries.values() for decision in query.decisions]
        return Records(sorted(found, key=lambda decision: decision.moment))

    def metrics(self, batches: int | None = None) -> pa.Table:
        """The metrics table: a row per batch, oldest first; with `batches`, about that many from its end."""
        self._needs_checkpoint("metrics")

    @property
    def job(self) -> StoredJob:
        """The job as of its last batch, in the values that `ms.open` gives."""
        self._needs_checkpoint("stored job")

    def rebalance(self, routing: Sequence[int] | None = None, *, protocol: str = "auto", by: str | None = None) -> bool:
        """Reassigns partition groups to slots, their state with them, beginning with the next batch.

        By default so that no slot has much more to do than others; `routing` names the slot of each group. With `by`,
        such as "B.y", only groups of what later stages exchange by that key move, by "mslb" alone. By the protocol
        "mslb" their state moves between two batches. By "split_time" no state moves: their rows go to both slots until
        what the old one holds has ended; by "ptlb", for inner joins, until no row meets what was there before. One that
        is wrong for a query is refused. False if nothing would change.
        """
        self._needs_checkpoint("slots")

    def cancel_rebalance(self) -> None:
        """Has groups that are on their way by "split_time" or "ptlb" stay in their slots; forgets a move to come."""
        self._needs_checkpoint("slots")

    def rescale(self, slots: int) -> bool:
        """Changes the number of slots and moves the state, beginning with the next batch; False if there are so many.

        A session that is opened with `slots` on this checkpoint goes back to those, and one with a range keeps to it.
        """
        self._needs_checkpoint("slots")

    def links(self, wanted: Mapping[str, str] | None = None) -> dict[str, str]:
        """The links between sites; with `wanted`, such as `{"eu -> us": "2 s, 100 KB/s"}`, these change for good.

        Adaptive queries weigh their plans again after the next batch, and say so in their `decisions`.
        """
        self._needs_checkpoint("sites")

    def adapt(self, name: str, mode: str) -> dict[str, str]:
        """Changes how a query adapts while it runs: "off", "suggest" or "auto"; a restart keeps it."""
        self._needs_checkpoint("adaptive queries")

    def process_available(self, *, finish: bool = False) -> Self:
        """Processes what the streams have now and releases what the registers permit; with `finish`, all there is."""
        self._needs_checkpoint("sources to read from")

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end; what made a batch fail is raised here."""
        self._needs_checkpoint("sources to read from")

    def finish(self) -> None:
        """Declares that all streams have ended, and releases every result that waited for that.

        A session that runs works through what the streams have now before. After that, to start again is refused.
        """
        self.stop()

    def sink(self, name: str, write: Callable[[Any, int], None]) -> None:
        """Calls `write(frame, batch_id)`, or its method `deliver`, with results that it has not had, by their start."""
        self._needs_checkpoint("sinks")

    @property
    def waits(self) -> list[str]:
        """The queries that one of their streams holds back, in words."""
        raise NotImplementedError

    @property
    def slot_decisions(self) -> list[dict[str, Any]]:
        """What was decided about slots and groups, also to stay, with forecast and reason, oldest first."""
        self._needs_checkpoint("slots")

    @property
    def moves(self) -> list[dict[str, Any]]:
        """The changes of slots that the checkpoint remembers, oldest first."""
        self._needs_checkpoint("slots")

    def resume(self, name: str) -> dict[str, Any]:
        """Resumes a query in quarantine without the rows since; gives why it was stopped, and in which batch."""
        self._needs_checkpoint("queries in quarantine")

    def before_batch(self, call: Callable[[int], None]) -> None:
        """Calls `call(batch_id)` before each batch; migrations can be requested there."""
        self._needs_checkpoint("batches of its own")

    def on_progress(self, listener: Callable[[dict[str, Any]], None]) -> None:
        """Calls `listener` with an account of each batch."""
        self._needs_checkpoint("accounts of batches")

    def _needs_checkpoint(self, what: str) -> NoReturn:
        raise JobError(f"a session in memory has no {what}", hint=ON_A_CHECKPOINT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def __repr__(self) -> str:
        where = getattr(self, "checkpoint", None)
        return f"Session({'in memory' if where is None else where!r}, queries={list(self.queries)})"

    def _repr_html_(self) -> str:
        return session_html(getattr(self, "checkpoint", "in memory"), self.queries.values(), self.catalog)


# Signatures and help show the options.
Session.__new__.__wrapped__ = Session.__init__  # type: ignore[attr-defined]
