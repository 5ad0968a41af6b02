"""The embedded runtime: continuous queries in this process, without a JVM."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from midstream.adaptation.adaptive import Adaptive
from midstream.adaptation.policy import policy_of
from midstream.algebra.declarations import Catalog, StreamDeclaration
from midstream.algebra.plan import Relation, streams_of
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.cluster.finite_run import FiniteRun
from midstream.cluster.local.live_query import LiveQuery
from midstream.cluster.local.planned_changes import PlannedChange, planned_changes
from midstream.errors import InputError
from midstream.job.task.ingest import OUT_OF_RANGE, DeadLetters, checked, in_range, report, ticks_of
from midstream.migration.history import MigrationRecord
from midstream.operators.elements import Elements, Indices, Ticks
from midstream.optimizer.plans import plan_query


class StreamProgress:
    """A stream's progress: its register, and what it could not use."""

    def __init__(self, declaration: StreamDeclaration) -> None:
        self.declaration = declaration
        self.latest = BEGINNING
        self.register = BEGINNING
        self.dead: list[DeadLetters] = []

    def accept(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Ticks]:
        """The usable rows of a batch with their ticks; the rest is kept as dead letters."""
        name = self.declaration.name
        if self.register == INFINITY:
            raise InputError(f"stream {name} has ended", hint="nothing can follow what was promised to be the last row")
        ticks, valid = ticks_of(rows.column(self.declaration.time), name)
        if valid is not None:
            self._bury(rows, ~valid, "null time")
            rows, ticks = _where(rows, ticks, valid)
        odd = ~in_range(ticks)
        if odd.any():
            self._bury(rows, odd, OUT_OF_RANGE)
            rows, ticks = _where(rows, ticks, ~odd)
        if len(ticks) == 0:
            return rows, ticks
        if int(ticks[0]) >= self.latest and bool((ticks[1:] >= ticks[:-1]).all()):
            self.latest = int(ticks[-1])
            return rows, ticks
        # Each row is held against the rows before it, so that what is late does not depend on batches.
        reached = np.maximum(np.maximum.accumulate(ticks), self.latest)
        self.latest = int(reached[-1])
        late = reached - ticks > self.declaration.lateness
        if late.any():
            self._bury(rows, late, "late")
            rows, ticks = _where(rows, ticks, ~late)
        return rows, ticks

    def raise_register(self) -> None:
        """Raises the register to what the stream promises after the rows it has had."""
        if self.latest > BEGINNING:
            self.register = max(self.register, self.latest - self.declaration.lateness)

    def close(self) -> None:
        """Nothing more will come."""
        self.register = INFINITY

    def _bury(self, rows: pa.RecordBatch, which: np.ndarray, reason: str) -> None:
        chosen = rows.select(self.declaration.visible.names).take(pa.array(np.flatnonzero(which)))
        self.dead.append(DeadLetters(self.declaration.name, reason, pa.Table.from_batches([chosen])))


class Fed(Protocol):
    """A query in this process that is fed batch by batch."""

    @property
    def history(self) -> Sequence[MigrationRecord]:
        """The migrations that have ended."""

    def feed(self, stream: str, rows: pa.RecordBatch, ticks: Ticks) -> None:
        """Takes rows of a stream with their times."""

    def advance(self, registers: Mapping[str, int]) -> Elements | None:
        """Learns how far the streams are; gives what that releases."""


def run(plan_of: Relation, inputs: Mapping[str, pa.Table], catalog: Catalog, how: FiniteRun) -> pa.Table:
    """Runs a query over finite tables, batch by batch, and gives all its results in order."""
    query = LiveQuery(plan_query(plan_of, how.plan, how.emit_every), catalog.functions, schedule=how.scheduling)
    policy = policy_of(how.adaptive)
    if policy is not None:
        query.adaptive = Adaptive(query.plan, policy, catalog.functions, time.monotonic)
    changes = planned_changes(query.plan, how.migrations, how.emit_every, catalog)
    released: list[Elements] = []
    for came in played(query, streams_read(plan_of, catalog), inputs, changes, how):
        if isinstance(came, PlannedChange):
            reason = f"planned at {came.at}"
            query.migrate(came.plan, came.strategy, part=came.part, trigger=reason, queue=True, verify=came.verify)
        elif came is not None:
            released.append(came)
            if how.results is not None:
                how.results(query.table(came))
    if query.adaptive is not None:
        how.told.decisions.extend(query.adaptive.history)
    tables = [query.table(part) for part in released]
    return report(pa.concat_tables(tables or [query.table(None)]), how.told.dead_letters)


def streams_read(plan_of: Relation, catalog: Catalog) -> dict[str, StreamProgress]:
    """The streams that a query reads, at their beginnings."""
    return {name: StreamProgress(catalog.streams[name]) for name in sorted({s.name for s in streams_of(plan_of)})}


