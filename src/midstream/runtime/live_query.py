"""A live query: a box under a scheduler, the registers of its streams, and the results waiting for their time.

Results leave in order of `valid_from`, once the frontier has passed it: everything that could still come starts later.
What is emitted but not yet released belongs to the query, not to the plan that computed it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from midstream.algebra.declarations import UserFunction
from midstream.algebra.physical import AssignWindow, PhysicalNode, Source, walk_physical
from midstream.algebra.plan import ToStream
from midstream.algebra.time import BEGINNING, INFINITY, TimeDomain
from midstream.algebra.windows import Hop
from midstream.operators.box import Box
from midstream.operators.elements import Elements, Ticks, concatenate, select_columns
from midstream.operators.hops import boundary_after
from midstream.operators.ordering import total_order
from midstream.operators.vectors import column_of
from midstream.optimizer.plans import Plan
from midstream.scheduling.depth_first import DepthFirst


class Release:
    """Holds emitted results back until the frontier has passed their start, then gives them in order."""

    def __init__(self) -> None:
        self.waiting: list[Elements] = []

    def __call__(self, batch: Elements) -> None:
        """Takes a batch of emitted results."""
        self.waiting.append(batch)

    def release(self, frontier: int) -> Elements | None:
        """All results that start before the frontier, ordered by start, then by all columns."""
        if not self.waiting:
            return None
        together = concatenate(self.waiting)
        if frontier == INFINITY:
            ready, self.waiting = together, []
        else:
            early = together.valid_from < frontier
            ready = together.where(early)
            later = together.where(~early) if len(ready) < len(together) else None
            self.waiting = [] if later is None else [later]
        if len(ready) == 0:
            return None
        order = total_order(ready.columns, [ready.valid_from, ready.valid_to])
        return ready if order is None else ready.take(order)


class LiveQuery:
    """One query on one box."""

    def __init__(self, plan: Plan, functions: Mapping[str, UserFunction] | None = None) -> None:
        self.plan = plan
        self.functions = dict(functions or {})
        self.release = Release()
        self.frontier = BEGINNING
        self._install(Box(plan.physical, self.functions))

    def _install(self, box: Box) -> None:
        self.box = box
        self.scheduler = DepthFirst(box, self.release)
        self.boundaries = window_boundaries(box.plan)
        self.columns = {
            id(source): [source.stream.columns.names.index(name.split(".", 1)[1]) for name in source.schema.names]
            for source, _ in box.sources
        }

    @property
    def streams(self) -> frozenset[str]:
        """The streams it reads."""
        return frozenset(source.stream.name for source, _ in self.box.sources)

    def feed(self, stream: str, rows: pa.RecordBatch, ticks: Ticks) -> None:
        """Takes rows of a stream with their times."""
        for source, wire in self.box.sources:
            if source.stream.name != stream or len(ticks) == 0:
                continue
            columns = select_columns(rows, self.columns[id(source)], source.schema)
            self.scheduler.feed(wire, Elements(columns, ticks, ticks + 1))

    def advance(self, registers: Mapping[str, int]) -> Elements | None:
        """Learns how far the streams are; gives the results that leave because of it."""
        frontier = self.reached(registers)
        if frontier > self.frontier:
            self.frontier = frontier
            self.scheduler.advance(frontier)
        passed = min(self.frontier, self.box.passed) if self.box.operators else self.frontier
        return self.release.release(passed)

    def reached(self, registers: Mapping[str, int]) -> int:
        """The least instant at which something may still start, over all inputs of the query."""
        reached = INFINITY
        for source, _ in self.box.sources:
            register = registers.get(source.stream.name, BEGINNING)
            hop = self.boundaries[id(source)]
            if hop is not None and BEGINNING < register < INFINITY:
                register = int(boundary_after(register, hop))
            reached = min(reached, register)
        return reached

    def table(self, elements: Elements | None) -> pa.Table:
        """Results as users see them."""
        return result_table(self.plan, elements)


def window_boundaries(plan: PhysicalNode) -> dict[int, Hop | None]:
    """For each source, the hop that its tuples wait for before they start to count, if there is one."""
    found: dict[int, Hop | None] = {}
    for node in walk_physical(plan):
        if isinstance(node, Source):
            found.setdefault(id(node), None)
        if isinstance(node, AssignWindow) and isinstance(node.spec, Hop) and isinstance(node.input, Source):
            found[id(node.input)] = node.spec
    return found


def result_table(plan: Plan, elements: Elements | None) -> pa.Table:
    """Released results as a table: payload and `valid_from`, `valid_to`, or `ts` for streams."""
    schema, domain = plan.query.schema, plan.query.domain
    columns = [] if elements is None else list(elements.columns.columns)
    if elements is None:
        columns = [pa.array([], f.type) for f in schema]
    none = np.empty(0, np.int64)
    start, end = (none, none) if elements is None else (elements.valid_from, elements.valid_to)
    if isinstance(plan.query, ToStream):
        names, times = ["ts"], [_times(start, domain)]
    else:
        names, times = ["valid_from", "valid_to"], [_times(start, domain), _times(end, domain)]
    return pa.table([*columns, *times], names=[*schema.names, *names])


def _times(ticks: Ticks, domain: TimeDomain) -> pa.Array:
    for_ever = ticks == INFINITY
    valid = ~for_ever if for_ever.any() else None
    return column_of(np.where(for_ever, 0, ticks) if valid is not None else ticks, domain.output_type, valid)
