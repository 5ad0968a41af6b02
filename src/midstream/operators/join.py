"""Symmetric window join.

Joining distributes over union, so a batch joined with the other side's state, then stored, misses no pair and repeats
none. A result is valid where both parts are: over the intersection of their intervals. States are purged by the
frontier of the whole query, never by the sibling's progress alone: another plan may still need what this one does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.operators.base import Operator
from midstream.operators.elements import Elements, Hashes, Indices, Key, Mask, Ticks
from midstream.operators.expressions import Predicate
from midstream.operators.hashing import columns_equal, hash_columns, key_validity
from midstream.operators.state.segment import expand, matches, sort_by_hash
from midstream.operators.state.sorted_state import SortedState
from midstream.operators.vectors import column_of, numbers_of, storage_of

PAIRS_AT_ONCE = 4_000_000
"""How many candidate pairs are expanded at a time: what keeps a badly skewed batch within memory."""


@dataclass(frozen=True, slots=True)
class Output:
    """Which columns a join gives: for each, from the probing batch (True) or from the state, and its position there."""

    schema: pa.Schema
    places: tuple[tuple[bool, int], ...]


def output_of(schema: pa.Schema, probing: pa.Schema, stored: pa.Schema) -> Output:
    """Finds each output column on one of the two sides."""
    places = []
    for name in schema.names:
        here = probing.get_field_index(name)
        places.append((True, here) if here >= 0 else (False, stored.get_field_index(name)))
    return Output(schema, tuple(places))


def prepare(batch: Elements, key: Key, nulls_equal: bool) -> tuple[Elements, Hashes]:
    """A batch in order of its key's hash, without the rows whose null key can never match."""
    columns = [batch.columns.column(name) for name in key]
    if not nulls_equal:
        valid = key_validity(columns)
        if valid is not None:
            batch = batch.where(valid)
            columns = [batch.columns.column(name) for name in key]
    if batch.hashes is not None and key in batch.hashed:
        hashes = batch.hashes
    else:
        hashes = hash_columns(columns) if columns else np.zeros(len(batch), np.uint64)
    return sort_by_hash(batch, hashes)


@dataclass(frozen=True, slots=True)
class Found:
    """Pairs with one segment: positions in the probing batch and in the segment, and where both are valid."""

    here: Indices
    stored: Elements
    there: Indices
    valid_from: Ticks
    valid_to: Ticks

    def where(self, keep: Mask) -> Found:
        """Some of the pairs."""
        at = np.flatnonzero(keep)
        return Found(self.here[at], self.stored, self.there[at], self.valid_from[at], self.valid_to[at])


class Probe:
    """Finds, for a batch in hash order, its partners in a state, and builds the pairs."""

    def __init__(self, key: Key, state: SortedState, nulls_equal: bool, output: Output) -> None:
        self.key = key
        self.state = state
        self.nulls_equal = nulls_equal
        self.output = output
        self.stored_key = [state.schema.get_field_index(name) for name in state.key]
        self.hashed = frozenset(k for k in (key, state.key) if k and set(k) <= set(output.schema.names))

    def __call__(self, batch: Elements, hashes: Hashes) -> tuple[Elements | None, int]:
        """The pairs, and how many candidates were looked at."""
        found, candidates = [], 0
        first, last = int(batch.valid_from.min()), int(batch.valid_to.max())
        for segment in self.state.segments:
            if segment.latest_to <= first or segment.earliest_from >= last:
                continue
            hit, low, counts = matches(hashes, segment.hashes)
            if len(hit) == 0:
                continue
            for start, end in _chunks(counts):
                here, there = expand(hit[start:end], low[start:end], counts[start:end])
                candidates += len(here)
                both = _overlapping(batch, here, segment.elements, there)
                if both is not None:
                    found.append(both)
        if not found:
            return None, candidates
        return self._verified(batch, hashes, found), candidates

    def _verified(self, batch: Elements, hashes: Hashes, found: list[Found]) -> Elements | None:
        """The pairs whose keys are equal, not just their hashes."""
        here = _joined([f.here for f in found])
        if self.key:
            left = [gather(batch.columns.column(name), here) for name in self.key]
            right = [gather_parts(found, i) for i in self.stored_key]
            equal = columns_equal(left, right, self.nulls_equal)
            if not equal.all():
                found = _where(found, equal)
                here = here[equal]
                if len(here) == 0:
                    return None
        return Elements(
            self._payload(batch, here, found),
            _joined([f.valid_from for f in found]),
            _joined([f.valid_to for f in found]),
            hashes[here] if self.hashed else None,
            self.hashed,
        )

    def _payload(self, batch: Elements, here: Indices, found: list[Found]) -> pa.RecordBatch:
        arrays = [
            gather(batch.columns.column(i), here) if probing else gather_parts(found, i)
            for probing, i in self.output.places
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.output.schema)


