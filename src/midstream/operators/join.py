"""Symmetric window join.

Joining distributes over union, so a batch joined with the other side's state, then stored, misses no pair and repeats
none. A result is valid where both parts are: over the intersection of their intervals. States are purged by the
frontier of the whole query, never by the sibling's progress alone: another plan may still need what this one does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.operators.base import Operator
from midstream.operators.elements import (
    Elements,
    Hashes,
    Indices,
    Key,
    concatenate,
    rows_without_columns,
)
from midstream.operators.expressions import Predicate
from midstream.operators.hashing import columns_equal, hash_columns, key_validity
from midstream.operators.state.segment import matches, sort_by_hash
from midstream.operators.state.sorted_state import SortedState

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


class Probe:
    """Finds, for a batch in hash order, its partners in a state, and builds the pairs."""

    def __init__(self, key: Key, state: SortedState, nulls_equal: bool, output: Output) -> None:
        self.key = key
        self.state = state
        self.nulls_equal = nulls_equal
        self.output = output
        self.stored_key = [state.schema.get_field_index(name) for name in state.key]
        self.hashed = frozenset(k for k in (key, state.key) if k and set(k) <= set(output.schema.names))

    def __call__(self, batch: Elements, hashes: Hashes) -> tuple[list[Elements], int]:
        """The pairs, and how many candidates were looked at."""
        given, candidates = [], 0
        key_columns = [batch.columns.column(name) for name in self.key]
        first, last = (int(batch.valid_from.min()), int(batch.valid_to.max())) if len(batch) else (0, 0)
        for segment in self.state.segments:
            if segment.latest_to <= first or segment.earliest_from >= last:
                continue
            for start, end in _chunks(hashes, segment.hashes):
                here, there = matches(hashes[start:end], segment.hashes)
                candidates += len(here)
                if len(here) == 0:
                    continue
                pairs = self._pairs(batch, hashes, key_columns, here + start, segment.elements, there)
                if pairs is not None:
                    given.append(pairs)
        return given, candidates

    def _pairs(
        self,
        batch: Elements,
        hashes: Hashes,
        key_columns: list[pa.Array],
        here: Indices,
        stored: Elements,
        there: Indices,
    ) -> Elements | None:
        valid_from = np.maximum(batch.valid_from[here], stored.valid_from[there])
        valid_to = np.minimum(batch.valid_to[here], stored.valid_to[there])
        keep = valid_from < valid_to
        if not keep.all():
            kept = np.flatnonzero(keep)
            if len(kept) == 0:
                return None
            here, there, valid_from, valid_to = here[kept], there[kept], valid_from[kept], valid_to[kept]
        rows_here, rows_there = pa.array(here), pa.array(there)
        left = [column.take(rows_here) for column in key_columns]
        right = [stored.columns.column(i).take(rows_there) for i in self.stored_key]
        equal = columns_equal(left, right, self.nulls_equal) if left else None
        if equal is not None and not equal.all():
            kept = np.flatnonzero(equal)
            if len(kept) == 0:
                return None
            here, there, valid_from, valid_to = here[kept], there[kept], valid_from[kept], valid_to[kept]
            rows_here, rows_there = pa.array(here), pa.array(there)
        return Elements(
            self._payload(batch, rows_here, stored, rows_there),
            valid_from,
            valid_to,
            hashes[here] if self.hashed else None,
            self.hashed,
        )

    def _payload(self, batch: Elements, here: pa.Array, stored: Elements, there: pa.Array) -> pa.RecordBatch:
        if not self.output.places:
            return rows_without_columns(len(here))
        arrays = [
            (batch.columns.column(i).take(here) if probing else stored.columns.column(i).take(there))
            for probing, i in self.output.places
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.output.schema)


def _chunks(probes: Hashes, hashes: Hashes) -> list[tuple[int, int]]:
    """Runs of probes that expand to a bounded number of pairs."""
    if len(probes) * len(hashes) <= PAIRS_AT_ONCE:
        return [(0, len(probes))]
    counts = np.searchsorted(hashes, probes, side="right") - np.searchsorted(hashes, probes)
    if int(counts.sum()) <= PAIRS_AT_ONCE:
        return [(0, len(probes))]
    part = np.cumsum(counts) // PAIRS_AT_ONCE
    cuts = [0, *(np.flatnonzero(part[1:] != part[:-1]) + 1).tolist(), len(probes)]
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
        pairs, candidates = self.probes[port](batch, hashes)
        state = self.sides[port]
        state.append(batch, hashes)
        state.compact(self.frontier, len(batch))
        self.work.probed += len(batch)
        self.work.matched += candidates
        self.work.inserted += len(batch)
        return self._finished(pairs)

    def _finished(self, pairs: list[Elements]) -> Elements | None:
        if not pairs:
            return None
        result = concatenate(pairs)
        if self.residual is not None:
            result = result.where(self.residual(result.columns))
            if self.gathered is not self.schema:
                result = result.with_columns(result.columns.select(self.schema.names))
        self.work.given += len(result)
        return result if len(result) else None
