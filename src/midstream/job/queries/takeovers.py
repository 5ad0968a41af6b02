"""What new queries start with of what others have stored, in one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from midstream.checkpoint.packs import SegmentEntry
from midstream.checkpoint.query_windows import BySlot
from midstream.job.queries.fingerprints import Outline
from midstream.job.queries.narrowed_joins import NarrowedJoin
from midstream.job.task.works import Derived, FragmentWork, Inherited

Numbers = Callable[[str, int], Iterator[tuple[Outline, int]]]
"""The nodes of a query's fragment, and the numbers by which they are called."""


@dataclass(frozen=True, slots=True)
class KeptInput:
    """What an operator of a new query starts with at a port: a window that another one keeps, by slot."""

    query: str
    fragment: int
    text: str
    port: int
    segments: BySlot


@dataclass(frozen=True, slots=True)
class Takeovers:
    """Windows that others keep, rows of which windows are made, and joins whose states are named as they are stored.

    Parts of the queries that are `needed` run for new ones too.
    """

    windows: list[KeptInput] = field(default_factory=list)
    rows: list[Derived] = field(default_factory=list)
    joins: list[NarrowedJoin] = field(default_factory=list)
    needed: set[str] = field(default_factory=set)

    def named(self, query: str, fragment: int) -> BySlot | None:
        """What a new query takes over as it is stored; None: nothing."""
        found: dict[int, list[SegmentEntry]] = {}
        for join in self.joins:
            for slot, entries in join.segments.items() if (join.query, join.fragment) == (query, fragment) else ():
                found.setdefault(slot, []).extend(entries)
        return found or None

    def inherited(self, works: Sequence[FragmentWork], numbers: Numbers) -> tuple[Inherited, ...]:
        """The windows that works start with."""
        found: dict[tuple[int, int], Inherited] = {}
        for kept in self.windows:
            if any(work.name == (kept.query, kept.fragment) for work in works):
                number = next(n for o, n in numbers(kept.query, kept.fragment) if o.text == kept.text)
                found[number, kept.port] = Inherited(number, kept.port, kept.segments)
        return tuple(found.values())

    def derived(self, works: Sequence[FragmentWork]) -> tuple[Derived, ...]:
        """The rows that works start with."""
        return tuple(rows for rows in self.rows if any(work.query == rows.query for work in works))

    def named_nodes(self, works: Sequence[FragmentWork], numbers: Numbers) -> frozenset[int]:
        """The nodes of works whose states begin with what is stored of others."""
        found = set[int]()
        for join in self.joins:
            if any(work.name == (join.query, join.fragment) for work in works):
                nodes = set(map(id, join.nodes))
                found.update(n for o, n in numbers(join.query, join.fragment) if id(o.node) in nodes)
        return frozenset(found)
