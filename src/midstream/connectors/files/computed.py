"""Columns that SQL expressions make of the columns of files, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from midstream.algebra.declarations import Catalog, StreamDeclaration
from midstream.algebra.plan import Project, Unnested
from midstream.connectors.halving import in_halves
from midstream.errors import InputError, MidstreamError
from midstream.operators.expressions import CompiledExpression

_SOURCE, _ROW_TIME = "source", "#time"


@dataclass(frozen=True, slots=True)
class Computed:
    """The columns of a stream by name, each with the expression over a row of a file that gives it."""

    columns: tuple[tuple[str, CompiledExpression], ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the stream."""
        return pa.schema([pa.field(name, expression.expression.type) for name, expression in self.columns])

    def rows(self, read: pa.Table) -> tuple[pa.Table, dict[int, str]]:
        """The stream's rows, and of the rows for which an expression fails the numbers and the reasons."""
        parts, bad, start = list[pa.RecordBatch](), dict[int, str](), 0
        for batch in read.to_batches():
            for at, made in self._made(batch):
                if isinstance(made, str):
                    bad[start + at] = made
                else:
                    parts.append(made)
            start += batch.num_rows
        return pa.Table.from_batches(parts, self.schema), bad

    def _made(self, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch | str]]:
        """What becomes of rows, halved as long as some of them fail: rows, or why there is none."""
        names = [f"{_SOURCE}.{name}" for name in rows.schema.names]
        named = pa.RecordBatch.from_arrays(rows.columns, names=names)

        def make(start: int, stop: int) -> tuple[int, pa.RecordBatch | str]:
            some = named.slice(start, stop - start)
            made = [expression(some) for _, expression in self.columns]
            return start, pa.RecordBatch.from_arrays(made, schema=self.schema)

        def refuse(place: int, error: Exception) -> tuple[int, pa.RecordBatch | str]:
            return place, error.message if isinstance(error, InputError) else str(error).split("\n")[0]

        return in_halves(rows.num_rows, make, (InputError, pa.ArrowException), refuse)


def computed(name: str, raw: pa.Schema, columns: Sequence[str]) -> Computed | None:
    """The columns that expressions make of those of files; None if there are no expressions."""
    if not columns:
        return None
    # Executors, which only compute them, need not have the parser's library.
    from midstream.language import parse

    # A query reads streams, and streams have times; these rows have none yet.
    declared = StreamDeclaration(_SOURCE, raw.append(pa.field(_ROW_TIME, pa.int64())), _ROW_TIME)
    try:
        relation = parse(f"SELECT {', '.join(columns)} FROM {_SOURCE} [NOW]", Catalog({_SOURCE: declared}))
    except MidstreamError as error:
        raise InputError(f"the columns of stream {name} cannot be computed: {error}") from error
    if not isinstance(relation, Project) or isinstance(relation.input, Unnested):
        raise InputError(f"the columns of stream {name} must be expressions over one row: {', '.join(columns)}")
    schema = pa.schema([pa.field(f"{_SOURCE}.{f.name}", f.type) for f in raw])
    return Computed(tuple((c.name, CompiledExpression(c.expression, schema)) for c in relation.columns))
