"""Symmetric window join.

Joining distributes over union, so a batch joined with the other side's state, then stored, misses no pair and repeats
none. A result is valid where both parts are: over the intersection of their intervals. States are purged by the
frontier of the whole query, never by the sibling's progress alone: another plan may still need what this one does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.algebra.physical.relational import HashJoin
from midstream.operators.base import Operator, Work
from midstream.operators.elements import Elements, Hashes, Indices, Key
from midstream.operators.expressions import Predicate
from midstream.operators.hashing import columns_equal, hash_order, key_validity
from midstream.operators.state.segment import Grouping, Segment, Sought, expand, known_hashes
from midstream.operators.state.sorted_state import SortedState
from midstream.operators.vectors import column_of, gather

PAIRS_AT_ONCE = 4_000_000
"""How many candidate pairs are expanded at a time: what keeps a badly skewed batch within memory."""


@dataclass(frozen=True, slots=True)
class JoinColumns:
    """Which columns a join gives: for each, from the probing batch (True) or from the state, and its position there."""

    schema: pa.Schema
    places: tuple[tuple[bool, int], ...]


def output_of(schema: pa.Schema, probing: pa.Schema, stored: pa.Schema) -> JoinColumns:
    """Finds each output column on one of the two sides."""
    places = []
    for name in schema.names:
        here = probing.get_field_index(name)
        places.append((True, here) if here >= 0 else (False, stored.get_field_index(name)))
    return JoinColumns(schema, tuple(places))


def prepare(batch: Elements, key: Key, nulls_equal: bool, grouping: Grouping | None = None) -> tuple[Elements, Hashes]:
    """A batch in order of its key's hash, without the rows whose null key can never match."""
    if not nulls_equal:
        valid = key_validity([batch.columns.column(name) for name in key])
        if valid is not None:
            batch = batch.where(valid)
    names = key if grouping is None else (*key, *grouping.key)
    what = len(key), grouping and grouping.bits
    columns = [batch.columns.column(name) for name in names]
    order, ordered = batch.found(what, columns, lambda: hash_order(known_hashes(batch, key, grouping)))
    return batch.ordered(order), ordered


def keep(operator: Operator, state: SortedState, batch: Elements, hashes: Hashes | None = None) -> None:
    """Adds a batch to a state; null keys too unless it is prepared, for other plans and other keys may need them."""
    if hashes is None:
        batch, hashes = prepare(batch, state.key, True, state.grouping)
    state.append(batch, hashes)
    state.compact(operator.frontier, len(batch))


@dataclass(frozen=True, slots=True)
class Pairs:
    """Candidate pairs: positions in the probing batch, and in some segments one after another, cut at `cuts`."""

    here: Indices
    there: Indices
    segments: list[Segment]
    cuts: list[int]

    def parts(self) -> Iterator[tuple[Segment, Indices]]:
        """Each segment with the positions in it."""
        start = 0
        for segment, end in zip(self.segments, self.cuts, strict=True):
            yield segment, self.there[start:end]
            start = end

    def where(self, kept: Indices) -> Pairs:
        """Some of the pairs, by position in order."""
        return Pairs(self.here[kept], self.there[kept], self.segments, kept.searchsorted(self.cuts).tolist())


