"""A live query: its execution, and the results waiting for their time.

Results leave in order of `valid_from`, once the frontier has passed it: everything that could still come starts later.
What is emitted but not yet released belongs to the query, not to the plan that computed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from midstream.algebra.declarations import UserFunction
from midstream.algebra.physical import Source
from midstream.algebra.plan import ToStream
from midstream.algebra.time import BEGINNING, INFINITY, TimeDomain
from midstream.algebra.windows import Hop
from midstream.errors import InputError
from midstream.migration.execution import Execution, SingleBox
from midstream.operators.box import Box
from midstream.operators.elements import Elements, Ticks, concatenate, select_columns
from midstream.operators.hops import boundary_after
from midstream.operators.sorting import stable_order
from midstream.operators.vectors import column_of
from midstream.optimizer.plans import Plan
from midstream.operators.stateless import windowed


class Release:
    """Holds emitted results back until the frontier has passed their start, then gives them in order."""

    def __init__(self) -> None:
        self.waiting: list[Elements] = []

    def __call__(self, batch: Elements) -> None:
        """Takes a batch of emitted results."""
        self.waiting.append(batch)

    def release(self, frontier: int) -> Elements | None:
        """All results that start before the frontier, ordered by start."""
        if not self.waiting:
            return None
        together = concatenate(self.waiting)
        if not bool((together.valid_from[1:] >= together.valid_from[:-1]).all()):
            together = together.take(stable_order(together.valid_from))
        count = int(together.valid_from.searchsorted(frontier)) if frontier < INFINITY else len(together)
        self.waiting = [together.slice(count, len(together) - count)] if count < len(together) else []
        return together.slice(0, count) if count else None


class LiveQuery:
    """One query, its execution and its waiting results."""

    def __init__(self, plan: Plan, functions: Mapping[str, UserFunction] | None = None) -> None:
        self.plan = plan
        self.functions = dict(functions or {})
        self.release = Release()
        self.frontier = BEGINNING
        self.execution: Execution = SingleBox(Box(plan.physical, self.functions), self.release)
        self.sources = self.execution.sources

    @property
    def streams(self) -> frozenset[str]:
        """The streams it reads."""
        return frozenset(source.stream.name for source in self.sources)

    def feed(self, stream: str, rows: pa.RecordBatch, ticks: Ticks) -> None:
        """Takes rows of a stream with their times."""
        if len(ticks) == 0:
            return
        if self.frontier == INFINITY:
            raise InputError(f"the query has ended, rows of stream {stream} come too late")
        for source in self.sources:
            if source.stream.name == stream:
                elements = source_elements(source, rows, ticks)
                if len(elements):
                    self.execution.feed(source.stream.alias, elements)

    def advance(self, registers: Mapping[str, int]) -> Elements | None:
        """Learns how far the streams are; gives the results that leave because of it."""
        frontier = reached(self.sources, registers)
        if frontier > self.frontier:
            self.frontier = frontier
            self.execution.advance(frontier)
        return self.release.release(min(self.frontier, self.execution.passed))

    def table(self, elements: Elements | None) -> pa.Table:
        """Results as users see them."""
        return result_table(self.plan, elements)


def source_elements(source: Source, rows: pa.RecordBatch, ticks: Ticks) -> Elements:
    """Rows of a stream as the windowed elements of a source."""
    names = source.stream.columns.names
    places = [names.index(name.removeprefix(f"{source.stream.alias}.")) for name in source.schema.names]
    return windowed(Elements(select_columns(rows, places, source.schema), ticks, ticks + 1), source.window)


def reached(sources: Iterable[Source], registers: Mapping[str, int]) -> int:
    """The least instant at which something may still start, over all sources.

    A tuple at or after a register starts to count at the next boundary of its hop, if it has one.
    """
    least = INFINITY
    for source in sources:
        register = registers.get(source.stream.name, BEGINNING)
        if isinstance(source.window, Hop) and BEGINNING < register < INFINITY:
            register = int(boundary_after(register, source.window))
        least = min(least, register)
    return least


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