def played(
    query: Fed,
    streams: Mapping[str, StreamProgress],
    inputs: Mapping[str, pa.Table],
    changes: Sequence[PlannedChange],
    how: FiniteRun,
) -> Iterator[PlannedChange | Elements | None]:
    """Feeds a query all its input: gives what each batch releases, and between batches the changes that are due."""
    for parts in batches_and_cuts(streams, inputs, how.batch_rows, [change.at for change in changes]):
        if isinstance(parts, Cut):
            yield changes[parts.number]
            continue
        for name, rows in parts.items():
            query.feed(name, *streams[name].accept(rows))
        for stream in streams.values():
            stream.raise_register()
        yield query.advance({name: s.register for name, s in streams.items()})
        how.done(sum(rows.num_rows for rows in parts.values()))
    for stream in streams.values():
        stream.close()
    yield query.advance({name: s.register for name, s in streams.items()})
    how.told.history.extend(query.history)
    how.told.dead_letters.extend(letters for stream in streams.values() for letters in stream.dead)


@dataclass(frozen=True, slots=True)
class Cut:
    """A place between two batches, before everything that comes at or after a tick."""

    number: int


def batches(
    streams: Mapping[str, StreamProgress], inputs: Mapping[str, pa.Table], batch_rows: int
) -> Iterator[dict[str, pa.RecordBatch]]:
    """Cuts the tables into batches along time: each stream in its own order, all streams side by side."""
    return (part for part in batches_and_cuts(streams, inputs, batch_rows, ()) if not isinstance(part, Cut))


def batches_and_cuts(
    streams: Mapping[str, StreamProgress], inputs: Mapping[str, pa.Table], batch_rows: int, cuts: Sequence[int]
) -> Iterator[dict[str, pa.RecordBatch] | Cut]:
    """Batches that end, with a cut, before the first row of any stream at or after one of the given ticks."""
    tables = {name: _joined(checked(streams[name].declaration, inputs[name])) for name in streams}
    names = list(tables)
    progress = [_progress(tables[name], streams[name].declaration) for name in names]
    total = sum(map(len, progress))
    places = [sum(int(p.searchsorted(cut)) for p in progress) for cut in cuts]
    taken = np.zeros(len(names), np.intp)
    start = 0
    for number, place in enumerate([*places, total]):
        ends = [*range(start + batch_rows, place, batch_rows), place] if start < place else []
        for reached in ranks(progress, ends):
            counts = reached - taken
            yield {name: _cut(tables[name], taken[i], counts[i]) for i, name in enumerate(names) if counts[i]}
            taken = reached
        start = max(start, place)
        if place < total:
            yield Cut(number)


def ranks(runs: Sequence[Ticks], counts: Sequence[int]) -> Iterator[Indices]:
    """How many of each run are among the first so many of all, merged; equal ones are taken run by run.

    >>> [r.tolist() for r in ranks([np.array([1, 4, 4]), np.array([2, 4])], [2, 3, 4])]
    [[1, 1], [2, 1], [3, 1]]
    """
    wanted = np.asarray(counts, np.int64)
    low = np.full(len(wanted), min((int(r[0]) for r in runs if len(r)), default=0))
    high = np.full(len(wanted), max((int(r[-1]) for r in runs if len(r)), default=0))
    while (low < high).any():
        middle = (low & high) + ((low ^ high) >> 1)  # the mean; a sum or difference could overflow
        enough = sum(r.searchsorted(middle, "right") for r in runs) >= wanted
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
    before = np.array([r.searchsorted(low, "left") for r in runs])
    equal = np.array([r.searchsorted(low, "right") for r in runs]) - before
    left = wanted - before.sum(axis=0)
    dealt = np.clip(left - (equal.cumsum(axis=0) - equal), 0, equal)
    yield from (before + dealt).T


def _progress(rows: pa.RecordBatch | pa.Table, declaration: StreamDeclaration) -> Ticks:
    """The latest time seen so far at each row."""
    ticks, valid = ticks_of(rows.column(declaration.time), declaration.name)
    usable = in_range(ticks) if valid is None else in_range(ticks) & valid
    ticks = np.where(usable, ticks, BEGINNING)
    return np.maximum.accumulate(ticks) if len(ticks) else ticks


def _joined(table: pa.Table) -> pa.RecordBatch | pa.Table:
    """The rows of a table in one piece, if one can hold them: text beyond 2 GB stays in several."""
    whole = table.combine_chunks()
    batches = whole.to_batches()
    return whole if len(batches) > 1 else _only(batches, table.schema)


def _cut(rows: pa.RecordBatch | pa.Table, start: int, count: int) -> pa.RecordBatch:
    part = rows.slice(int(start), int(count))
    return part if isinstance(part, pa.RecordBatch) else one_batch(part)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch; refused where that cannot hold all its text."""
    return _only(table.combine_chunks().to_batches(), table.schema)


def _only(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) > 1:
        raise InputError("a batch has more than 2 GB of text in a column", hint="give fewer rows at once")
    return batches[0] if batches else pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def _where(rows: pa.RecordBatch, ticks: Ticks, mask: np.ndarray) -> tuple[pa.RecordBatch, Ticks]:
    kept = np.flatnonzero(mask)
    return rows.take(pa.array(kept)), ticks[kept]
