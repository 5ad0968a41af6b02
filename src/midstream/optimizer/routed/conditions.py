"""Which streams a query joins and between which of them it has conditions: the join graph, without the conditions.

A stream may be probed once a condition links it to the streams met so far. Where no stream that is left is linked to
them, a cross product cannot be avoided and any of them may be next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from midstream.errors import QueryError


@dataclass(frozen=True)
class RoutedConditions:
    """Streams in the order of the query, and for each condition the set of streams it reads."""

    streams: tuple[str, ...]
    sets: frozenset[frozenset[str]]
    sites: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Where streams live, of those that live at a site."""

    def __post_init__(self) -> None:
        if len(set(self.streams)) != len(self.streams):
            raise QueryError("a stream is joined under one name twice", detail=f"names: {', '.join(self.streams)}")
        unknown = sorted(set().union(*self.sets) - set(self.streams))
        if unknown:
            raise QueryError(f"a condition reads {unknown[0]}, which is not joined")

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The place of each stream in the order of the query, which breaks all ties."""
        return {stream: i for i, stream in enumerate(self.streams)}

    @cached_property
    def _reading(self) -> dict[str, tuple[frozenset[str], ...]]:
        """For each stream what must have been met before one of its conditions can be checked."""
        return {s: tuple(c - {s} for c in self.sets if s in c and len(c) > 1) for s in self.streams}

    def linked(self, inside: Collection[str], target: str) -> bool:
        """Whether some condition can be checked when the target joins the streams inside."""
        met = inside if isinstance(inside, frozenset) else frozenset(inside)
        return any(others <= met for others in self._reading[target])

    def next(self, inside: Collection[str], waiting: Iterable[str]) -> list[str]:
        """Which of the waiting streams may be probed next."""
        met, left = frozenset(inside), list(waiting)
        return [s for s in left if self.linked(met, s)] or left
