"""A batch of elements: payload as Arrow columns, validity as two arrays of ticks.

Payload moves only by `take`; hashes and times live in NumPy. A batch may carry the hash of some of its columns, so
that operators with the same key do not hash again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.errors import InternalError
from midstream.operators import vectors
from midstream.operators.vectors import gather_rows

Indices = vectors.Indices
Mask = vectors.Mask
Ticks = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Key = tuple[str, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Elements:
    """Tuples with their validity intervals `[valid_from, valid_to)`; `hashes` are those of each key in `hashed`.

    Where several take the same rows, `common` is what they found out about them. `lasting` is for how many ticks each
    of them is valid; None if that is not known, or not the same.
    """

    columns: pa.RecordBatch
    valid_from: Ticks
    valid_to: Ticks
    hashes: Hashes | None = None
    hashed: frozenset[Key] = field(default_factory=frozenset)
    common: dict[object, Any] | None = field(default=None, compare=False, repr=False)
    lasting: int | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.valid_from)

    def found(self, what: object, columns: Sequence[pa.Array], find: Callable[[], T]) -> T:
        """Something about some of the columns, found once for all who take them: they are where they are in memory."""
        if self.common is None or not columns:
            return find()
        places = [(c.type, c.offset, len(c), *(None if b is None else b.address for b in c.buffers())) for c in columns]
        if (known := (what, *places)) not in self.common:
            self.common[known] = (find(), columns)
        return cast(T, self.common[known][0])

    def ordered(self, order: Indices) -> Elements:
        """The elements in an order that they all have in common who take them."""
        columns = self.columns
        if self.common is None or not columns.num_columns:
            return self.take(order)
        self.common[id(order)] = order  # nothing else is there as long as this is known
        arrays = [self.found(id(order), [c], partial(vectors.gather, c, order)) for c in columns.columns]
        times = self.valid_from.take(order), self.valid_to.take(order)
        hashes = None if self.hashes is None else self.hashes.take(order)
        rows = pa.RecordBatch.from_arrays(arrays, schema=columns.schema)
        return Elements(rows, *times, hashes, self.hashed, lasting=self.lasting)

    def take(self, rows: Indices) -> Elements:
        """The elements at the given positions."""
        columns = gather_rows(self.columns, rows) if self.columns.num_columns else rows_without_columns(len(rows))
        return Elements(
            columns,
            self.valid_from.take(rows),
            self.valid_to.take(rows),
            None if self.hashes is None else self.hashes.take(rows),
            self.hashed,
            lasting=self.lasting,
        )

    def where(self, mask: Mask) -> Elements:
        """The elements for which the mask is true."""
        if mask.all():
            return self
        return self.take(np.flatnonzero(mask))

    def slice(self, start: int, length: int) -> Elements:
        """A run of elements, without copying."""
        end = start + length
        return Elements(
            self.columns.slice(start, length),
            self.valid_from[start:end],
            self.valid_to[start:end],
            None if self.hashes is None else self.hashes[start:end],
            self.hashed,
            lasting=self.lasting,
        )

    def with_columns(self, columns: pa.RecordBatch) -> Elements:
        """Other payload over the same validity; hashes stay only for keys that are still there."""
        names = set(columns.schema.names)
        kept = frozenset(key for key in self.hashed if names.issuperset(key))
        hashes = self.hashes if kept else None
        return Elements(columns, self.valid_from, self.valid_to, hashes, kept, self.common, self.lasting)

    def arranged(self, schema: pa.Schema) -> Elements:
        """The same with a schema's columns, by name."""
        if self.columns.schema.names == schema.names:
            return self
        return self.with_columns(self.columns.select(schema.names))

    def without_hashes(self) -> Elements:
        """The same elements for somebody who keeps them, or will not ask for hashes."""
        plain = self.hashes is None and self.common is None
        return self if plain else Elements(self.columns, self.valid_from, self.valid_to, lasting=self.lasting)

    def with_validity(self, valid_from: Ticks, valid_to: Ticks) -> Elements:
        """The same payload over other intervals."""
        return Elements(self.columns, valid_from, valid_to, self.hashes, self.hashed, self.common)

    def valid_for(self, ticks: int) -> Elements:
        """The same payload, valid for so many ticks from its start."""
        since = self.valid_from
        return Elements(self.columns, since, since + ticks, self.hashes, self.hashed, self.common, ticks)

    def clipped(self, start: int, end: int) -> Elements:
        """The parts that lie in `[start, end)`."""
        valid_from = np.maximum(self.valid_from, start)
        valid_to = np.minimum(self.valid_to, end)
        return self.with_validity(valid_from, valid_to).where(valid_from < valid_to)


def empty_elements(schema: pa.Schema) -> Elements:
    """No elements of a schema."""
    none = np.empty(0, np.int64)
    return Elements(empty_batch(schema), none, none)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """No rows of a schema."""
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def concatenate(parts: Sequence[Elements]) -> Elements:
    """All elements of the parts, in their order."""
    if not parts:
        raise InternalError("nothing to concatenate")
    if len(parts) == 1:
        return parts[0]
    hashed = frozenset.intersection(*(part.hashed for part in parts))
    together = all(part.hashes is not None for part in parts) and bool(hashed)
    return Elements(
        concatenate_batches([p.columns for p in parts]),
        np.concatenate([p.valid_from for p in parts]),
        np.concatenate([p.valid_to for p in parts]),
        np.concatenate([p.hashes for p in parts if p.hashes is not None]) if together else None,
        hashed if together else frozenset(),
    )


def concatenate_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch with the rows of all, columns by position."""
    if len(batches) == 1:
        return batches[0]
    first = batches[0]
    if first.num_columns == 0:
        return rows_without_columns(sum(b.num_rows for b in batches))
    arrays = [pa.concat_arrays([b.column(i) for b in batches]) for i in range(first.num_columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=first.schema)


def rows_without_columns(count: int) -> pa.RecordBatch:
    """A batch that has rows but no columns: a count is all that is left of them."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), count, [None]))
