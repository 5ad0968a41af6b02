"""Where elements come from, and what sets their validity."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from midstream.algebra.partition import Partition
from midstream.algebra.physical.base import OrderedRows, PhysicalNode, Unary
from midstream.algebra.plan import Stream
from midstream.algebra.time import TimeDomain
from midstream.algebra.windows import Hop, Range, Rows, SessionGap, Unbounded, Until, WindowSpec


@dataclass(frozen=True, slots=True)
class SourceNode(PhysicalNode):
    """The columns of a stream that the query needs, valid as its window says; one tick long without a window.

    Time windows belong to the source, not to the box above it: they remember nothing, and what crosses into a box is
    then an element whose whole validity is known.
    """

    stateful: ClassVar[bool] = False
    keeps_intervals: ClassVar[bool] = True

    stream: Stream
    window: WindowSpec | None = None
    partition: Partition | None = field(default=None, kw_only=True, compare=False, repr=False)
    """By what its rows are dealt to slots, where states are sorted by partition group."""

    @property
    def label(self) -> str:
        shown = "" if self.stream.alias == self.stream.name else f" AS {self.stream.alias}"
        window = "" if self.window is None else f" {self.window.show(self.domain)}"
        return f"Source {self.stream.name}{window}{shown}"

    @property
    def longest(self) -> int | None:
        return longest_validity(self.window)

    @property
    def domain(self) -> TimeDomain:
        return self.stream.domain


@dataclass(frozen=True, slots=True)
class OutputOf(SourceNode):
    """What a plan gives that runs elsewhere, read like a source: its elements come with their validity."""

    producer: PhysicalNode = field(kw_only=True)

    @property
    def stands_for(self) -> PhysicalNode:
        return self.producer.stands_for

    @property
    def content(self) -> str:
        return self.producer.content

    @property
    def longest(self) -> int | None:
        return self.producer.longest

    @property
    def domain(self) -> TimeDomain:
        return self.producer.domain


def longest_validity(window: WindowSpec | None) -> int | None:
    """The longest validity a window gives to a tuple; None if there is no bound."""
    match window:
        case Range(size):
            return size + 1
        case Hop() as hop:
            return hop.longest_size + hop.longest_slide
        case Unbounded() | Until():
            return None
    return 1


@dataclass(frozen=True, slots=True)
class AssignWindow(Unary):
    """Sets the validity of the instants of a sub-query."""

    stateful: ClassVar[bool] = False
    outlives_windows: ClassVar[bool] = True

    spec: WindowSpec

    @property
    def label(self) -> str:
        return f"Window {self.spec.show(self.domain)}"

    @property
    def longest(self) -> int | None:
        return longest_validity(self.spec)


@dataclass(frozen=True, slots=True)
class WindowBounds(Unary):
    """When the windows that tuples are valid in begin and end, as two more columns; windows that do not overlap."""

    stateful: ClassVar[bool] = False
    keeps_intervals: ClassVar[bool] = True

    hop: Hop
    bounds: tuple[str, str]

    @property
    def label(self) -> str:
        return f"Bounds of {self.hop.show(self.domain)} as {', '.join(self.bounds)}"


@dataclass(frozen=True, slots=True)
class OverlappingBounds(WindowBounds):
    """The same of windows that overlap: tuples are cut where one ends."""

    keeps_intervals: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class RowWindow(OrderedRows):
    """The last rows of a partition."""

    spec: Rows
    grid: Hop

    @property
    def label(self) -> str:
        return f"RowWindow {self.spec.show(self.domain)} every {self.grid.longest_slide}"

    @property
    def longest(self) -> int | None:
        return self.grid.longest_slide


@dataclass(frozen=True, slots=True)
class SessionWindow(OrderedRows):
    """The rows of sessions, when they have ended."""

    spec: SessionGap
    bounds: tuple[str, str] | None

    @property
    def label(self) -> str:
        bounds = "" if self.bounds is None else f" with {', '.join(self.bounds)}"
        return f"SessionWindow {self.spec.show(self.domain)}{bounds}"

    @property
    def longest(self) -> int | None:
        return 1


@dataclass(frozen=True, slots=True)
class Instants(Unary):
    """One element per instant of its input; at a hop's boundaries only, if there is one."""

    waits_for_frontier: ClassVar[bool] = True

    boundaries: Hop | None

    @property
    def label(self) -> str:
        return "Instants" if self.boundaries is None else f"Instants every {self.boundaries.longest_slide}"

    @property
    def longest(self) -> int | None:
        return 1
