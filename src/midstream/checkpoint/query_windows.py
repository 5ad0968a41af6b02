"""What a manifest says of the windows of a query: since when each holds all rows, and how they are being filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.packs import SegmentEntry
from midstream.codec import forgotten

ALWAYS = -1
"""The beginning of a window that holds all there is to hold."""

Spans = Mapping[str, Sequence[Any]]
"""Rows of a source, by partition: those from one position up to another."""

BySlot = Mapping[int, Sequence[SegmentEntry]]
"""Segments by slot."""


@dataclass(frozen=True, slots=True)
class FilledPortion:
    """The rows that a query is given with a batch, and the seconds that batches took before it began to be filled."""

    rows: int
    usual: float


@dataclass(frozen=True, slots=True)
class FilledWindow:
    """A window that is being filled from rows that a query `of` others kept when it began.

    One that is filled from a source is of the stream; `unread` is what has yet to be read again of it.
    """

    alias: str
    of: str
    columns: Mapping[str, str]
    in_place: bool
    key: tuple[str, ...] | None
    everywhere: bool
    unread: Spans = field(default_factory=dict)
    time: str | None = None
    until: int = BEGINNING
    """How far the query was that kept the rows: before that instant, what it had forgotten is missing."""
    sooner: int | None = None
    """By how many ticks a row ends here before it does where it is kept, if that is known."""

    def needed(self, held: BySlot, frontier: int) -> BySlot:
        """Without segments of which all rows have ended by a frontier."""
        ended = -INFINITY if self.sooner is None else frontier + self.sooner
        return {slot: [entry for entry in entries if entry.latest_to > ended] for slot, entries in held.items()}


@dataclass(frozen=True, slots=True)
class WindowFilling:
    """How the windows of a query are filled; `dealt` tells by which dealing of groups rows lie, once it has begun.

    There are no windows once all are full.
    """

    dealt: str = ""
    windows: tuple[FilledWindow, ...] = ()
    given: FilledPortion | None = None
    """What was given with the last batch."""
    rate: int | None = None
    """How many rows are given with a batch, at most; None: as many as its time permits."""

    @property
    def unread(self) -> bool:
        """Whether rows have yet to be read again."""
        return any(window.unread for window in self.windows)

    @property
    def movable(self) -> bool:
        """Whether partition groups may move before all rows are given: it can be told to which slot a row goes then."""
        return all(window.key is not None or window.everywhere for window in self.windows)


@dataclass(frozen=True, slots=True)
class SharingRecord:
    """What a manifest remembers of a query's sharing.

    `since` says with which batch each of its windows began; `start` from which instant on its results are whole;
    `whole_at` when all that came before its windows began has ended (None: never). `own`: others hold something else.
    `core` are the columns of the join that it shares with queries of other selections.
    """

    since: Mapping[str, int]
    start: int = BEGINNING
    whole_at: int | None = None
    own: bool = False
    core: tuple[str, ...] | None = None
    filling: WindowFilling | None = None
    """How its windows are filled over several batches, if they are."""
    inherited: Mapping[str, int] = forgotten(dict)
    """With which batches those windows began that it took over with its own first batch."""
    shares: tuple[str, ...] = forgotten(tuple)
    """The queries that had these."""

    @property
    def lacks_rows(self) -> bool:
        """Whether some window began after rows that it would hold."""
        return any(batch != ALWAYS for batch in self.since.values())

    @property
    def whole_from_start(self) -> bool:
        """Whether nothing is lacking that its results need."""
        return not self.lacks_rows or (self.whole_at is not None and self.whole_at <= self.start)
