"""The public API."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from os import PathLike
from typing import Any, Literal

import pyarrow as pa

from midstream.adaptation.plan_changes import Decision
from midstream.adaptation.policy import Mode, Policy
from midstream.algebra.declarations import (
    AggregateFunction,
    Catalog,
    ScalarFunction,
    SqlFunction,
    UserFunction,
)
from midstream.algebra.plan import Relation
from midstream.algebra.semantics import evaluate
from midstream.algebra.snapshots import snapshot_equal
from midstream.algebra.time import ticks
from midstream.checkpoint.plotting import change_of_record, plot_results
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.stored_results import read_query_results
from midstream.cluster.finite_run import FiniteRun
from midstream.cluster.local.embedded import run as run_embedded
from midstream.cluster.local.observing import observe
from midstream.cluster.local.whole_tables import Evaluated, WholeTables, answered
from midstream.errors import (
    DeadLetterWarning,
    InputError,
    InternalError,
    JobError,
    MidstreamError,
    MigrationError,
    QueryError,
)
from midstream.html import Records, rows_html, section
from midstream.html import table as html_table
from midstream.inputs import Duration, Time, catalog_of, table_of, tables_of
from midstream.inputs.frames import polars_of
from midstream.inputs.timeless import with_times
from midstream.job.task.ingest import DeadLetters, disorder
from midstream.language import parse
from midstream.language.foreign import to_cql
from midstream.language.result_order import KEY, result_order
from midstream.migration.in_part import require_part
from midstream.migration.registry import strategy_named
from midstream.operators.result_order import sorted_by
from midstream.optimizer.plans import Plan, enumerate_plans
from midstream.scheduling.schedule import schedule_of

__all__ = [
    "AggregateFunction",
    "DeadLetterWarning",
    "DeadLetters",
    "InputError",
    "InternalError",
    "JobError",
    "MidstreamError",
    "Migration",
    "MigrationError",
    "Plan",
    "QueryError",
    "Result",
    "ScalarFunction",
    "SqlFunction",
    "open",
    "plans",
    "read_results",
    "reference",
    "run",
    "snapshot_equal",
]


@dataclass(frozen=True, slots=True)
class Migration:
    """Migrates a running query to another plan once its input's time has reached `at`.

    Only the part in which the plans differ migrates, unless `part` is "whole". The strategy must be legal for both
    plans; with the part "smallest" it is enough that it is legal for the part. With `verify`, a duration, a copy of the
    query migrates first, both are compared for so long after that, and the plan changes only if nothing differs.

    >>> Migration(at=400, plan="(A (B C))", strategy="genmig").strategy
    'genmig'
    """

    at: int | dt.datetime
    plan: Any
    strategy: str = "auto"
    part: Literal["auto", "smallest", "whole"] = "auto"
    verify: Duration | None = None

    def __post_init__(self) -> None:
        require_part(self.part)
        if isinstance(self.at, bool) or not isinstance(self.at, (int, dt.datetime)):
            raise MigrationError(
                f"a migration starts at a time, not at {self.at!r}", hint="give an integer or a datetime"
            )
        strategy_named(self.strategy)


@dataclass(frozen=True, slots=True)
class Question:
    """A query bound to the streams it asks: the plan, the rows and the catalog."""

    plan: Relation
    tables: Mapping[str, pa.Table]
    catalog: Catalog


def ask(
    query: str,
    inputs: Mapping[str, object],
    *,
    time: Time | None = "ts",
    lateness: Duration | Mapping[str, Duration] | None = None,
    functions: Sequence[UserFunction] = (),
    keys: bool = False,
    evaluated: Evaluated = answered,
) -> Question:
    """Binds a query to its inputs: everything a runtime or the oracle needs. Without a lateness, nothing is late.

    With `keys` the plan also gives the columns by which the result is put in order. Recursive queries are `evaluated`
    at once.
    """
    tables, time, timeless = with_times(tables_of(inputs), time)
    schemas = {name: table.schema for name, table in tables.items()}
    catalog = catalog_of(schemas, time, lateness=lateness or 0, functions=functions)
    if lateness is None:
        catalog = _with_measured_lateness(catalog, tables)
    whole = WholeTables(tables, replace(catalog, finite=True, timeless=timeless), evaluated)
    plan = parse(query, replace(whole.catalog, fixpoint=whole.fixpoint), keys=keys)
    return Question(plan, *whole.with_constants(plan))


def _with_measured_lateness(catalog: Catalog, tables: Mapping[str, pa.Table]) -> Catalog:
    """Streams declared as late as their finite tables are."""
    streams = {
        name: replace(stream, lateness=disorder(tables[name].column(stream.time), name))
        for name, stream in catalog.streams.items()
    }
    return replace(catalog, streams=streams)


def reference(
    query: str,
    inputs: Mapping[str, object],
    *,
    time: Time | None = "ts",
    lateness: Duration | Mapping[str, Duration] | None = None,
    functions: Sequence[UserFunction] = (),
) -> pa.Table:
    """The oracle's answer: naive, snapshot by snapshot, for small inputs. To the oracle no row is late."""
    question = ask(query, inputs, time=time, lateness=lateness, functions=functions, evaluated=evaluate)
    return evaluate(question.plan, question.tables, question.catalog)


