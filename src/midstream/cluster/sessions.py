"""One name for sessions, wherever they run.

A session without a checkpoint keeps everything in memory; on a checkpoint it runs in this process or on Spark. What
only a checkpoint makes possible is refused by the others, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

import pyarrow as pa

from midstream.algebra.declarations import Catalog, Timestamps, UserFunction
from midstream.algebra.quantities import size
from midstream.checkpoint.stored import StoredDecision, StoredMigration
from midstream.cluster.continuous_query import ContinuousQuery
from midstream.errors import InputError, JobError
from midstream.html import Records, section, table
from midstream.inputs import Duration

if TYPE_CHECKING:
    from typing import Self

    from midstream.checkpoint.files import Files
    from midstream.checkpoint.reading import StoredJob
    from midstream.cluster.backend import Backend
    from midstream.cluster.local.embedded_session import Session as InMemory
    from midstream.cluster.session import Session as OnCheckpoint
    from midstream.job.arrival import Carry
    from midstream.job.changed_functions import ChangedFunctions
    from midstream.optimizer.plans import Plan
    from midstream.scheduling.schedule import Schedule


class Session:
    """Streams and continuous queries over them; queries can be added, migrated and dropped while rows keep coming.

    `Session(spark, checkpoint="path")` runs on Spark; without a SparkSession a local one is opened.
    `Session(checkpoint="path", on="local")` runs in this process on the same kind of checkpoint.
    `Session()` keeps everything in memory: rows are pushed, and nothing is left when it ends.

    Declare streams with `stream` or `open_stream`, queries with `query`, then `start`. `queries` has what runs; a query
    has its `plan`, `results()`, `history`, `decisions` and `migrate`. As a context manager it stops at the end.

    On a checkpoint there are more settings: `slots` (how many tasks share the work of a batch), `memory_per_slot`,
    `retained`, `carry`, `rebalancing`, `metrics_retained`, `small_batches`, `changed_functions`, `retention` and
    `name`.
    In memory, `clock` gives the time of rows that the session stamps. `functions` are the user's own functions,
    `scheduling` says which operator runs when.

    >>> session = Session()
    >>> _ = session.stream("A", pa.schema([("ts", pa.int64()), ("k", pa.int64())]))
    >>> query = session.query("ones", "SELECT k FROM A [RANGE 5] WHERE k = 1")
    >>> session.push("A", [{"ts": 1, "k": 1}, {"ts": 2, "k": 2}])
    >>> query.results().to_pylist()
    [{'k': 1, 'valid_from': 1, 'valid_to': 7}]
    """

    @overload
    def __new__(
        cls,
        spark: None = None,
        *,
        checkpoint: None = None,
        on: Literal["local"] | None = None,
        functions: Sequence[UserFunction] = (),
        scheduling: str | Schedule = "dfs",
        clock: Callable[[], int] | None = None,
    ) -> InMemory: ...

    @overload
    def __new__(
        cls,
        spark: Any = None,
        *,
        checkpoint: Any,
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
    ) -> OnCheckpoint: ...

    def __new__(
        cls,
        spark: Any = None,
        *,
        checkpoint: Any = None,
        on: object = None,
        functions: Sequence[UserFunction] = (),
        scheduling: str | Schedule | None = None,
        clock: Callable[[], int] | None = None,
        slots: int | str | None = None,
        retained: int = 10,
        carry: Carry = "needed",
        memory_per_slot: int | str = "1 GB",
        rebalancing: bool = False,
        group_bits: int | None = None,
        metrics_retained: int = 100_000,
        name: str | None = None,
        small_batches: int | str | None = None,
        changed_functions: ChangedFunctions = "refuse",
        retention: Mapping[str, str] | None = None,
    ) -> Session:
        """A session of the kind that the arguments ask for."""
        return super().__new__(_kind(spark, checkpoint, on) if cls is Session else cls)

    @property
    def catalog(self) -> Catalog:
        """The streams and functions that queries may refer to."""
        raise NotImplementedError

    def stream(
        self,
        name: str,
        source: Any,
        /,
        *,
        time: str = "ts",
        lateness: Duration = 0,
        timestamps: Timestamps = "external",
        skew: Duration | None = None,
        max_ahead: Duration = "clock",
    ) -> Self:
        """Adds a stream: on Spark any streaming DataFrame, in this process the schema of its rows or a table."""
        raise NotImplementedError

    def open_stream(self, name: str, format: str, *, path: str | None = None, schema: str | None = None) -> Self:
        """Adds a stream from a source by its format: one of Spark's, or a growing folder of files in this process."""
        self._needs_checkpoint("sources that have a name")

    def query(
        self,
        name: str,
        cql: str,
        *,
        plan: Plan | str | None = None,
        emit_every: Duration | None = None,
        share: bool = True,
    ) -> ContinuousQuery:
        """Adds a continuous query, also while others run. `plan` forces a join tree or probe orders."""
        raise NotImplementedError

    @property
    def queries(self) -> Mapping[str, ContinuousQuery]:
        """The session's queries by name."""
        raise NotImplementedError

    def drop(self, name: str) -> None:
        """Drops a query, with its state."""
        raise NotImplementedError

    def start(self, trigger: str | None = None) -> Self:
        """Starts to read rows; in memory there is nothing to start."""
        raise NotImplementedError

    def push(self, stream: str | Mapping[str, object], rows: object = None) -> None:
        """Takes rows of one stream, or of several by name, as one batch: anything that `ms.run` takes."""
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
        self._needs_checkpoint("a stored job")

    def rebalance(self, routing: Sequence[int] | None = None, *, protocol: str = "auto") -> bool:
        """Reassigns partition groups to slots so that they share the load; False if nothing would change."""
        self._needs_checkpoint("slots")

    def rescale(self, slots: int) -> bool:
        """Changes the number of slots and moves the state; False if the job has so many already."""
        self._needs_checkpoint("slots")

    def adapt(self, name: str, mode: str) -> dict[str, str]:
        """Changes how a query adapts while it runs: "off", "suggest" or "auto"."""
        self._needs_checkpoint("adaptive queries")

    def process_available(self, *, finish: bool = False) -> Self:
        """Processes what the streams have now and returns; with `finish` the streams have ended."""
        self._needs_checkpoint("sources to read from")

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end; what made a batch fail is raised here."""
        self._needs_checkpoint("sources to read from")

    def finish(self) -> None:
        """Declares that all streams have ended, and releases every result that waited for that."""
        self.stop()

    def sink(self, name: str, write: Callable[[Any, int], None]) -> None:
        """Calls `write(frame, batch_id)` with the results that each batch releases, in order of their start."""
        self._needs_checkpoint("sinks")

    def on_progress(self, listener: Callable[[dict[str, Any]], None]) -> None:
        """Calls `listener` with an account of each batch."""
        self._needs_checkpoint("accounts of batches")

    def _needs_checkpoint(self, what: str) -> NoReturn:
        raise JobError(
            f"a session in memory has no {what}", hint='open it on a checkpoint: Session(checkpoint="path", on="local")'
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def __repr__(self) -> str:
        where = getattr(self, "checkpoint", None)
        return f"Session({'in memory' if where is None else where!r}, queries={list(self.queries)})"

    def _repr_html_(self) -> str:
        def row(query: ContinuousQuery) -> list[Any]:
            known = query.statistics
            plan = query.plan.text or "without joins"
            moving = f" → {query.migrating}" if query.migrating else ""
            return [query.name, f"{plan}{moving}", f"{known['state_rows']:,} rows", size(known["state_bytes"])]

        streams = [[s.name, ", ".join(s.columns.names), s.time] for s in self.catalog.streams.values()]
        return section(
            getattr(self, "checkpoint", "in memory"),
            table(["query", "plan", "state", "size"], [row(query) for query in self.queries.values()]),
            table(["stream", "columns", "time"], streams),
        )


def _kind(spark: Any, checkpoint: Any, on: object) -> type[Session]:
    """The class of sessions that the arguments ask for."""
    if spark is None and checkpoint is None and on in (None, "local"):
        from midstream.cluster.local.embedded_session import Session as InMemory

        return InMemory
    if checkpoint is None:
        raise InputError("a session on Spark needs a checkpoint", hint='Session(spark, checkpoint="path")')
    from midstream.cluster.session import Session as OnCheckpoint

    return OnCheckpoint
