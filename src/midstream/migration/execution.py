"""How a query is being executed: by one box, or by two while it migrates.

An execution takes windowed elements per source, learns frontiers and gives results to a sink. A migration is an
execution that stands in for the old box's until it is done, and then leaves the new box's in its place. So whoever runs
a query feeds an execution and never asks whether a migration is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from midstream.algebra.physical import Source
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.operators.state.sorted_state import SortedState
from midstream.scheduling.depth_first import DepthFirst

Sink = Callable[[Elements], None]


class Execution(Protocol):
    """Something that computes a query's results from its sources' elements."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """What it must be fed with."""

    def feed(self, alias: str, batch: Elements) -> None:
        """Takes windowed elements of a source, with the source's columns by name."""

    def advance(self, frontier: int) -> None:
        """Learns that every element that starts before the frontier has been fed."""

    @property
    def passed(self) -> int:
        """Nothing that starts before this will be given any more."""

    def states(self) -> Iterator[SortedState]:
        """All that it remembers."""


class SingleBox:
    """The ordinary execution: one box under one scheduler."""

    def __init__(self, box: Box, sink: Sink) -> None:
        self.box = box
        self.sink = sink
        self.scheduler = DepthFirst(box, sink)
        self.wires = {source.stream.alias: (source, wire) for source, wire in box.sources}

    @property
    def sources(self) -> tuple[Source, ...]:
        """What the box reads."""
        return tuple(source for source, _ in self.box.sources)

    def feed(self, alias: str, batch: Elements) -> None:
        """Takes windowed elements of a source."""
        source, wire = self.wires[alias]
        if batch.columns.schema.names != source.schema.names:
            batch = batch.with_columns(batch.columns.select(source.schema.names))
        self.scheduler.feed(wire, batch)

    def advance(self, frontier: int) -> None:
        """Carries the frontier through the box."""
        self.scheduler.advance(frontier)

    @property
    def passed(self) -> int:
        """The frontier of the box's results."""
        return self.box.passed

    def states(self) -> Iterator[SortedState]:
        """The box's states."""
        return self.box.states()
