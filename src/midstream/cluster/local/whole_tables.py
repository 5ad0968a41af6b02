"""Finite tables beside those that a query is given: the row of constants, and what recursive queries give.

A recursive query is answered before the query that reads it, by rounds: its rows have always been there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.declarations import ARRIVAL, SINCE, Catalog, StreamDeclaration
from midstream.algebra.plan import Relation, streams_of
from midstream.algebra.semantics.values import row_identity
from midstream.algebra.time import TimeDomain
from midstream.cluster.finite_run import FiniteRun
from midstream.cluster.local.embedded import run
from midstream.errors import QueryError
from midstream.language.constants import ONE_ROW

MOST_ROUNDS = 10_000
MOST_ROWS = 1_000_000
"""Where a recursion is held to have no end."""

Evaluated = Callable[[Relation, Mapping[str, pa.Table], Catalog], pa.Table]
"""Answers a plan over tables."""


def answered(plan: Relation, tables: Mapping[str, pa.Table], catalog: Catalog) -> pa.Table:
    """The rows of a plan, run in this process."""
    return run(plan, tables, catalog, FiniteRun())


@dataclass
class WholeTables:
    """The tables that queries may read, and what they are declared as."""

    tables: dict[str, pa.Table]
    catalog: Catalog
    evaluated: Evaluated

    def with_constants(self, plan: Relation) -> tuple[dict[str, pa.Table], Catalog]:
        """The row of constants too, if the plan reads it: it is there from the first row of the streams on."""
        row = next((stream for stream in streams_of(plan) if stream.name == ONE_ROW), None)
        if row is None:
            return self.tables, self.catalog
        first = self._first(row.domain.type, {stream.name for stream in streams_of(plan)} - {ONE_ROW})
        declared = StreamDeclaration(ONE_ROW, row.columns, row.time)
        table = pa.table([pa.array([first], row.domain.type)], schema=row.columns)
        streams = {**self.catalog.streams, ONE_ROW: declared}
        return {**self.tables, ONE_ROW: table}, replace(self.catalog, streams=streams)

    def _first(self, time_type: pa.DataType, names: set[str]) -> object:
        """The time of the first row of some tables."""
        starts = [pc.min(self.tables[name].column(self.catalog.streams[name].time)) for name in names]
        known = [start.cast(time_type) for start in starts if start.is_valid]
        return min((start.as_py() for start in known), default=pa.scalar(0, pa.int64()).cast(time_type).as_py())

    def fixpoint(
        self,
        name: str,
        first: Relation,
        columns: pa.Schema,
        step: Callable[[Catalog, StreamDeclaration], Relation],
        time_type: pa.DataType,
        distinct: bool,
    ) -> StreamDeclaration:
        """The table of all that a first query gives, and then a step of the rows of the round before."""
        fields = [pa.field(ARRIVAL, pa.int64()), *columns, pa.field(SINCE, time_type)]
        declared = StreamDeclaration(f"{name}#{len(self.tables)}", pa.schema(fields), SINCE)
        streams = {**self.catalog.streams, declared.name: declared}
        timeless = self.catalog.timeless | {declared.name}
        alike = {n for n in self.tables if self.catalog.streams[n].domain.agrees_with(TimeDomain(time_type))}
        since = self._first(time_type, alike)
        self.catalog = replace(self.catalog, streams=streams, timeless=timeless)
        plan = step(replace(self.catalog, fixpoint=self.fixpoint), declared)
        seen, rounds = set[object](), list[pa.Table]()
        rows, count = self._new(self._answer(first), columns, seen, distinct), 0
        while rows.num_rows:
            rounds.append(rows)
            count += rows.num_rows
            if len(rounds) > MOST_ROUNDS or count > MOST_ROWS:
                raise QueryError(
                    f"recursive query {name} goes on after {len(rounds) - 1:,} rounds",
                    detail=f"it may take {MOST_ROUNDS:,} rounds and {MOST_ROWS:,} rows",
                    hint="a WHERE in its second query ends it, or UNION, which drops what was there before",
                )
            self.tables[declared.name] = _numbered(rows, since, declared)
            rows = self._new(self._answer(plan), columns, seen, distinct)
        self.tables[declared.name] = _numbered(pa.concat_tables([rows, *rounds]), since, declared)
        return declared

    def _answer(self, plan: Relation) -> pa.Table:
        if not {stream.name for stream in streams_of(plan)} <= {ONE_ROW, *self.tables}:
            raise QueryError("a recursive query reads another one that is not answered yet")
        return self.evaluated(plan, *self.with_constants(plan))

    def _new(self, answer: pa.Table, columns: pa.Schema, seen: set[object], distinct: bool) -> pa.Table:
        """The rows of an answer under the table's names; if they are to be distinct, those that are new."""
        kept = [place for place, n in enumerate(answer.column_names) if n not in ("valid_from", "valid_to", ARRIVAL)]
        rows = pa.table([answer.column(place).cast(f.type) for place, f in zip(kept, columns, strict=True)], columns)
        if not distinct:
            return rows
        new = []
        for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            new.append((known := row_identity(row)) not in seen)
            seen.add(known)
        return rows.filter(pa.array(new, pa.bool_()))


def _numbered(rows: pa.Table, since: object, declared: StreamDeclaration) -> pa.Table:
    columns = [pa.array(np.arange(rows.num_rows)), *rows.columns, pa.array([since] * rows.num_rows)]
    return pa.table(
        [column.cast(f.type) for column, f in zip(columns, declared.columns, strict=True)], declared.columns
    )