@dataclass(frozen=True, slots=True)
class Result:
    """All that a run gives: the results, the migrations that ended, what was decided, and the rows left out."""

    table: pa.Table
    history: Records[Any] = Records()
    decisions: Records[Decision] = Records()
    dead_letters: tuple[DeadLetters, ...] = ()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def to_pandas(self) -> Any:
        """The results as a pandas DataFrame."""
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        """The results as a Polars DataFrame."""
        return polars_of(self.table)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The results, for whatever reads Arrow."""
        return self.table.__arrow_c_stream__(requested_schema)

    def plot(self) -> Any:
        """Draws how many results are valid over time, and the migrations, as a figure of matplotlib."""
        return plot_results(self.table, [change_of_record(record) for record in self.history])

    def _repr_html_(self) -> str:
        parts = [rows_html(self.table)]
        parts += [section("migrations", self.history._repr_html_())] if self.history else []
        parts += [section("decisions", self.decisions._repr_html_())] if self.decisions else []
        dead = [[letters.stream, letters.reason, len(letters)] for letters in self.dead_letters]
        parts += [section("dead letters", html_table(["stream", "reason", "rows"], dead))] if dead else []
        return "".join(parts)


def run(
    query: str,
    inputs: Mapping[str, object],
    *,
    time: Time | None = "ts",
    on: Any = "embedded",
    plan: Plan | str | None = None,
    migrations: Sequence[Migration] = (),
    batch_rows: int = 10_000,
    scheduling: str | None = None,
    lateness: Duration | Mapping[str, Duration] | None = None,
    emit_every: Duration | None = None,
    functions: Sequence[UserFunction] = (),
    progress: Callable[[int], None] | None = None,
    adaptive: Policy | Mode = "off",
    full: bool = False,
    strategy: str | None = None,
    dialect: str | None = None,
) -> Any:
    """Answers a query over finite inputs: the selected columns with `valid_from` and `valid_to`, or with `ts`.

    `time` names the time column, of all inputs or of each; rows of a table whose `time` is None have always been there.
    Rows come in the order of time, or in that of an `ORDER BY`. With a `dialect`, "spark", "flink",
    "risingwave" or "ksqldb", the query is one of that system, whose windows and interval joins become windows of this
    language.

    With `full=True` the answer is a `Result`: the table, the migrations that ended, the decisions and the dead letters.

    `plan` forces a join tree or probe orders, `migrations` change the plan on the way, `batch_rows` and
    `scheduling` (dfs, bfs, rr, batch:K or chain: which operator runs when) say how the input is processed; none of
    them changes what the answer means. `progress` is called with the number of rows of each batch done. With
    `adaptive="auto"` the query observes its streams and migrates to better plans automatically, with "suggest" it only
    proposes them.

    Rows may be out of order by `lateness`; by default as much as the tables are. Rows that are later or have no time
    are left out with a `DeadLetterWarning`, counted in the result's schema metadata (`midstream.dead_letters`: JSON, a
    count per stream and reason). `strategy` is another name of `scheduling`.
    """
    if strategy is not None and scheduling is not None:
        raise InputError("scheduling= and strategy= are two names of one setting", hint="use scheduling= alone")
    if dialect is not None:
        query = to_cql(query, dialect, time or {})
    question = ask(query, inputs, time=time, lateness=lateness, functions=functions, keys=True)
    schedule = scheduling or strategy or "dfs"
    schedule_of(schedule)  # refused by every runtime if it is none, also by one that has no use for it
    every = None if emit_every is None else ticks(emit_every, question.plan.domain)
    rows = _whole_number(batch_rows)
    how = FiniteRun(plan, _migrations(migrations), rows, schedule, every, adaptive, progress)
    table = _run(query, question, on, how)
    table = sorted_by(table, result_order(query, table.schema))
    table = table.drop_columns([name for name in table.column_names if name.startswith(KEY)])
    told = how.told
    return Result(table, Records(told.history), Records(told.decisions), tuple(told.dead_letters)) if full else table


def _whole_number(batch_rows: int) -> int:
    if isinstance(batch_rows, bool) or not isinstance(batch_rows, Integral) or batch_rows < 1:
        raise QueryError(f"batch_rows must be a positive number of rows, not {batch_rows!r}")
    return int(batch_rows)


def _migrations(wanted: Sequence[Migration]) -> tuple[Migration, ...]:
    if isinstance(wanted, Sequence) and all(isinstance(migration, Migration) for migration in wanted):
        return tuple(wanted)
    raise MigrationError(
        "migrations are given as a list of Migration", hint='write [Migration(at=400, plan="(A (B C))")]'
    )


def _run(query: str, question: Question, on: Any, how: FiniteRun) -> pa.Table:
    """Runs in this process, or on Spark; then `on` is a session, or "spark" for the active one or a new local one."""
    if on == "embedded":
        return run_embedded(question.plan, question.tables, question.catalog, how)
    if isinstance(on, str) and on != "spark":
        raise InputError(f"cannot run on {on!r}", hint='use on="embedded", on="spark" or a SparkSession')
    from midstream.cluster.spark import run_on_spark, spark_session

    session = spark_session() if isinstance(on, str) else on
    return run_on_spark(query, question.plan, question.tables, question.catalog, session, how)


def plans(
    query: str,
    streams: Mapping[str, object],
    *,
    time: Time = "ts",
    functions: Sequence[UserFunction] = (),
) -> list[Plan]:
    """Equivalent plans of a query over streams of the given schemas (or tables), best first: each can be `plan=`.

    Which is best depends on the streams: given tables, they are looked at; given schemas, everything is a guess.
    """
    schemas = {name: s if isinstance(s, pa.Schema) else table_of(name, s).schema for name, s in streams.items()}
    tables = {name: s for name, s in streams.items() if not isinstance(s, pa.Schema)}
    if len(tables) == len(streams):
        question = ask(query, tables, time=time, functions=functions)
        return enumerate_plans(question.plan, statistics=observe(question.plan, question.tables, question.catalog))
    return enumerate_plans(parse(query, catalog_of(schemas, time, functions=functions)))


def open(checkpoint: str | PathLike[str]) -> StoredJob:
    """The job at a checkpoint, read only, whether it runs, has stopped, or runs elsewhere.

    Its queries, plans, migrations, decisions, streams, slots, requests, metrics, dead letters and results are values as
    of the newest batch; `at(batch)` gives them as of another whose manifest is retained. Beside a running job that
    batch is retained for a while (`retained` of the session). After that its results, dead letters and metrics may have
    gone, and to read them is an error: `refresh()` gives the job as of the newest batch.
    """
    return StoredJob.open(str(checkpoint))


def read_results(checkpoint: str | PathLike[str], query: str, *, current: bool = False) -> pa.Table:
    """The results of a query of a job that it has released so far, in its order, or else by their start.

    With `current`, only those that are valid at the last instant for which all results are known.
    """
    return read_query_results(str(checkpoint), query, current=current)
