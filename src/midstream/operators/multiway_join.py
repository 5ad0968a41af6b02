"""Multi-way join: any number of inputs, a probe order for each, and no intermediate results.

A batch of input i meets the states of the others one after another, in the order chosen for i, and is then stored. A
result is found exactly once: when the last of its parts to be processed comes in, all others are in their states.
A routed join whose windows are all in one place is this operator (`docs/distributed_joins.md`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from midstream.operators.base import Operator
from midstream.operators.elements import Elements, Key
from midstream.operators.expressions import Predicate
from midstream.operators.join import PAIRS_AT_ONCE, Probe, output_of, prepare
from midstream.operators.state.segment import Grouping
from midstream.operators.state.sorted_state import SortedState


@dataclass(frozen=True, slots=True)
class JoinStep:
    """One probe of a route: which state, by which columns of what has been joined so far, and what to check then."""

    state: SortedState
    key: Key
    gathered: pa.Schema
    residual: Predicate | None
    nulls_equal: bool = False
    grouping: Grouping | None = None
    """Of which partition group what has been joined so far is, if the state is sorted by group."""


class MultiwayJoinOperator(Operator):
    """Joins without intermediate state. `indexes[i]` are the states of input i, one per key it is probed by."""

    name = "multiway join"
    at_once = PAIRS_AT_ONCE

    def __init__(
        self, schema: pa.Schema, indexes: Sequence[Sequence[SortedState]], routes: Sequence[Sequence[JoinStep]]
    ) -> None:
        super().__init__(schema)
        self.ports = len(indexes)
        self.indexes = tuple(tuple(states) for states in indexes)
        self.states = tuple(state for states in indexes for state in states)
        self.routes = tuple(tuple(route) for route in routes)
        self.probes = tuple(self._probes(i, route) for i, route in enumerate(self.routes))

    def _probes(self, port: int, route: Sequence[JoinStep]) -> tuple[Probe, ...]:
        probes, so_far = [], self.indexes[port][0].schema
        for step in route:
            output = output_of(step.gathered, so_far, step.state.schema)
            probes.append(Probe(step.key, step.state, step.nulls_equal, output))
            so_far = step.gathered
        return tuple(probes)

    def pieces(self, port: int, batch: Elements) -> Iterator[Elements]:
        self.work.taken += len(batch)
        for result in self._joined(port, 0, batch):
            self.work.given += len(result)
            yield result.with_columns(result.columns.select(self.schema.names))
        self._store(port, batch)

    def store(self, port: int, batch: Elements) -> None:
        self.work.taken += len(batch)
        self._store(port, batch)

    def _joined(self, port: int, number: int, batch: Elements) -> Iterator[Elements]:
        """What becomes of a batch from a step of its route on."""
        if number == len(self.routes[port]):
            yield batch
            return
        for result in self._step(self.routes[port][number], self.probes[port][number], batch):
            yield from self._joined(port, number + 1, result)

    def _step(self, step: JoinStep, probe: Probe, batch: Elements) -> Iterator[Elements]:
        batch, hashes = prepare(batch, step.key, step.nulls_equal, step.grouping)
        if len(batch) == 0:
            return
        self.work.probed += len(batch)
        for result, candidates in probe.pieces(batch, hashes, self.at_once):
            self.work.matched += candidates
            if result is not None and step.residual is not None:
                result = result.where(step.residual(result.columns))
            if result is not None and len(result):
                yield result

    def _store(self, port: int, batch: Elements) -> None:
        for state in self.indexes[port]:
            # A null key never matches anything but stays probing through the input's other keys.
            kept, hashes = prepare(batch, state.key, True, state.grouping)
            state.append(kept, hashes)
            state.compact(self.frontier, len(kept))
        self.work.inserted += len(batch)
