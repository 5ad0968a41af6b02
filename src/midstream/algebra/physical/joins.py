"""Joins: symmetric, multi-way by probe routes, and those that look at absence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from midstream.algebra.expressions import Expression, conjuncts
from midstream.algebra.physical.base import Binary, Conjunction, PhysicalNode
from midstream.algebra.physical.identities import joined_content
from midstream.algebra.plan import JoinKind
from midstream.algebra.windows import Hop


@dataclass(frozen=True, slots=True)
class HashJoin(Binary):
    """A symmetric inner join by equal keys and a residual condition."""

    keeps_intervals: ClassVar[bool] = True
    keeps_valid_input: ClassVar[bool] = True

    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    nulls_equal: bool
    residual: Expression | None

    @property
    def label(self) -> str:
        return f"Join{condition_label(self.left_key, self.right_key, self.residual)}"

    @property
    def conjunction(self) -> Conjunction:
        keys = tuple(zip(self.left_key, self.right_key, strict=True))
        rest = conjuncts(self.residual)
        return Conjunction((), keys, rest) if self.nulls_equal else Conjunction(keys, (), rest)

    @property
    def content(self) -> str:
        return joined_content(self)

    @property
    def longest(self) -> int | None:
        spans = [s for s in (self.left.longest, self.right.longest) if s is not None]
        return min(spans, default=None)


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """One probe on a route: the input met, the key on both sides, what to check, and the columns kept."""

    target: int
    key: tuple[str, ...]
    target_key: tuple[str, ...]
    nulls_equal: bool
    residual: Expression | None
    gathered: pa.Schema


@dataclass(frozen=True, slots=True)
class MultiwayJoin(PhysicalNode):
    """An inner join of many inputs by probe routes, without intermediate state."""

    keeps_intervals: ClassVar[bool] = True
    keeps_valid_input: ClassVar[bool] = True

    joined: tuple[PhysicalNode, ...]
    routes: tuple[tuple[ProbeStep, ...], ...]
    condition: Expression

    @property
    def inputs(self) -> tuple[PhysicalNode, ...]:
        return self.joined

    @property
    def label(self) -> str:
        def show(i: int) -> str:
            return f"{i}: {' '.join(str(step.target) for step in self.routes[i])}"

        return f"MultiwayJoin on {self.condition} probing {', '.join(map(show, range(len(self.routes))))}"

    @property
    def conjunction(self) -> Conjunction:
        return Conjunction(conditions=conjuncts(self.condition))

    @property
    def content(self) -> str:
        return joined_content(self)

    @property
    def longest(self) -> int | None:
        spans = [s for s in (child.longest for child in self.joined) if s is not None]
        return min(spans, default=None)


@dataclass(frozen=True, slots=True)
class OuterJoin(Binary):
    """A join that looks at absence: outer, anti, or semi with more than equal keys."""

    waits_for_frontier: ClassVar[bool] = True
    keeps_valid_input: ClassVar[bool] = True

    kind: JoinKind
    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    nulls_equal: bool
    residual: Expression | None
    grid: Hop

    @property
    def label(self) -> str:
        nulls = " with nulls" if self.nulls_equal else ""
        return f"{self.kind.title()}Join{condition_label(self.left_key, self.right_key, self.residual)}{nulls}"


def condition_label(left: tuple[str, ...], right: tuple[str, ...], residual: Expression | None) -> str:
    """What joined elements must fulfil, as a label says it."""
    parts = [f"{a} = {b}" for a, b in zip(left, right, strict=True)]
    if residual is not None:
        parts.append(str(residual))
    return f" on {' and '.join(parts)}" if parts else " (cross)"