def gather(column: pa.Array, rows: Indices) -> pa.Array:
    """Some values of a column; plain numbers without nulls go through NumPy, which is much quicker for few rows."""
    if column.null_count == 0 and storage_of(column.type) is not None:
        return column_of(numbers_of(column)[rows], column.type)
    return column.take(pa.array(rows))


def gather_parts(found: list[Found], i: int) -> pa.Array:
    """A stored column's values over all pairs."""
    columns = [f.stored.columns.column(i) for f in found]
    kind = columns[0].type
    if storage_of(kind) is not None and all(column.null_count == 0 for column in columns):
        parts = [numbers_of(column)[f.there] for column, f in zip(columns, found, strict=True)]
        return column_of(_joined(parts), kind)
    return pa.concat_arrays([c.take(pa.array(f.there)) for c, f in zip(columns, found, strict=True)])


def _overlapping(batch: Elements, here: Indices, stored: Elements, there: Indices) -> Found | None:
    valid_from = np.maximum(batch.valid_from[here], stored.valid_from[there])
    valid_to = np.minimum(batch.valid_to[here], stored.valid_to[there])
    keep = valid_from < valid_to
    pairs = Found(here, stored, there, valid_from, valid_to)
    if keep.all():
        return pairs
    pairs = pairs.where(keep)
    return pairs if len(pairs.here) else None


def _where(found: list[Found], mask: Mask) -> list[Found]:
    cuts = np.cumsum([len(f.here) for f in found])[:-1]
    kept = [f.where(m) for f, m in zip(found, np.split(mask, cuts), strict=True)]
    return [f for f in kept if len(f.here)]


def _joined(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _chunks(counts: Indices) -> list[tuple[int, int]]:
    """Runs of matches that expand to a bounded number of pairs."""
    if int(counts.sum()) <= PAIRS_AT_ONCE:
        return [(0, len(counts))]
    part = np.cumsum(counts) // PAIRS_AT_ONCE
    cuts = [0, *(np.flatnonzero(part[1:] != part[:-1]) + 1).tolist(), len(counts)]
    return list(zip(cuts[:-1], cuts[1:], strict=True))


class SymmetricJoin(Operator):
    """An inner join of two inputs; `residual` is what the condition asks beyond equal keys."""

    ports = 2
    name = "join"

    def __init__(
        self,
        schema: pa.Schema,
        left: SortedState,
        right: SortedState,
        nulls_equal: bool = False,
        residual: Predicate | None = None,
        gathered: pa.Schema | None = None,
    ) -> None:
        super().__init__(schema)
        self.sides = (left, right)
        self.nulls_equal = nulls_equal
        self.residual = residual
        # The residual may read columns that nobody above needs: they are gathered, read, and dropped.
        self.gathered = gathered or schema
        self.probes = (
            Probe(left.key, right, nulls_equal, output_of(self.gathered, left.schema, right.schema)),
            Probe(right.key, left, nulls_equal, output_of(self.gathered, right.schema, left.schema)),
        )

    @property
    def states(self) -> tuple[SortedState, ...]:
        return self.sides

    def process(self, port: int, batch: Elements) -> Elements | None:
        self.work.taken += len(batch)
        batch, hashes = prepare(batch, self.sides[port].key, self.nulls_equal)
        if len(batch) == 0:
            return None
        result, candidates = self.probes[port](batch, hashes)
        state = self.sides[port]
        state.append(batch, hashes)
        state.compact(self.frontier, len(batch))
        self.work.probed += len(batch)
        self.work.matched += candidates
        self.work.inserted += len(batch)
        return self._finished(result)

    def _finished(self, result: Elements | None) -> Elements | None:
        if result is None:
            return None
        if self.residual is not None:
            result = result.where(self.residual(result.columns))
            if self.gathered is not self.schema:
                result = result.with_columns(result.columns.select(self.schema.names))
        self.work.given += len(result)
        return result if len(result) else None