class Probe:
    """Finds, for a batch in hash order, its partners in a state, and builds the pairs."""

    def __init__(
        self, key: Key, state: SortedState, nulls_equal: bool, output: JoinColumns, residual: Predicate | None = None
    ) -> None:
        self.key = key
        self.state = state
        self.nulls_equal = nulls_equal
        self.output = output
        self.residual = residual
        """What the condition asks beyond equal keys."""
        self.stored_key = [state.schema.get_field_index(name) for name in state.key]
        self.hashed = frozenset(k for k in (key, state.key) if k and set(k) <= set(output.schema.names))

    def pieces(self, batch: Elements, hashes: Hashes, work: Work, at_once: int) -> Iterator[Elements]:
        """The pairs of about so many candidates at a time; the work counts them."""
        for pairs in self._candidates(batch, hashes, at_once):
            work.matched += len(pairs.here)
            result = self._verified(batch, hashes, pairs)
            if result is not None and self.residual is not None:
                result = result.where(self.residual(result.columns))
            if result is not None and len(result):
                yield result

    def _candidates(self, batch: Elements, hashes: Hashes, at_once: int) -> Iterator[Pairs]:
        """Pairs with equal hash, a bounded number at a time."""
        first, last = int(batch.valid_from.min()), int(batch.valid_to.max())
        segments, found, sought = [], [], Sought(hashes)
        for segment in self.state.segments:
            if segment.latest_to > first and segment.earliest_from < last:
                match = sought.within(segment)
                if match is not None:
                    segments.append(segment)
                    found.append(match)
        if not found:
            return
        hit, low, high = (_joined(parts) for parts in zip(*found, strict=True))
        ends = np.cumsum([len(f[0]) for f in found])
        for start, end in chunks(high - low, at_once):
            here, there, counts = expand(hit[start:end], low[start:end], high[start:end])
            reached = np.append(0, counts.cumsum())
            cuts = reached[np.clip(ends, start, end) - start]
            yield Pairs(here, there, segments, cuts.tolist())

    def _verified(self, batch: Elements, hashes: Hashes, pairs: Pairs) -> Elements | None:
        """The pairs that overlap in time and whose keys are equal, not just their hashes."""
        stored_from, stored_to = map(_joined, zip(*(s.validity(at) for s, at in pairs.parts()), strict=True))
        valid_from = np.maximum(batch.valid_from.take(pairs.here), stored_from)
        valid_to = np.minimum(batch.valid_to.take(pairs.here), stored_to)
        keep = valid_from < valid_to
        if not keep.all():
            kept = keep.nonzero()[0]
            pairs, valid_from, valid_to = pairs.where(kept), valid_from[kept], valid_to[kept]
        gathered: dict[tuple[bool, int], pa.Array] = {}
        if self.key and len(pairs.here):
            places = [batch.columns.schema.get_field_index(name) for name in self.key]
            left = [gather(batch.columns.column(i), pairs.here) for i in places]
            right = [gather_stored(pairs, i) for i in self.stored_key]
            equal = columns_equal(left, right, self.nulls_equal)
            if equal.all():
                gathered = {(True, i): column for i, column in zip(places, left, strict=True)}
                gathered |= {(False, i): column for i, column in zip(self.stored_key, right, strict=True)}
            else:
                kept = equal.nonzero()[0]
                pairs, valid_from, valid_to = pairs.where(kept), valid_from[kept], valid_to[kept]
        if len(pairs.here) == 0:
            return None
        for probing, i in self.output.places:
            if (probing, i) not in gathered:
                column = gather(batch.columns.column(i), pairs.here) if probing else gather_stored(pairs, i)
                gathered[probing, i] = column
        columns = [gathered[place] for place in self.output.places]
        payload = pa.RecordBatch.from_arrays(columns, schema=self.output.schema)
        return Elements(payload, valid_from, valid_to, hashes.take(pairs.here) if self.hashed else None, self.hashed)


def gather_stored(pairs: Pairs, i: int) -> pa.Array:
    """A stored column's values over all pairs."""
    views = [segment.view(i) for segment in pairs.segments]
    if any(view is None for view in views):
        return pa.concat_arrays([s.stored.columns.column(i).take(pa.array(at)) for s, at in pairs.parts()])
    parts = [view.take(at) for view, (_, at) in zip(views, pairs.parts(), strict=True) if view is not None]
    return column_of(_joined(parts), pairs.segments[0].stored.columns.schema.field(i).type)


def _joined(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def chunks(counts: Indices, at_once: int) -> list[tuple[int, int]]:
    """Runs of matches that expand to a bounded number of pairs."""
    if int(counts.sum()) <= at_once:
        return [(0, len(counts))]
    part = counts.cumsum() // at_once
    cuts = [0, *(np.flatnonzero(part[1:] != part[:-1]) + 1).tolist(), len(counts)]
    return list(zip(cuts[:-1], cuts[1:], strict=True))


class SymmetricJoin(Operator):
    """An inner join of two inputs.

    The condition may read columns that nobody above needs: they are gathered, read, and dropped.
    """

    ports = 2
    name = "join"
    at_once = PAIRS_AT_ONCE

    def __init__(
        self, node: HashJoin, sides: tuple[SortedState, SortedState], residual: Predicate | None, gathered: pa.Schema
    ) -> None:
        super().__init__(node.schema)
        self.sides = self.states = sides
        self.nulls_equal, self.gathered = node.nulls_equal, gathered
        self.probes = tuple(
            Probe(here.key, there, node.nulls_equal, output_of(gathered, here.schema, there.schema), residual)
            for here, there in (sides, sides[::-1])
        )

    def pieces(self, port: int, batch: Elements) -> Iterator[Elements]:
        self.work.taken += len(batch)
        batch, hashes = self._prepared(port, batch)
        if len(batch):
            yield from self._joined(port, batch, hashes)
            self._keep(port, batch, hashes)

    def joined(self, port: int, batch: Elements) -> Iterator[Elements]:
        """What a batch meets, which is not kept."""
        yield from self._joined(port, *self._prepared(port, batch))

    def _joined(self, port: int, batch: Elements, hashes: Hashes) -> Iterator[Elements]:
        self.work.probed += len(batch)
        for result in self.probes[port].pieces(batch, hashes, self.work, self.at_once) if len(batch) else ():
            self.work.given += len(result)
            whole = self.gathered is self.schema
            yield result if whole else result.with_columns(result.columns.select(self.schema.names))

    def store(self, port: int, batch: Elements) -> None:
        self.work.taken += len(batch)
        self._keep(port, *self._prepared(port, batch))

    def _prepared(self, port: int, batch: Elements) -> tuple[Elements, Hashes]:
        side = self.sides[port]
        return prepare(batch, side.key, self.nulls_equal, side.grouping)

    def _keep(self, port: int, batch: Elements, hashes: Hashes) -> None:
        keep(self, self.sides[port], batch, hashes)
        self.work.inserted += len(batch)
