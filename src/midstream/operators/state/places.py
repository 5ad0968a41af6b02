"""Rows of a state that are looked at together, and where each of them is stored, so that some can be taken out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from midstream.operators.elements import Elements, Indices, Mask, concatenate, empty_elements
from midstream.operators.state.alive import Stored
from midstream.operators.state.segment import Segment


@dataclass(frozen=True, slots=True)
class Places:
    """Where rows are stored: run by run of a segment, by position there."""

    segments: Sequence[Segment]
    rows: Sequence[Indices]

    def of(self, places: Indices) -> Iterator[tuple[Segment, Indices]]:
        """The segments of some of the rows, given in any order, and their positions there."""
        ordered = np.sort(places)
        bounds = np.cumsum([0, *map(len, self.rows)])
        cuts = np.searchsorted(ordered, bounds)
        for i, segment in enumerate(self.segments):
            if cuts[i] < cuts[i + 1]:
                yield segment, self.rows[i][ordered[cuts[i] : cuts[i + 1]] - bounds[i]]


class ChosenRows:
    """Rows of segments that were chosen, range of hashes by range of hashes."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[Segment, list[Indices]]] = {}

    def add(self, places: Places, rows: Indices) -> None:
        """Chooses some of the rows that were looked at together."""
        for segment, at in places.of(rows):
            self.found.setdefault(id(segment), (segment, []))[1].append(at)

    def __iter__(self) -> Iterator[tuple[Segment, Indices]]:
        for segment, rows in self.found.values():
            yield segment, np.concatenate(rows)


def stored_rows(stored: Stored, chosen: Callable[[Elements], Mask]) -> tuple[Elements, Places]:
    """The rows of a range that are chosen, as they are stored, and where they are."""
    segments, places, parts = [], [], []
    for segment, first, last in stored.runs:
        elements = segment.elements.slice(first, last - first).without_hashes()
        rows = np.flatnonzero(chosen(elements))
        if len(rows):
            segments.append(segment)
            places.append(first + rows)
            parts.append(elements if len(rows) == len(elements) else elements.take(rows))
    return concatenate(parts) if parts else empty_elements(stored.state.schema), Places(segments, places)
