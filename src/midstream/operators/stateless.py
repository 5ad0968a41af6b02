"""Operators that remember nothing: select, project, unnest, union and the windows that only set validity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from midstream.algebra.time import INFINITY
from midstream.algebra.windows import Hop, Range, Unbounded, Until, WindowSpec
from midstream.errors import InternalError
from midstream.operators.base import Operator
from midstream.operators.elements import Elements, Indices, rows_without_columns
from midstream.operators.expressions import CompiledExpression, Predicate
from midstream.operators.hops import beginning, boundary_at_or_before, pieces, validity
from midstream.operators.state.segment import expand
from midstream.operators.vectors import numbers_of


class RowOperator(Operator):
    """Gives of each batch what follows from its elements one by one."""

    def process(self, port: int, batch: Elements) -> Elements | None:
        result = self.result(port, batch)
        self.work.taken += len(batch)
        self.work.given += len(result)
        return result if len(result) else None

    def result(self, port: int, batch: Elements) -> Elements:
        """What follows from a batch."""
        raise NotImplementedError


class FilterOperator(RowOperator):
    """Keeps the elements for which the predicate is true."""

    name = "select"

    def __init__(self, schema: pa.Schema, predicate: Predicate, keeps_columns: bool = True) -> None:
        super().__init__(schema)
        self.predicate = predicate
        self.keeps_columns = keeps_columns

    def result(self, port: int, batch: Elements) -> Elements:
        mask = self.predicate(batch.columns)
        if not self.keeps_columns:
            names = self.schema.names
            batch = batch.with_columns(batch.columns.select(names) if names else rows_without_columns(len(batch)))
        return batch.where(mask)


class ComputeOperator(RowOperator):
    """Computes the columns of each element anew."""

    name = "project"

    def __init__(
        self, schema: pa.Schema, columns: Sequence[CompiledExpression], unchanged: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(schema)
        self.columns = tuple(columns)
        self.unchanged = dict(unchanged or {})

    def result(self, port: int, batch: Elements) -> Elements:
        if not self.columns:
            return batch.with_columns(rows_without_columns(len(batch)))
        arrays = [column(batch.columns) for column in self.columns]
        columns = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        hashed = frozenset(
            tuple(self.unchanged[n] for n in key) for key in batch.hashed if all(n in self.unchanged for n in key)
        )
        return Elements(columns, batch.valid_from, batch.valid_to, batch.hashes if hashed else None, hashed)


class UnnestOperator(RowOperator):
    """One element for each element of lists that are read side by side."""

    name = "unnest"

    def __init__(self, schema: pa.Schema, lists: Mapping[str, CompiledExpression]) -> None:
        super().__init__(schema)
        self.lists = dict(lists)

    def result(self, port: int, batch: Elements) -> Elements:
        lists = {name: _Lists(read(batch.columns)) for name, read in self.lists.items()}
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


class ConcatenateOperator(RowOperator):
    """All elements of all inputs, under the first one's names."""

    name = "union"

    def __init__(self, schema: pa.Schema, ports: int) -> None:
        super().__init__(schema)
        self.ports = ports

    def result(self, port: int, batch: Elements) -> Elements:
        if port == 0:
            return batch
        renamed = (
            pa.RecordBatch.from_arrays(batch.columns.columns, schema=self.schema) if len(self.schema) else batch.columns
        )
        return Elements(renamed, batch.valid_from, batch.valid_to)


class AssignWindowOperator(RowOperator):
    """Sets validity of a tuple by itself: RANGE, NOW, UNBOUNDED, VALID UNTIL, HOP and TUMBLE."""

    name = "window"

    def __init__(self, schema: pa.Schema, spec: WindowSpec) -> None:
        super().__init__(schema)
        self.spec = spec

    def result(self, port: int, batch: Elements) -> Elements:
        return windowed(batch, self.spec)


class WindowBoundsOperator(RowOperator):
    """Elements cut at the boundaries of their window, each with when the window begins that ends there, and its end."""

    name = "window bounds"

    def __init__(self, schema: pa.Schema, hop: Hop) -> None:
        super().__init__(schema)
        self.hop = hop

    def result(self, port: int, batch: Elements) -> Elements:
        rows, starts, ends = pieces(batch.valid_from, batch.valid_to, self.hop)
        boundaries = boundary_at_or_before(starts, self.hop)
        cut = batch if len(rows) == len(batch) else batch.take(rows)
        old, bounds = cut.columns, iter((beginning(boundaries, self.hop), boundaries))
        fields = ((field, field.name in old.schema.names) for field in self.schema)
        columns = [old.column(f.name) if there else pa.array(next(bounds)).cast(f.type) for f, there in fields]
        return cut.with_columns(pa.RecordBatch.from_arrays(columns, schema=self.schema)).with_validity(starts, ends)


def windowed(batch: Elements, spec: WindowSpec | None) -> Elements:
    """Elements of one tick with the validity that a window gives them."""
    match spec:
        case None:
            return batch
        case Range(size):
            return batch.with_validity(batch.valid_from, batch.valid_from + (size + 1))
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
