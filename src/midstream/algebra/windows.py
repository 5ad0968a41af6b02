"""Windows turn a stream into a relation: they say from when until when a tuple counts.

A tuple at `t` is valid over `[RANGE w]` for `[t, t+w+1)`, over `[ROWS n]` until its n-th successor, over
`[HOP size, slide]` at the boundaries `b` with `b - size <= t < b`, each lasting until the next boundary.
"""

from __future__ import annotations

from dataclasses import dataclass

from midstream.algebra.time import TimeDomain, show_ticks
from midstream.errors import QueryError


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
class Rows(WindowSpec):
    """Valid until the `count`-th successor, among tuples with equal `partition_by` columns (nulls equal)."""

    count: int
    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.count < 1:
            raise QueryError(f"a row window needs at least one row, not {self.count}")

    def show(self, domain: TimeDomain) -> str:
        by = f"PARTITION BY {', '.join(self.partition_by)} " if self.partition_by else ""
        return f"[{by}ROWS {self.count}]"


@dataclass(frozen=True, slots=True)
class Hop(WindowSpec):
    """The relation changes only at boundaries `offset + i * slide`; in `zone`'s wall-clock time if there is one.

    Wall-clock boundaries that a zone skips move to the end of the gap; those it repeats count the first time.
    """

    size: int
    slide: int
    offset: int = 0
    zone: str | None = None

    def __post_init__(self) -> None:
        if self.size < 1 or self.slide < 1:
            raise QueryError("a hopping window needs a positive size and a positive slide")

    def show(self, domain: TimeDomain) -> str:
        tumbling = self.size == self.slide
        parts = ["TUMBLE " if tumbling else "HOP ", show_ticks(self.size, domain)]
        if not tumbling:
            parts.append(f", {show_ticks(self.slide, domain)}")
        if self.offset:
            parts.append(f" OFFSET {show_ticks(self.offset, domain)}")
        if self.zone:
            parts.append(f" ZONE '{self.zone}'")
        return f"[{''.join(parts)}]"


NOW = Range(0)
