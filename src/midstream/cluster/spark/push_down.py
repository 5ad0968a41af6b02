"""What Spark keeps back before rows cross into Python: rows that nobody selects, and columns that nobody reads.

A stream's rows are selected if every source that reads the stream, in any plan at work, has a selection right above it:
then a row that none of them keeps is of use to nobody. Our own selections stay where they are, so Spark may keep too
much, never too little. Rows without a usable time and late ones pass, because they are dead letters; and what time it
is and how many rows there were is observed before the selection, so dropped rows move time and are counted as before.
What a task observes may count each time it runs, and it runs again if its output is lost with an executor; then the
batch is counted again.

Rows come with all columns of their streams. Whether one is to be buried depends on its time alone, so Spark can tell:
only those rows keep the columns that nobody reads, and a dead letter is the row as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.expressions import TRUE, Expression, conjunction
from midstream.algebra.physical import Filter, PhysicalNode, SourceNode
from midstream.algebra.time import BEGINNING, FARTHEST
from midstream.checkpoint.records import grouped
from midstream.cluster.spark.environment import is_one_process
from midstream.cluster.spark.frames.predicates import spark_condition
from midstream.cluster.spark.versions import COUNTS_LAST_ATTEMPTS
from midstream.connectors.files.bad_rows import BAD
from midstream.job.queries.running_query import RunningQuery
from midstream.job.task.exchange import PORT, WHOLE, Layout, width_of
from midstream.job.task.reports import Report

_FIRST = "#first"
_FIRST_ROW = "IF((monotonically_increasing_id() & 8589934591) = 0, spark_partition_id(), NULL)"
"""Of the first row of each partition the partition, of others nothing."""

FEW_BYTES = 32
"""Up to how many bytes of a row that nobody reads travel with it: the column that packs them is hardly narrower."""

_RUNS = "runs"
"""The partitions that were observed, one that was observed again once more."""

ALL_ATTEMPTS = "spark.sql.legacy.observeMetricsAggregateAllAttempts"

_UNIVERSAL = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00"})


@dataclass(slots=True)
class PushDown:
    """The selections of a batch, by port: a condition for Spark, and the text of the stream's ticks."""

    streams: Mapping[int, StreamDeclaration]
    conditions: Mapping[int, str]
    ticks: Mapping[int, str]
    unread: Sequence[str] = ()
    """The shared columns that nobody reads: only rows that are to be buried bring them."""
    observed: Observation = field(default_factory=Observation)
    rows: DataFrame | None = None

    def select(
        self, rows: DataFrame, registers: Mapping[str, int], until: Mapping[str, int] = MappingProxyType({})
    ) -> DataFrame:
        """The rows that somebody needs; `until` is how far ahead each stream is believed."""
        if not self.conditions and not self.unread:
            return rows
        self.rows = rows
        # Numbers that change with every batch would make Spark compile every batch again; an array is passed as a
        # value.
        known = ", ".join(f"{registers.get(s.name, BEGINNING)}L" for s in self._by_port())
        register = f"get(array({known}), `{PORT}`)"
        believed = ", ".join(f"{until.get(s.name, FARTHEST - 1)}L" for s in self._by_port())
        reach = f"get(array({believed}), `{PORT}`)"
        return self._narrowed(self._selected(rows, register, reach), register, reach)

    def _selected(self, rows: DataFrame, register: str, reach: str) -> DataFrame:
        if not self.conditions:
            return rows
        observations, kept = list(self._observations(register, reach)), F.expr(self._kept(register, reach))
        if not can_repeat(rows):
            return rows.observe(self.observed, *observations).where(kept)
        runs = F.expr(f"collect_list(`{_FIRST}`)").alias(_RUNS)
        marked = rows.select("*", F.expr(_FIRST_ROW).alias(_FIRST))
        return marked.observe(self.observed, *observations, runs).where(kept).drop(_FIRST)

    def _narrowed(self, rows: DataFrame, register: str, reach: str) -> DataFrame:
        """The rows without what nobody reads; of those that are to be buried it is packed into one column."""
        if not self.unread:
            return rows
        dead = " ".join(f"WHEN {port} THEN {_unusable(ticks, register, reach)}" for port, ticks in self.ticks.items())
        packed = ", ".join(f"`{name}`" for name in self.unread)
        kept = [f"`{name}`" for name in rows.columns if name not in self.unread]
        return rows.selectExpr(*kept, f"IF(CASE `{PORT}` {dead} END, array(struct({packed})), NULL) AS `{WHOLE}`")

    def _by_port(self) -> list[StreamDeclaration]:
        return [self.streams[port] for port in sorted(self.streams)]

    def _observations(self, register: str, reach: str) -> Iterator[Column]:
        for port, ticks in ((port, self.ticks[port]) for port in self.conditions):
            own = f"`{PORT}` = {port}"
            usable = f"{own} AND {ticks} >= {register} AND {ticks} > {-FARTHEST}L AND {ticks} <= {reach}"
            yield F.expr(f"max(CASE WHEN {usable} THEN {ticks} END)").alias(f"latest{port}")
            yield F.expr(f"count_if({own})").alias(f"rows{port}")

    def _kept(self, register: str, reach: str) -> str:
        whens = " ".join(
            f"WHEN {port} THEN {condition} OR {_unusable(self.ticks[port], register, reach)}"
            for port, condition in self.conditions.items()
        )
        return f"CASE `{PORT}` {whens} ELSE TRUE END"

    def account(self, reports: Sequence[Report]) -> list[Report]:
        """What the dropped rows would have reported, given the reports of the others."""
        if not self.conditions:
            return []
        record = self.observed.get
        runs = record.get(_RUNS) or []
        if len(runs) > len(set(runs)):
            record = {**record, **self._counted_anew()}
        dropped = Report(-1, -1)
        for port in self.conditions:
            name = self.streams[port].name
            passed = sum(report.streams.rows.get(name, 0) for report in reports)
            dropped.streams.rows[name] = max(0, record[f"rows{port}"] - passed)
            if record[f"latest{port}"] is not None:
                dropped.streams.latest[name] = record[f"latest{port}"]
        return [dropped]

    def _counted_anew(self) -> dict[str, int]:
        """The rows of each stream, by reading the batch once more; what repeats in such a job is counted once."""
        assert self.rows is not None
        counted = {row[0]: row[1] for row in self.rows.groupBy(PORT).count().collect()}
        return {f"rows{port}": counted.get(port, 0) for port in self.conditions}


