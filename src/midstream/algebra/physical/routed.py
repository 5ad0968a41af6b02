"""Routed joins as physical plans: the whole join, and what it becomes where windows lie in slots.

The join as a whole says, for each stream, in which order its new rows meet the windows of the others and where. In one
place it runs as the multi-way join that it is. In slots it is cut into one-way joins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from midstream.algebra.expressions import Expression
from midstream.algebra.physical import Concatenate, MultiwayJoin, PhysicalNode, Unary
from midstream.algebra.placements import ARROWS, Placement
from midstream.errors import InternalError

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoutedJoin(MultiwayJoin):
    """An inner join of streams by ways: probe routes with a placement for each probe."""

    placements: tuple[tuple[Placement, ...], ...] = ()

    def __post_init__(self) -> None:
        if [len(way) for way in self.placements] != [len(route) for route in self.routes]:
            raise InternalError("a routed join needs a placement for every probe")
        for i, route in enumerate(self.routes):
            if sorted(step.target for step in route) != [j for j in range(len(self.joined)) if j != i]:
                raise InternalError(f"the way of input {i} must meet every other input once")

    @property
    def label(self) -> str:
        def show(i: int) -> str:
            steps = zip(self.routes[i], self.placements[i], strict=True)
            return " ".join([str(i), *(f"{ARROWS[placed]} {step.target}" for step, placed in steps)])

        return f"RoutedJoin on {self.condition} by {', '.join(map(show, range(len(self.routes))))}"


@dataclass(frozen=True, slots=True)
class WindowName:
    """A window as slots keep it: what it holds, the key it is sorted by, and whether every slot has all of it."""

    content: str
    key: Key
    everywhere: bool

    def __str__(self) -> str:
        return "in every slot" if self.everywhere else f"by {', '.join(self.key)}" if self.key else "anywhere"


@dataclass(frozen=True, slots=True)
class KeptWindow(Unary):
    """Keeps the window of a stream for the one-way joins that probe it; gives nothing."""

    keeps_intervals: ClassVar[bool] = True
    keeps_valid_input: ClassVar[bool] = True

    key: Key
    everywhere: bool

    @property
    def name(self) -> WindowName:
        """What the one-way joins that probe it call it."""
        return WindowName(self.input.content, self.key, self.everywhere)

    @property
    def label(self) -> str:
        return f"Window kept {self.name}"


@dataclass(frozen=True, slots=True)
class OneWayJoin(PhysicalNode):
    """Partial results of one stream's new rows meet the window of another.

    The window is as the batches before have left it; `rows` are those of this batch, for streams whose new rows the
    head sees. So of the parts of a result exactly one is a head that sees all others.
    """

    stateful: ClassVar[bool] = False
    keeps_intervals: ClassVar[bool] = True

    flow: PhysicalNode
    rows: PhysicalNode | None
    window: WindowName
    stored: pa.Schema
    lasting: int | None
    key: Key
    nulls_equal: bool
    residual: Expression | None
    gathered: pa.Schema
    bits: int | None = None
    """How many bits of the key's hash are the partition group, where the window is sorted by group."""

    @property
    def inputs(self) -> tuple[PhysicalNode, ...]:
        return (self.flow,) if self.rows is None else (self.flow, self.rows)

    @property
    def label(self) -> str:
        parts = [f"{a} = {b}" for a, b in zip(self.key, self.window.key, strict=True)]
        parts += [] if self.residual is None else [str(self.residual)]
        return f"OneWayJoin on {' and '.join(parts) or 'nothing'} with the window {self.window}"

    @property
    def longest(self) -> int | None:
        spans = [span for span in (self.flow.longest, self.lasting) if span is not None]
        return min(spans, default=None)


@dataclass(frozen=True, slots=True)
class Ways(Concatenate):
    """What the ways of a routed join give together: the join."""

    whole: PhysicalNode

    @property
    def label(self) -> str:
        return "Ways"

    @property
    def stands_for(self) -> PhysicalNode:
        return self.whole.stands_for

    @property
    def content(self) -> str:
        return self.whole.content

    @property
    def longest(self) -> int | None:
        return self.whole.longest
