"""Multi-way join: any number of inputs, a probe order for each, and no intermediate results.

A batch of input i meets the states of the others one after another, in the order chosen for i, and is then stored. A
result is found exactly once: when the last of its parts to be processed comes in, all others are in their states.
A routed join whose windows are all in one place is this operator (`docs/distributed_joins.md`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from midstream.algebra.physical.relational import ProbeStep
from midstream.operators.base import Operator
from midstream.operators.elements import Elements
from midstream.operators.expressions import Predicate
from midstream.operators.join import PAIRS_AT_ONCE, Probe, keep, output_of, prepare
from midstream.operators.state.segment import Grouping
from midstream.operators.state.sorted_state import SortedState


@dataclass(frozen=True, slots=True)
class JoinStep:
    """One probe of a route: which state, what to check then, and how what has been joined so far is grouped.

    That is of which partition group it is, if the state is sorted by group.
    """

    asked: ProbeStep
    state: SortedState
    residual: Predicate | None
    grouping: Grouping | None = None


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
            asked, output = step.asked, output_of(step.asked.gathered, so_far, step.state.schema)
            probes.append(Probe(asked.key, step.state, asked.nulls_equal, output, step.residual))
            so_far = asked.gathered
        return tuple(probes)

    def pieces(self, port: int, batch: Elements) -> Iterator[Elements]:
        self.work.taken += len(batch)
        yield from self.joined(port, batch)
        self._store(port, batch)

    def joined(self, port: int, batch: Elements) -> Iterator[Elements]:
        """What a batch meets, which is not kept."""
        for result in self._joined(port, 0, batch):
            self.work.given += len(result)
            yield result.with_columns(result.columns.select(self.schema.names))

    def store(self, port: int, batch: Elements) -> None:
        self.work.taken += len(batch)
        self._store(port, batch)

    def _joined(self, port: int, number: int, batch: Elements) -> Iterator[Elements]:
        """What becomes of a batch from a step of its route on."""
        if number == len(self.routes[port]):
            yield batch
            return
        step, probe = self.routes[port][number], self.probes[port][number]
        batch, hashes = prepare(batch, probe.key, probe.nulls_equal, step.grouping)
        self.work.probed += len(batch)
        for result in probe.pieces(batch, hashes, self.work, self.at_once) if len(batch) else ():
            yield from self._joined(port, number + 1, result)

    def _store(self, port: int, batch: Elements) -> None:
        for state in self.indexes[port]:
            keep(self, state, batch)
        self.work.inserted += len(batch)
