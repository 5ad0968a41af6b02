"""Windows turn a stream into a relation: they say from when until when a tuple counts.

A tuple at `t` is valid over `[RANGE w]` for `[t, t+w+1)`, over `[ROWS n]` until its n-th successor, over
`[HOP size, slide]` at the boundaries `b` with `b - size <= t < b`, each lasting until the next boundary, over
`[SESSION gap]` at the instant at which its session ends, over `[VALID UNTIL u]` for `[t, u)`.
"""

from __future__ import annotations

from dataclasses import dataclass

from midstream.algebra.time import TimeDomain, show_ticks
from midstream.errors import QueryError

LONGEST_MONTH = 32 * 86_400_000_000
"""More microseconds than any month has, wherever clocks are set back."""


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """How long tuples stay valid."""

    def show(self, domain: TimeDomain) -> str:
        """The window as CQL writes it."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Range(WindowSpec):
    """Valid through `size` ticks after its own; `[NOW]` is size 0."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise QueryError(f"a window cannot have size {self.size}", hint="use [NOW] or a positive size")

    def show(self, domain: TimeDomain) -> str:
        if self.size == 0:
            return "[NOW]"
        return f"[RANGE {show_ticks(self.size, domain)}]"


@dataclass(frozen=True, slots=True)
class Unbounded(WindowSpec):
    """Valid for ever."""

    def show(self, domain: TimeDomain) -> str:
        return "[UNBOUNDED]"


@dataclass(frozen=True, slots=True)
class Until(WindowSpec):
    """Valid until a time that a column tells; for ever where that is null, not at all where it is not later."""

    column: str

    def show(self, domain: TimeDomain) -> str:
        return f"[VALID UNTIL {self.column}]"


@dataclass(frozen=True, slots=True)
class ColumnOrder:
    """A column by which rows are in order."""

    name: str
    descending: bool = False
    nulls_first: bool = False

    def __str__(self) -> str:
        return f"{self.name}{' DESC' if self.descending else ''}{' NULLS FIRST' if self.nulls_first else ''}"


@dataclass(frozen=True, slots=True)
class Rows(WindowSpec):
    """The last `count` tuples, whenever a multiple of `slide` has come, among those with equal `partition_by` columns.

    With a slide of 1 a tuple is valid until its `count`-th successor. Nulls are equal. Tuples of one time follow one
    another by the columns of `order`, then by all columns.
    """

    count: int
    partition_by: tuple[str, ...] = ()
    slide: int = 1
    order: tuple[ColumnOrder, ...] = ()

    def __post_init__(self) -> None:
        if self.count < 1 or self.slide < 1:
            raise QueryError(f"a row window needs at least one row, not {min(self.count, self.slide)}")

    def show(self, domain: TimeDomain) -> str:
        slide = f" SLIDE {self.slide}" if self.slide > 1 else ""
        order = f" ORDER BY {', '.join(map(str, self.order))}" if self.order else ""
        return f"[{_partition_text(self.partition_by)}ROWS {self.count}{slide}{order}]"


@dataclass(frozen=True, slots=True)
class SessionGap(WindowSpec):
    """Tuples that follow one another by no more than `gap`, among those with equal `partition_by` columns.

    All of a session's tuples are valid for one tick, `gap` after the last of them: then it is known to have ended.
    """

    gap: int
    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.gap < 1:
            raise QueryError("a session needs a positive gap")

    def show(self, domain: TimeDomain) -> str:
        return f"[{_partition_text(self.partition_by)}SESSION {show_ticks(self.gap, domain)}]"


def _partition_text(columns: tuple[str, ...]) -> str:
    return f"PARTITION BY {', '.join(columns)} " if columns else ""


@dataclass(frozen=True, slots=True)
class Hop(WindowSpec):
    """The relation changes only at boundaries `offset + i * slide`; in `zone`'s wall-clock time if there is one.

    Wall-clock boundaries that a zone skips move to the end of the gap; those it repeats count the first time.
    A `cumulative` window begins at the multiples of `size` and grows by `slide` until it has that size. One over what
    other windows give takes in what they give at its end (`b - size < t <= b`): that is about the time before.
    """

    size: int
    slide: int
    offset: int = 0
    zone: str | None = None
    cumulative: bool = False
    takes_in_end: bool = False
    months: bool = False
    """Whether size, slide and offset are counted in months of the calendar, from January 1970, not in ticks."""

    def __post_init__(self) -> None:
        if self.size < 1 or self.slide < 1:
            raise QueryError("a hopping window needs a positive size and a positive slide")
        if self.cumulative and self.size % self.slide:
            raise QueryError("the size of a cumulative window must be a multiple of its step")

    @property
    def grid(self) -> Hop:
        """The boundaries alone, as the ends of windows between two of them."""
        return Hop(self.slide, self.slide, self.offset, self.zone, months=self.months)

    @property
    def longest_size(self) -> int:
        """The size in ticks, of the longest months."""
        return self.size * (LONGEST_MONTH if self.months else 1)

    @property
    def longest_slide(self) -> int:
        """The slide in ticks, of the longest months."""
        return self.slide * (LONGEST_MONTH if self.months else 1)

    @property
    def whole(self) -> Hop:
        """The windows of full size of a cumulative one."""
        return Hop(self.size, self.size, self.offset, self.zone, months=self.months)

    def show(self, domain: TimeDomain) -> str:
        tumbling = self.size == self.slide
        word = "TUMBLE" if tumbling else "CUMULATE" if self.cumulative else "HOP"
        parts = [word, " ", self._amount(self.size, domain)]
        if not tumbling:
            parts.append(f", {self._amount(self.slide, domain)}")
        if self.offset:
            parts.append(f" OFFSET {self._amount(self.offset, domain)}")
        if self.zone:
            parts.append(f" ZONE '{self.zone}'")
        if self.takes_in_end:
            parts.append(" with its end")
        return f"[{''.join(parts)}]"

    def _amount(self, amount: int, domain: TimeDomain) -> str:
        return f"{amount} month{'' if amount == 1 else 's'}" if self.months else show_ticks(amount, domain)


NOW = Range(0)
