"""Parallel track as its paper has it, for experiments (CAPE sections 2 and 4.2).

Tuples carry timestamps instead of intervals. Two tuples join if all their parts lie within one window, and a combined
tuple is purged by what comes more than a window after the *latest* of its parts (Purging Lemma 2.2), long after its
interval has ended: so an old tuple can be the part of a combined one for a window, and that one stays for another. The
migration ends when nothing old is left, after two windows if joins stand above joins. Until then results of the new
box are held back, and they leave together at the end, in order only in the sense of Lemma 2.1.

Here a part's timestamp is a column, a stored tuple is kept for a window after its latest part, and a join also asks
that its earliest and its latest part lie within a window. Only the least and the greatest timestamp matter, so they
are all that is made up for tuples that were combined before the migration began.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from midstream.algebra import physical as p
from midstream.algebra.expressions import Call, Column, Expression, Literal, Named, conjunction, conjuncts
from midstream.algebra.physical import SourceNode
from midstream.algebra.windows import Range
from midstream.errors import InternalError, MigrationError
from midstream.migration.execution import SingleBox, named
from midstream.migration.legality import describe, require_one_query
from midstream.migration.protocol import Decision, Figures, Functions, Situation, common_sources, rows_in
from midstream.operators.box import Box
from midstream.operators.elements import Elements, Mask, Ticks, concatenate
from midstream.operators.state.segment import Segment, make_segment
from midstream.operators.state.sorted_state import SortedState
from midstream.optimizer.plans import Plan

OLD, AT = "#old", "#at"
JOINED = (p.SourceNode, p.Filter, p.Compute, p.HashJoin)


class ParallelTrackPaper:
    """For binary inner joins over one global window."""

    name = "parallel_track_paper"

    def refuse(self, old: Plan, new: Plan, functions: Functions) -> None:
        """Asks for what the paper assumes."""
        require_one_query(self.name, old, new)
        for plan in (old, new):
            for node in p.walk_physical(plan.physical):
                if not isinstance(node, JOINED):
                    raise MigrationError(f"{self.name} cannot migrate this plan: it contains {describe(node)}")
            if global_window(plan.physical) is None:
                raise MigrationError(f"{self.name} needs one window for all streams")

    def decide(self, situation: Situation) -> Decision:
        """The end of the last tuple that is old by itself."""
        return {"old_until": situation.inside}

    def open(self, old: SingleBox, new: Box, decision: Decision) -> PaperTracks:
        """Two boxes of tuples with timestamps."""
        return PaperTracks(old, new, decision["old_until"])


class PaperTracks:
    """Runs both boxes over everything; the old one's results leave, the new one's are held back."""

    def __init__(self, old: SingleBox, new: Box, old_until: int) -> None:
        self.before, self.after = old, old.beside(new, old.sink)
        self.old_until = old_until
        self.figures = Figures()
        window = global_window(old.box.plan)
        assert window is not None
        self.window = window
        self.schema = old.box.plan.schema
        self.old = old.beside(Box(timed(old.box.plan, window), new.functions), self._from_old)
        self.new = old.beside(Box(timed(new.plan, window), new.functions), self._from_new)
        self.held = SortedState("results held back", (), self.schema, None)
        self.sources: tuple[SourceNode, ...] = common_sources(self.before, self.after)

    def begin(self) -> None:
        """Gives every tuple of the old box its marks and timestamps."""
        for state, twin in zip(self.before.states(), self.old.states(), strict=True):
            twin.replace_segments([timed_segment(segment, twin.schema, self.window) for segment in state.segments])
        self.old.restore(self.before.box.frontier)
        self.new.restore(self.before.box.frontier)

    def feed(self, alias: str, batch: Elements) -> None:
        """Gives the batch, as new, to both boxes."""
        timed_batch = timed_elements(batch, alias, old=False)
        self.old.feed(alias, timed_batch)
        self.new.feed(alias, timed_batch)
        self.figures.processed_twice += len(batch)

    def _from_old(self, batch: Elements) -> None:
        """Results with an old part leave; new with new is what the new box gives."""
        some_old = with_old_part(batch)
        if some_old.any():
            self.before.sink(untimed(batch.where(some_old), self.schema, self.window))

    def _from_new(self, batch: Elements) -> None:
        self.held.append(untimed(batch, self.schema, self.window), np.zeros(len(batch), np.uint64))

    def advance(self, frontier: int) -> None:
        """Purges both boxes."""
        self.old.advance(frontier)
        self.new.advance(frontier)
        self.figures.holding(rows_in(self.new.states()) + self.held.rows)

    @property
    def passed(self) -> int:
        """Where the input stands; what is held back will leave behind this."""
        return self.old.passed

    @property
    def held_from(self) -> int | None:
        """Nothing that others wait for: what is held back leaves behind the rest."""
        return None

    @property
    def done(self) -> bool:
        """Whether nothing old is left in the old box."""
        frontier = self.old.passed
        return frontier >= self.old_until and not any(any_old(state, frontier) for state in self.old.states())

    def finish(self) -> SingleBox:
        """Lets go what was held back and leaves the new box."""
        if self.held.segments:
            self.before.sink(concatenate([segment.elements for segment in self.held.segments]))
        return self._left(self.new, self.after)

    def cancel(self) -> SingleBox:
        """Lets go what was held back and leaves the old box, which has had everything."""
        if self.held.segments:
            self.before.sink(concatenate([segment.elements for segment in self.held.segments]))
        return self._left(self.old, self.before)

    def _left(self, track: SingleBox, execution: SingleBox) -> SingleBox:
        frontier = track.box.frontier
        for state, twin in zip(execution.states(), track.states(), strict=True):
            segments = (self._untimed_segment(segment, state.schema, frontier) for segment in twin.segments)
            state.replace_segments([segment for segment in segments if segment is not None])
        execution.restore(frontier)
        return execution

    def states(self) -> Iterator[SortedState]:
        """All states."""
        return (state for _, state in self.named_states())

    def named_states(self) -> Iterator[tuple[str, SortedState]]:
        """The states of both boxes and what is held back."""
        yield from named(self.old.states(), "old/")
        yield from named(self.new.states(), "new/")
        yield from named([self.held], "held/")

    def restore(self, frontier: int) -> None:
        """Sets both boxes to a frontier that was reached earlier."""
        self.old.restore(frontier)
        self.new.restore(frontier)

    def _untimed_segment(self, segment: Segment, schema: pa.Schema, frontier: int) -> Segment | None:
        elements = untimed(segment.elements, schema, self.window)
        alive = np.flatnonzero(elements.valid_to > frontier)
        if len(alive) == 0:
            return None
        return make_segment(elements.take(alive), segment.hashes[alive], segment.bucket, segment.born)


def timed_segment(segment: Segment, schema: pa.Schema, window: int) -> Segment:
    """A segment of intervals as old tuples with timestamps."""
    elements = segment.elements
    latest, earliest = elements.valid_from, elements.valid_to - (window + 1)
    arrays = list(elements.columns.columns)
    for i in range(len(_extras(schema, AT))):
        arrays += [pa.repeat(True, len(elements)), pa.array(earliest if i == 0 else latest)]
    columns = pa.RecordBatch.from_arrays(arrays, schema=schema)
    kept = Elements(columns, latest, latest + (window + 1))
    return make_segment(kept, segment.hashes, segment.bucket, segment.born)


def timed_elements(batch: Elements, alias: str, old: bool) -> Elements:
    """Elements of a source with a mark and a timestamp."""
    arrays = [*batch.columns.columns, pa.repeat(old, len(batch)), pa.array(batch.valid_from)]
    columns = pa.RecordBatch.from_arrays(arrays, schema=_with_extras(batch.columns.schema, [alias]))
    return batch.with_columns(columns)


def untimed(batch: Elements, schema: pa.Schema, window: int) -> Elements:
    """Tuples with the interval in which all their parts are valid."""
    times = [batch.columns.column(name).to_numpy() for name in _extras(batch.columns.schema, AT)]
    starts: Ticks = np.maximum.reduce(times)
    ends: Ticks = np.minimum.reduce(times) + (window + 1)
    return Elements(batch.columns.select(schema.names), starts, ends)


def with_old_part(batch: Elements) -> Mask:
    """Which tuples have a part that was there when the migration began."""
    some_old = np.zeros(len(batch), bool)
    for name in _extras(batch.columns.schema, OLD):
        some_old |= batch.columns.column(name).to_numpy(zero_copy_only=False)
    return some_old


def timed(node: p.PhysicalNode, window: int) -> p.PhysicalNode:
    """A join plan over tuples with marks and timestamps; what is stored is kept for a window after its latest part."""
    match node:
        case p.SourceNode():
            return replace(node, schema=_with_extras(node.schema, [node.stream.alias]))
        case p.Filter():
            inner = timed(node.input, window)
            return replace(node, input=inner, schema=_with_extras(node.schema, _aliases(inner.schema)))
        case p.Compute():
            inner = timed(node.input, window)
            extras = [f for f in inner.schema if f.name.endswith((OLD, AT))]
            passed = tuple(Named(f.name, Column(f.name, f.type)) for f in extras)
            return replace(
                node, input=inner, schema=pa.schema([*node.schema, *extras]), columns=(*node.columns, *passed)
            )
        case p.HashJoin():
            left, right = timed(node.left, window), timed(node.right, window)
            aliases = [*_aliases(left.schema), *_aliases(right.schema)]
            residual = conjunction([*conjuncts(node.residual), _within(aliases, window)])
            joined = replace(node, left=left, right=right, residual=residual, schema=_with_extras(node.schema, aliases))
            return p.AssignWindow(joined.schema, joined, Range(window))
    raise InternalError(f"{node.label} has no timestamps")


def _within(aliases: list[str], window: int) -> Expression:
    times = tuple(Column(f"{alias}.{AT}", pa.int64()) for alias in aliases)
    latest, earliest = (Call(name, times, pa.int64()) for name in ("greatest", "least"))
    return Call("<=", (Call("-", (latest, earliest), pa.int64()), Literal(window, pa.int64())), pa.bool_())


def _with_extras(schema: pa.Schema, aliases: list[str]) -> pa.Schema:
    extras = [f for alias in aliases for f in ((f"{alias}.{OLD}", pa.bool_()), (f"{alias}.{AT}", pa.int64()))]
    return pa.schema([*schema, *(pa.field(name, kind) for name, kind in extras)])


def _extras(schema: pa.Schema, suffix: str) -> list[str]:
    return [name for name in schema.names if name.endswith(f".{suffix}")]


def _aliases(schema: pa.Schema) -> list[str]:
    return [name.removesuffix(f".{AT}") for name in _extras(schema, AT)]


def any_old(state: SortedState, frontier: int) -> bool:
    """Whether a state still keeps a tuple with an old part."""
    return any(
        bool((with_old_part(segment.elements) & (segment.elements.valid_to > frontier)).any())
        for segment in state.segments
    )


def global_window(plan: p.PhysicalNode) -> int | None:
    """The size of the one window that all sources have."""
    windows = {node.window for node in p.walk_physical(plan) if isinstance(node, p.SourceNode)}
    only = windows.pop() if len(windows) == 1 else None
    return only.size if isinstance(only, Range) else None
