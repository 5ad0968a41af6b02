"""What every migration strategy is.

A strategy first says whether it may take one plan to another. It then decides what must be one decision for the whole
query (a split time, say), opens the two boxes under an execution of its own, and begins. From then on the execution is
fed like any other. When it is done it leaves the new box; cancelled, it leaves the old one, and nothing is lost.

Decisions are plain values that JSON can write, and all else is state that can be listed by name, so a migration can be
taken down after any batch and opened again somewhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from midstream.algebra.declarations import UserFunction
from midstream.algebra.physical import SourceNode
from midstream.algebra.plan import Relation
from midstream.algebra.statistics import UNKNOWN, Statistics
from midstream.algebra.time import BEGINNING
from midstream.migration.corrections import Correction
from midstream.migration.execution import Execution, SingleBox
from midstream.operators.box import Box
from midstream.operators.state.sorted_state import SortedState
from midstream.optimizer.plans import Plan

Decision = dict[str, Any]
Functions = Mapping[str, UserFunction]


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a query stands: its frontier, and per source the latest start seen and the register, if any.

    `inside` is the latest end of anything in the old box's states, `ends` the same for each state by id, if known.
    `seen_below` is the latest end of what came by inputs that are no sources of the query, where a part of a plan
    migrates. The plans, the functions and the statistics are for finding that part, and for `auto`; to `auto`,
    `unchanged` says which sub-plans are below the part, `shipped` how many rows would go to other slots with their
    state, and `corrections` by how much earlier forecasts were off, by strategy.
    """

    sources: tuple[SourceNode, ...]
    frontier: int = BEGINNING
    starts: Mapping[str, int] = field(default_factory=dict)
    registers: Mapping[str, int] = field(default_factory=dict)
    inside: int = BEGINNING
    old: Plan | None = None
    new: Plan | None = None
    functions: Functions = field(default_factory=dict)
    statistics: Statistics = UNKNOWN
    ends: Mapping[str, int] = field(default_factory=dict)
    seen_below: int = BEGINNING
    unchanged: tuple[Relation, ...] = ()
    shipped: int = 0
    corrections: Mapping[str, Correction] = field(default_factory=dict)


@dataclass(slots=True)
class Figures:
    """What a migration cost so far: elements that both boxes processed, and the rows held for its sake alone."""

    processed_twice: int = 0
    extra_rows: int = 0
    peak_extra_rows: int = 0

    def holding(self, rows: int) -> None:
        """Notes how many rows are held beyond the old box's."""
        self.extra_rows = rows
        self.peak_extra_rows = max(self.peak_extra_rows, rows)


class Migrating(Execution, Protocol):
    """An execution on the way from one box to another."""

    figures: Figures

    def begin(self) -> None:
        """Does what is done once, with the old box's states in place."""

    @property
    def done(self) -> bool:
        """Whether the new box can go on alone. Where a query has several partitions, all of them must be done."""

    @property
    def held_from(self) -> int | None:
        """The earliest start of results that are computed but held back; None if there are none."""

    def finish(self) -> SingleBox:
        """Leaves the new box."""

    def cancel(self) -> SingleBox:
        """Leaves the old box as if there had been no migration."""


class OnTheWay(ABC):
    """What executions that migrate have in common, unless they hold results back."""

    @property
    def held_from(self) -> int | None:
        """Nothing is ever held back."""
        return None

    @abstractmethod
    def named_states(self) -> Iterator[tuple[str, SortedState]]:
        """All states, in a stable order and under names that do not repeat."""

    def states(self) -> Iterator[SortedState]:
        """All states."""
        return (state for _, state in self.named_states())


class Strategy(Protocol):
    """A way of taking a running query from one plan to another."""

    @property
    def name(self) -> str:
        """The name users call it by."""

    def refuse(self, old: Plan, new: Plan, functions: Functions) -> None:
        """Raises a MigrationError if it cannot take the one plan to the other correctly."""

    def decide(self, situation: Situation) -> Decision:
        """What must be the same in all partitions of the query."""

    def open(self, old: SingleBox, new: Box, decision: Decision) -> Migrating:
        """The execution that migrates: fresh before `begin`, or to be filled with states and restored."""


def latest_end(execution: Execution) -> int:
    """The latest end of anything that an execution remembers."""
    return max((segment.latest_to for state in execution.states() for segment in state.segments), default=BEGINNING)


def latest_ends(execution: Execution) -> dict[str, int]:
    """The latest end of anything in each state that holds something, by the state's id."""
    ends: dict[str, int] = {}
    for state in execution.states():
        for segment in state.segments:
            ends[state.id] = max(ends.get(state.id, BEGINNING), segment.latest_to)
    return ends


def common_sources(old: SingleBox, new: SingleBox) -> tuple[SourceNode, ...]:
    """What both boxes must be fed with: per source all columns that either reads."""
    theirs = {source.stream.alias: source for source in new.sources}
    return tuple(widened(source, theirs[source.stream.alias]) for source in old.sources)


def widened(source: SourceNode, other: SourceNode) -> SourceNode:
    """A source with all columns that two plans read of it."""
    if source.schema.names == other.schema.names:
        return source
    names = set(source.schema.names) | set(other.schema.names)
    columns = sorted((f for f in source.stream.schema if f.name in names), key=lambda f: f.name)
    return SourceNode(pa.schema(columns), source.stream, source.window, partition=source.partition)


def rows_in(states: Iterator[Any]) -> int:
    """How many rows some states hold."""
    return sum(state.rows for state in states)
