"""Functions of the rows of a partition, in an order: what OVER says of a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf

import pyarrow as pa

from midstream.algebra.expressions import AggregateCall, Expression

FrameUnit = OneOf["rows", "groups", "range"]

Excluded = OneOf["", "CURRENT ROW", "GROUP", "TIES"]

RANKINGS = frozenset({"row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile"})
"""Functions of a row's place in its partition."""

SAME = {"first": "first_value", "last": "last_value", "first_row": "first_value"}
"""What aggregates of an order are called over frames."""

NEIGHBOURS = frozenset({"lag", "lead"})
"""Functions that look at a row some places before or after."""

PICKS = frozenset({"first_value", "last_value", "nth_value"})
"""Functions that look at one row of the frame."""

NUMBERED = NEIGHBOURS | {"nth_value", "ntile"}
"""Functions that are told a number."""

ONLY_OVER = RANKINGS | NEIGHBOURS | PICKS
"""Functions that have no meaning without OVER."""


@dataclass(frozen=True, slots=True)
class OrderKey:
    """What ORDER BY says of one key; without `nulls` these come last."""

    key: Expression
    descending: bool = False
    nulls: str = ""

    def sql(self, text: str) -> str:
        """As SQL, where the key is written so."""
        return f"{text}{' DESC' if self.descending else ''}{f' NULLS {self.nulls}' if self.nulls else ''}"

    def __str__(self) -> str:
        return self.sql(str(self.key))


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows around a row that count for it: from `start` to `end`, both included; None is no bound.

    A distance is a number of rows, of groups of rows that the order holds equal, or a difference of the values of the
    order's only key, as its type stores them. What comes earlier in the order is at a negative distance. A distance of
    zero means the row itself for `rows`, and all that the order holds equal to it for the others. What is excluded is
    the row itself, its group, or the others of its group.
    """

    unit: FrameUnit = "range"
    start: float | int | None = None
    end: float | int | None = 0
    excluded: Excluded = ""

    def __str__(self) -> str:
        text = f"{self.unit.upper()} BETWEEN {_bound(self.start, 'PRECEDING')} AND {_bound(self.end, 'FOLLOWING')}"
        return f"{text} EXCLUDE {self.excluded}" if self.excluded else text


def _bound(distance: float | int | None, side: str) -> str:
    if distance is None:
        return f"UNBOUNDED {side}"
    if not distance:
        return "CURRENT ROW"
    return f"{abs(distance)} {'PRECEDING' if distance < 0 else 'FOLLOWING'}"


DEFAULT_FRAME = Frame()
"""All up to the row and those equal to it; without an order, all rows of the partition."""


@dataclass(frozen=True, slots=True)
class NamedOver:
    """A call over the rows of a frame, and the unique name its values get.

    `known` leaves nulls out of account; `number` is how far `lag` and `lead` look, which row `nth_value` takes, and
    into how many parts `ntile` divides; None if each row says that, by the last argument. A second argument of `lag`
    and `lead` is for where there is no such row.
    """

    name: str
    call: AggregateCall
    frame: Frame = DEFAULT_FRAME
    known: bool = False
    number: int | None = 1

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of its values."""
        return self.call.type

    @property
    def reads(self) -> tuple[Expression, ...]:
        """What it looks at of a row."""
        return self.call.args if self.call.where is None else (*self.call.args, self.call.where)

    @property
    def text(self) -> str:
        """What it computes."""
        function = self.call.function
        text = str(self.call)
        if function in ONLY_OVER:
            values = [str(a) for a in self.call.args]
            number = [values.pop() if self.number is None else str(self.number)] if function in NUMBERED else []
            text = f"{function}({', '.join([*values[:1], *number, *values[1:]])})"
        nulls = " IGNORE NULLS" if self.known else ""
        bare = function in RANKINGS | NEIGHBOURS or self.frame == DEFAULT_FRAME
        return f"{text}{nulls}" if bare else f"{text}{nulls} {self.frame}"

    def __str__(self) -> str:
        return f"{self.text} AS {self.name}"


def over_label(columns: tuple[NamedOver, ...], keys: tuple[object, ...], order: tuple[object, ...]) -> str:
    """What OVER computes, in one line."""
    by = f" by {', '.join(map(str, keys))}" if keys else ""
    ordered = f" ordered by {', '.join(map(str, order))}" if order else ""
    return f"Over {', '.join(map(str, columns))}{by}{ordered}"
