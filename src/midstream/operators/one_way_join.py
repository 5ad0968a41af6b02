"""One-way joins: partial results meet a window that another part of the plan keeps.

A window is read as the batches before have left it. Rows of this batch that the head may see come on a port of their
own, in any order with the partial results: each is met by what came before it, so every pair is found exactly once.
Nothing outlives the batch here; the window is kept by `KeptWindow`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from midstream.algebra.physical.routed import OneWayJoin
from midstream.operators.base import Operator
from midstream.operators.elements import Elements
from midstream.operators.expressions import Predicate
from midstream.operators.join import PAIRS_AT_ONCE, Probe, keep, output_of, prepare
from midstream.operators.state.segment import Grouping
from midstream.operators.state.sorted_state import SortedState


class OneWayJoinOperator(Operator):
    """Probes `window` with what comes on port 0; `seen` are this batch's rows of the window's stream, on port 1."""

    name = "one-way join"
    at_once = PAIRS_AT_ONCE

    def __init__(self, node: OneWayJoin, residual: Predicate | None) -> None:
        super().__init__(node.schema)
        key, window, stored, flow = node.key, node.window, node.stored, node.flow.schema
        self.ports = 1 if node.rows is None else 2
        self.probed, self.nulls_equal = window, node.nulls_equal
        here, there = (None if node.bits is None else Grouping(k, node.bits) for k in (key, window.key))
        self.window = SortedState(window.content, window.key, stored, None, grouping=there)
        self.seen = SortedState(window.content, window.key, stored, None, grouping=there)
        self.flow = SortedState("partial results", key, flow, None, grouping=here)
        forth, back = output_of(node.gathered, flow, stored), output_of(node.gathered, stored, flow)
        self.probes = (
            tuple(Probe(key, kept, node.nulls_equal, forth, residual) for kept in (self.window, self.seen)),
            (Probe(window.key, self.flow, node.nulls_equal, back, residual),),
        )

    def pieces(self, port: int, batch: Elements) -> Iterator[Elements]:
        self.work.taken += len(batch)
        kept = self.seen if port else self.flow
        # What the probe before has hashed may be in the order of another state.
        batch, hashes = prepare(batch.without_hashes(), kept.key, self.nulls_equal, kept.grouping)
        if len(batch) == 0:
            return
        for probe in self.probes[port]:
            for found in probe.pieces(batch, hashes, self.work, self.at_once):
                self.work.given += len(found)
                yield found.without_hashes().with_columns(found.columns.select(self.schema.names))
        self.work.probed += len(batch) if port == 0 else 0
        if self.ports == 2:  # rows of the batch may still come, and meet what came before them
            kept.append(batch, hashes)


class KeptWindowOperator(Operator):
    """Stores what comes and gives nothing."""

    name = "kept window"

    def __init__(self, schema: pa.Schema, state: SortedState) -> None:
        super().__init__(schema)
        self.state, self.states = state, (state,)

    def process(self, port: int, batch: Elements) -> Elements | None:
        self.work.taken += len(batch)
        keep(self, self.state, batch)
        self.work.inserted += len(batch)
        return None
