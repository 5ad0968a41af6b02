"""What new queries start with of what others have stored, in one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from midstream.checkpoint.packs import SegmentEntry
from midstream.checkpoint.query_windows import BySlot
from midstream.job.queries.fingerprints import Outline
from midstream.job.queries.named_states import NamedInput
from midstream.job.task.works import Derived, FragmentWork

Numbers = Callable[[str, int], Iterator[tuple[Outline, int]]]
"""The nodes of a query's fragment, and the numbers by which they are called."""


@dataclass(frozen=True, slots=True)
class Takeovers:
    """Rows of which windows are made, and inputs of operators whose states are named as they are stored.

    Parts of the queries that are `needed` run for new ones too.
    """

    rows: list[Derived] = field(default_factory=list)
    inputs: list[NamedInput] = field(default_factory=list)
    needed: set[str] = field(default_factory=set)

    def named(self, query: str, fragment: int) -> BySlot | None:
        """What a new query takes over as it is stored; None: nothing."""
        found: dict[int, dict[SegmentEntry, None]] = {}
        for one in self.inputs:
            for slot, entries in one.segments.items() if (one.query, one.fragment) == (query, fragment) else ():
                found.setdefault(slot, {}).update(dict.fromkeys(entries))
        return {slot: list(entries) for slot, entries in found.items()} or None

    def derived(self, works: Sequence[FragmentWork]) -> tuple[Derived, ...]:
        """The rows that works start with."""
        return tuple(rows for rows in self.rows if any(work.query == rows.query for work in works))

    def taken(self, works: Sequence[FragmentWork], numbers: Numbers) -> frozenset[tuple[int, int]]:
        """The inputs of works, by node and port, whose states begin with what is stored of others."""
        found = set[tuple[int, int]]()
        for one in self.inputs:
            if any(work.name == (one.query, one.fragment) for work in works):
                found.update((n, one.port) for o, n in numbers(one.query, one.fragment) if o.node is one.node)
        return frozenset(found)
