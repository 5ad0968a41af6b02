"""Sequences: tuples in an order of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from midstream.algebra.expressions import Expression
from midstream.algebra.physical.base import Binary
from midstream.algebra.physical.relational import condition_label
from midstream.algebra.plan import SequenceMode, TimeOrder


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The columns that say at which row of a stream an element happens.

    They are the number of the stream (null: no row that matters), the stream's own columns, and `copy`: which of
    several equal rows it is, or null where nobody has counted yet. `branch` tells several readers of a stream apart.
    """

    prefix: str
    width: int

    @property
    def branch(self) -> str:
        """The number of the reader of the stream."""
        return f"{self.prefix} branch"

    @property
    def copy(self) -> str:
        """The number among equal rows."""
        return f"{self.prefix} copy"

    @property
    def values(self) -> tuple[str, ...]:
        """The number of the stream and the values of its row."""
        return (f"{self.prefix} stream", *(f"{self.prefix} {i}" for i in range(self.width)))

    @property
    def of_branch(self) -> tuple[str, ...]:
        """What equal rows of a branch have in common."""
        return (*self.values, self.branch)

    @property
    def of_row(self) -> tuple[str, ...]:
        """What only one row of a stream has."""
        return (*self.values, self.copy)

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, in the order in which they break ties."""
        return (self.branch, *self.values, self.copy)


@dataclass(frozen=True, slots=True)
class FollowedBy(Binary):
    """A sequence: each right element with left ones at or before it, or with the next one after it.

    `identity` names the columns by which the two sides know their rows, if a stream is on both; `numbers` those by
    which other sequences know the rows at which this one's results happen.
    """

    waits_for_frontier: ClassVar[bool] = True
    outlives_windows: ClassVar[bool] = True

    mode: SequenceMode
    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    within: int | None
    condition: Expression | None
    outer: bool
    order: TimeOrder = "<="
    identity: tuple[RowColumns, RowColumns] | None = None
    numbers: tuple[RowColumns, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether right elements wait for later left ones."""
        return self.order in (">=", ">")

    @property
    def label(self) -> str:
        reach = "" if self.within is None else f" within {self.within}"
        order = "" if self.order == "<=" else f" first {self.order} second"
        how = f"{self.mode}{' outer' if self.outer else ''}{order}"
        return f"Sequence {how}{condition_label(self.left_key, self.right_key, self.condition)}{reach}"

    @property
    def longest(self) -> int | None:
        return 1