def can_repeat(rows: DataFrame) -> bool:
    """Whether what tasks observe may count twice: their output can be lost with an executor, and Spark tells of all.

    Since 4.3 Spark only tells of the last run of each task, unless it is told otherwise.
    """
    session = rows.sparkSession
    if is_one_process(session):
        return False
    return session.conf.get(ALL_ATTEMPTS, "false" if COUNTS_LAST_ATTEMPTS else "true") == "true"


def _unusable(ticks: str, register: str, reach: str) -> str:
    """Whether a row is to be buried, by its time; null never counts as false."""
    return f"({ticks} IS NULL OR {ticks} < {register} OR {ticks} > {reach} OR {ticks} <= {-FARTHEST}L)"


def push_down(
    queries: Iterable[RunningQuery],
    streams: Mapping[int, StreamDeclaration],
    layout: Layout,
    read: Mapping[str, Collection[str]],
    zone: Callable[[], str],
) -> PushDown:
    """What Spark can select of each stream, whose columns lie as in the layout.

    `read` are the columns that are read, of streams that have others; `zone` asks Spark's session for its time zone.
    """
    wanted = selections(queries)
    conditions, ticks, needed = {}, {}, set[str]()
    for port, declaration in streams.items():
        names = {
            name: layout.columns[place].name
            for name, place in zip(layout.schemas[port].names, layout.places[port], strict=True)
        }
        condition = _any(wanted.get(declaration.name, ()), _certain(declaration, names))
        time = _ticks(declaration, names, zone)
        if time is None:
            needed.update(names.values())
            continue
        ticks[port] = time
        needed.update(names[name] for name in {*read.get(declaration.name, names), BAD} & names.keys())
        if condition is not None:
            conditions[port] = condition + (f" OR `{names[BAD]}` IS NOT NULL" if BAD in names else "")
    unread = [f for f in layout.columns if f.name not in needed]
    few = sum(width_of(f.type) for f in unread) <= FEW_BYTES
    return PushDown(streams, conditions, ticks, [] if few else [f.name for f in unread])


def selections(queries: Iterable[RunningQuery]) -> dict[str, list[tuple[SourceNode, Expression]]]:
    """The selections right above the sources of each stream, over all plans at work; true where there is none."""
    running = (own for query in queries for own in query.all_plans)
    above = (each for own in running for each in _above_sources(own.plan.physical))
    return grouped((source.stream.name, (source, conjunction(predicates))) for source, predicates in above)


def selection_lines(
    queries: Iterable[RunningQuery], streams: Iterable[StreamDeclaration], zone: Callable[[], str]
) -> list[str]:
    """What Spark selects of some streams, one line each, in the names of their columns."""
    wanted = selections(queries)
    lines = []
    for declaration in streams:
        names = {name: name for name in declaration.columns.names}
        condition = _any(wanted.get(declaration.name, ()), _certain(declaration, names))
        if condition is not None and _ticks(declaration, names, zone) is not None:
            lines.append(f"Spark selects {declaration.name} where {condition}")
    return lines


def _above_sources(
    plan: PhysicalNode, above: tuple[Expression, ...] = ()
) -> Iterator[tuple[SourceNode, tuple[Expression, ...]]]:
    match plan:
        case SourceNode():
            yield plan, above
        case Filter(predicate=predicate):
            yield from _above_sources(plan.input, (*above, predicate))
        case _:
            for child in plan.inputs:
                yield from _above_sources(child)


def _own_names(source: SourceNode) -> dict[str, str]:
    """The stream's names of a source's columns."""
    return {name: name.removeprefix(f"{source.stream.alias}.") for name in source.schema.names}


def _certain(declaration: StreamDeclaration, names: Mapping[str, str]) -> dict[str, str]:
    """The columns that Spark sees as queries do; a slot may stamp rows again, if Spark's clock goes backwards."""
    stamped = declaration.timestamps != "external"
    return {name: own for name, own in names.items() if not (stamped and name == declaration.time)}


def _any(sources: Sequence[tuple[SourceNode, Expression]], names: Mapping[str, str]) -> str | None:
    """A condition that holds for every row that some source keeps; None if there is nothing to select by."""
    conditions: dict[str, None] = {}
    for source, predicate in sources:
        own = tuple((name, names[column]) for name, column in _own_names(source).items() if column in names)
        condition = None if predicate == TRUE else spark_condition(predicate, own)
        if condition is None:
            return None
        conditions[condition] = None
    return " OR ".join(conditions) if conditions else None


def _ticks(declaration: StreamDeclaration, names: Mapping[str, str], zone: Callable[[], str]) -> str | None:
    """A stream's time in ticks, for Spark; None where that depends on settings."""
    kind = declaration.columns.field(declaration.time).type
    column = f"`{names[declaration.time]}`"
    if pa.types.is_uint64(kind):
        return None
    if pa.types.is_integer(kind):
        return f"CAST({column} AS BIGINT)"
    if kind.tz is None and zone() not in _UNIVERSAL:
        return None
    return f"unix_micros(CAST({column} AS TIMESTAMP))"
