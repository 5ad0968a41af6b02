"""How a query is being executed: by one box, or by two while it migrates.

An execution takes windowed elements per source, learns frontiers and gives results to a sink. A migration is an
execution that stands in for the old box's until it is done, and then leaves the new box's in its place. So whoever runs
a query feeds an execution and never asks whether a migration is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from midstream.algebra.physical import SourceNode
from midstream.algebra.time import INFINITY
from midstream.errors import InputError
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.operators.state.sorted_state import SortedState
from midstream.scheduling.scheduler import Scheduler, Sink


class Execution(Protocol):
    """Something that computes a query's results from its sources' elements."""

    @property
    def sources(self) -> tuple[SourceNode, ...]:
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

    def named_states(self) -> Iterator[tuple[str, SortedState]]:
        """All that it remembers, in a stable order and under names that do not repeat."""

    def restore(self, frontier: int) -> None:
        """Goes on from a frontier that was reached earlier; the states have been put in before."""


class SingleBox:
    """The ordinary execution: one box under one scheduler."""

    def __init__(self, box: Box, sink: Sink, schedule: Callable[[Box, Sink], Scheduler] = Scheduler) -> None:
        self.box = box
        self.sink = sink
        self.schedule = schedule
        self.scheduler = schedule(box, sink)
        self.inputs: dict[str, list[tuple[int, SourceNode]]] = {}
        for number, (source, _) in enumerate(box.sources):
            self.inputs.setdefault(source.stream.alias, []).append((number, source))

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """What the box reads."""
        return tuple(source for source, _ in self.box.sources)

    def feed(self, alias: str, batch: Elements) -> None:
        """Takes windowed elements of a source."""
        if self.box.frontier == INFINITY:
            raise InputError(f"{alias} was closed and has been given {len(batch)} more rows")
        for number, source in self.inputs[alias]:
            self.scheduler.feed(number, batch.arranged(source.schema))

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

    def named_states(self) -> Iterator[tuple[str, SortedState]]:
        """The box's states, named by what they hold and by their key."""
        return named(self.states())

    def restore(self, frontier: int) -> None:
        """Sets the box to a frontier that was reached earlier."""
        self.box.restore(frontier)

    def beside(self, box: Box, sink: Sink) -> SingleBox:
        """An execution of another box under the same kind of scheduler."""
        return SingleBox(box, sink, self.schedule)


def named(states: Iterable[SortedState], prefix: str = "") -> Iterator[tuple[str, SortedState]]:
    """States under names that do not repeat: what they hold, and the key they are sorted by."""
    seen: dict[str, int] = {}
    for state in states:
        name = f"{prefix}{state.id} by {', '.join(state.key)}"
        seen[name] = seen.get(name, 0) + 1
        yield (name if seen[name] == 1 else f"{name} ({seen[name]})"), state
