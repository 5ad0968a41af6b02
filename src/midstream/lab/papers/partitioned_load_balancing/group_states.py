"""The states of a live box by partition group: what each group holds, taking a group out, and putting one in.

Everything that meets in a box lies in one group, so every state is placed by a key of the partitioning, and the key's
hash says of each row whose it is. A group that comes from a box of another plan is brought into the form of this box's
plan first: states with an id that both plans have are taken over, the others are recomputed from the bottom up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.algebra import physical as p
from midstream.distribution.fragments import Key, Staged
from midstream.distribution.moves import input_of
from midstream.distribution.placement import Placements
from midstream.distribution.stages import cut
from midstream.errors import InternalError
from midstream.migration.contents import Contents, held_states
from midstream.migration.protocol import Functions
from midstream.migration.state_move import StateMove
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.operators.hashing import hash_columns
from midstream.operators.state.segment import Segment, make_segment
from midstream.operators.state.sorted_state import SortedState

Numbers = npt.NDArray[np.int64]


def groups_of(columns: Iterable[pa.Array], count: int) -> Numbers:
    """The group of each row by its key: a range of the hash space, all of equal size."""
    hashes = hash_columns(list(columns))
    return ((hashes >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Shipped:
    """The states of some groups: the plan they were taken from, where its box stood, and the segments of each state."""

    plan: p.PhysicalNode
    frontier: int
    segments: tuple[tuple[Segment, ...], ...]

    @property
    def rows(self) -> int:
        """How many rows are shipped."""
        return sum(len(segment) for state in self.segments for segment in state)


class GroupStates:
    """The states of a box as partition groups; `count` is the number of groups."""

    def __init__(self, box: Box, count: int) -> None:
        self.box, self.count = box, count
        staged = cut(box.plan)
        self.states = list(box.states())
        self.keys = [_key(box, staged, held) for held in _in_order(box, self.states)]

    def rows(self, frontier: int) -> dict[int, int]:
        """How many rows each group holds that still count."""
        total = np.zeros(self.count, np.int64)
        for _, segment, groups in self._segments():
            total += np.bincount(groups[segment.elements.valid_to > frontier], minlength=self.count)
        return {group: int(rows) for group, rows in enumerate(total) if rows}

    def take(self, groups: Iterable[int]) -> Shipped:
        """The states of some groups, which stay where they are."""
        wanted = np.isin(np.arange(self.count), list(groups))
        parts = [tuple(self._parts(i, wanted)) for i in range(len(self.states))]
        return Shipped(self.box.plan, self.box.frontier, tuple(parts))

    def drop(self, groups: Iterable[int]) -> None:
        """Forgets the states of some groups."""
        kept = ~np.isin(np.arange(self.count), list(groups))
        for i, state in enumerate(self.states):
            state.segments = list(self._parts(i, kept))

    def put(self, shipped: Shipped, functions: Functions | None = None) -> Box:
        """Adds the states of groups that this box does not have; gives the box in which they were brought into form.

        A box whose operators wait for time must stand where the shipped states' box stood.
        """
        arrived = filled(shipped, self.box.plan, functions)
        for state, new in zip(self.states, arrived.states(), strict=True):
            for segment in new.segments:
                state.appends += 1
                state.segments.append(make_segment(segment.elements, segment.hashes, segment.bucket, state.appends))
        return arrived

    def _segments(self) -> Iterable[tuple[SortedState, Segment, Numbers]]:
        for state, key in zip(self.states, self.keys, strict=True):
            for segment in state.segments:
                yield state, segment, self._groups(segment, key)

    def _groups(self, segment: Segment, key: Key) -> Numbers:
        return groups_of((segment.elements.columns.column(name) for name in key), self.count)

    def _parts(self, i: int, wanted: npt.NDArray[np.bool_]) -> Iterable[Segment]:
        for segment in self.states[i].segments:
            rows = np.flatnonzero(wanted[self._groups(segment, self.keys[i])])
            if len(rows) == len(segment):
                yield segment
            elif len(rows):
                yield make_segment(segment.elements.take(rows), segment.hashes[rows], segment.bucket, segment.born)


def filled(shipped: Shipped, plan: p.PhysicalNode, functions: Functions | None = None) -> Box:
    """A box of a plan with the content of shipped states: matched by state id, or recomputed."""
    old = Box(shipped.plan, functions)
    for state, segments in zip(old.states(), shipped.segments, strict=True):
        state.replace_segments(segments)
    old.restore(shipped.frontier)
    new = Box(plan, functions)
    move = StateMove(Contents(old), new, dict(functions or {}), follows=False)
    move.begin(shipped.frontier)
    move.send(shipped.frontier)
    return new


def group_of_rows(elements: Elements, key: Key, alias: str, count: int) -> Numbers:
    """The groups of a source's elements by their stream's key."""
    return groups_of((elements.columns.column(f"{alias}.{name}") for name in key), count)


def _in_order(box: Box, states: list[SortedState]) -> list[Any]:
    held = {id(h.state): h for h in held_states(box)}
    return [held[id(state)] for state in states]


def _key(box: Box, staged: Staged, held: Any) -> Key:
    placed = Placements(staged.root, staged.routes)(input_of(box, held))
    for key in sorted(placed.keys):
        if set(key) <= set(held.state.schema.names):
            return key
    raise InternalError(f"the state {held.state.id} has no column that says which group its rows are of")


def routing_keys(plan: p.PhysicalNode) -> Mapping[str, Key]:
    """By stream, the columns by which its rows are put into groups."""
    return {name: route.key or () for name, route in cut(plan).routes.items()}
