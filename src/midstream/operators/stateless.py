"""Operators that remember nothing: select, project, unnest, union and the windows that only set validity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from midstream.algebra import physical as p
from midstream.algebra.expressions import Column
from midstream.algebra.time import INFINITY
from midstream.algebra.windows import Hop, Range, Unbounded, Until, WindowSpec
from midstream.errors import InternalError
from midstream.operators.base import Operator
from midstream.operators.elements import Elements, Indices, Ticks, rows_without_columns
from midstream.operators.expressions import CompiledExpression, Predicate
from midstream.operators.hops import beginning, boundary_at_or_before, pieces, validity
from midstream.operators.state.segment import expand
from midstream.operators.vectors import numbers_of

N = TypeVar("N", bound=p.PhysicalNode)
C = TypeVar("C")


class RowOperator(Operator, Generic[N, C]):
    """Gives of each batch what follows from its elements one by one, by its node and what is compiled of it."""

    def __init__(self, node: N, compiled: C) -> None:
        super().__init__(node.schema)
        self.node, self.compiled, self.ports = node, compiled, len(node.inputs)

    def process(self, port: int, batch: Elements) -> Elements | None:
        result = self.result(port, batch)
        self.work.taken += len(batch)
        self.work.given += len(result)
        return result if len(result) else None

    def result(self, port: int, batch: Elements) -> Elements:
        """What follows from a batch."""
        raise NotImplementedError


class FilterOperator(RowOperator[p.Filter, Predicate]):
    """Keeps the elements for which the predicate is true."""

    name = "select"

    def result(self, port: int, batch: Elements) -> Elements:
        mask, names = self.compiled(batch.columns), self.schema.names
        if names != batch.columns.schema.names:
            batch = batch.with_columns(batch.columns.select(names) if names else rows_without_columns(len(batch)))
        return batch.where(mask)


class ComputeOperator(RowOperator[p.Compute, tuple[Sequence[CompiledExpression], Mapping[str, str]]]):
    """Computes the columns of each element anew; those that only change their names need not be hashed again."""

    name = "project"

    def __init__(self, node: p.Compute, compiled: tuple[Sequence[CompiledExpression], Mapping[str, str]]) -> None:
        super().__init__(node, compiled)
        known, made = node.input.schema, [column.expression for column in node.columns]
        self.places = [known.get_field_index(one.name) if isinstance(one, Column) else None for one in made]
        """Where columns are that only change their names."""

    def result(self, port: int, batch: Elements) -> Elements:
        computed, unchanged = self.compiled
        if not computed:
            return batch.with_columns(rows_without_columns(len(batch)))
        known, columns = zip(self.places, computed, strict=True), batch.columns
        arrays = [compute(columns) if place is None else columns.column(place) for place, compute in known]
        columns = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        hashed = frozenset(tuple(unchanged[n] for n in key) for key in batch.hashed if set(key) <= set(unchanged))
        hashes, lasting = batch.hashes if hashed else None, batch.lasting
        return Elements(columns, batch.valid_from, batch.valid_to, hashes, hashed, lasting=lasting)


class UnnestOperator(RowOperator[p.Unnest, Mapping[str, CompiledExpression]]):
    """One element for each element of lists that are read side by side."""

    name = "unnest"

    def result(self, port: int, batch: Elements) -> Elements:
        lists = {name: _Lists(read(batch.columns)) for name, read in self.compiled.items()}
        counts = np.maximum.reduce([one.lengths for one in lists.values()])
        rows, places, _ = expand(np.arange(len(batch)), np.zeros(len(batch), np.intp), counts)
        result = batch.take(rows)
        arrays = [
            lists[f.name].at(rows, places) if f.name in lists else result.columns.column(f.name) for f in self.schema
        ]
        return result.with_columns(pa.RecordBatch.from_arrays(arrays, schema=self.schema))


class _Lists:
    """A column of lists, by row and place; a null has no elements."""

    def __init__(self, column: pa.Array) -> None:
        if pa.types.is_fixed_size_list(column.type):
            column = column.cast(pa.list_(column.type.value_type))
        self.elements = column.values
        self.starts = column.offsets.to_numpy()[:-1].astype(np.int64)
        self.lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)

    def at(self, rows: Indices, places: Indices) -> pa.Array:
        """The elements at places of rows; null behind a list's end."""
        return self.elements.take(pa.array(self.starts[rows] + places, mask=places >= self.lengths[rows]))


class ConcatenateOperator(RowOperator[p.Concatenate, None]):
    """All elements of all inputs, under the first one's names."""

    name = "union"

    def result(self, port: int, batch: Elements) -> Elements:
        if port == 0:
            return batch
        renamed = (
            pa.RecordBatch.from_arrays(batch.columns.columns, schema=self.schema) if len(self.schema) else batch.columns
        )
        return Elements(renamed, batch.valid_from, batch.valid_to)


class AssignWindowOperator(RowOperator[p.AssignWindow, None]):
    """Sets validity of a tuple by itself: RANGE, NOW, UNBOUNDED, VALID UNTIL, HOP and TUMBLE."""

    name = "window"

    def result(self, port: int, batch: Elements) -> Elements:
        return windowed(batch, self.node.spec)


class WindowBoundsOperator(RowOperator[p.WindowBounds, None]):
    """Elements cut at the boundaries of their window, each with when the window begins that ends there, and its end."""

    name = "window bounds"

    def result(self, port: int, batch: Elements) -> Elements:
        hop = self.node.hop
        rows, starts, ends = pieces(batch.valid_from, batch.valid_to, hop)
        boundaries = boundary_at_or_before(starts, hop)
        cut = batch if len(rows) == len(batch) else batch.take(rows)
        old, bounds = cut.columns, iter((beginning(boundaries, hop), boundaries))
        fields = ((field, field.name in old.schema.names) for field in self.schema)
        columns = [old.column(f.name) if there else pa.array(next(bounds)).cast(f.type) for f, there in fields]
        return cut.with_columns(pa.RecordBatch.from_arrays(columns, schema=self.schema)).with_validity(starts, ends)


def arrived(
    rows: pa.RecordBatch, ticks: Ticks, window: WindowSpec | None, common: dict[object, Any] | None = None
) -> Elements:
    """Rows of a stream as elements of a window; `common` is what is known of rows that others take too."""
    at_once = Elements(rows, ticks, ticks, common=common)
    return at_once.valid_for(1) if window is None else windowed(at_once, window)


def windowed(batch: Elements, spec: WindowSpec) -> Elements:
    """Elements with the validity that a window gives them from their start."""
    match spec:
        case Range(size):
            return batch.valid_for(size + 1)
        case Unbounded():
            return batch.with_validity(batch.valid_from, np.full(len(batch), INFINITY))
        case Until(column):
            ends = batch.columns.column(column)
            known = ends.is_valid().to_numpy(zero_copy_only=False)
            until = np.where(known, np.minimum(numbers_of(ends), INFINITY), INFINITY)
            return batch.with_validity(batch.valid_from, until).where(batch.valid_from < until)
        case Hop() as hop:
            starts, ends = validity(batch.valid_from, hop)
            return batch.with_validity(starts, ends).where(starts < ends)
    raise InternalError(f"{spec} does not set validity by itself")
