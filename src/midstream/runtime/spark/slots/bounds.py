"""Operators that keep to a memory: joins look at few pairs at once, merges are small, slices are short."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from midstream.operators.base import Operator
from midstream.operators.join import SymmetricJoin
from midstream.operators.multiway_join import MultiwayJoin
from midstream.operators.slices import SliceOperator
from midstream.operators.state.segment import Segment
from midstream.runtime.spark.slots.memory import Memory


def bind(operators: Iterable[Operator], memory: Memory) -> None:
    """Has operators keep to a memory."""
    for operator in operators:
        if isinstance(operator, (SymmetricJoin, MultiwayJoin)):
            operator.at_once = min(operator.at_once, memory.pairs)
        for state in operator.states:
            state.most_merged = memory.state


def frontiers(operators: Iterable[Operator], since: int, until: int, memory: Memory) -> list[int]:
    """Frontiers on the way between which a slice looks at a bounded part of the states."""
    slices = [operator for operator in operators if isinstance(operator, SliceOperator)]
    segments = [segment for operator in slices for state in operator.states for segment in state.segments]
    parts = sum(segment.bytes for segment in segments) // memory.state
    if parts < 1:
        return [until]
    stride = max(1, sum(map(len, segments)) // (64 * parts))
    starts = np.sort(np.concatenate([segment.elements.valid_from[::stride] for segment in segments]))
    chosen = {int(starts[len(starts) * i // (parts + 1)]) for i in range(1, parts + 1)}
    return [*sorted(at for at in chosen if since < at < until), until]


def new_segments(operators: Iterable[Operator], memory: Memory) -> dict[int, Segment]:
    """The segments that no file has, by identity, if they are more than may stay in memory; else none."""
    states = (state for operator in operators for state in operator.states)
    found = {id(segment): segment for state in states for segment in state.segments if segment.place is None}
    return found if sum(segment.bytes for segment in found.values()) > memory.state else {}


def exchange(operators: Sequence[Operator], mapped: Mapping[int, Segment]) -> None:
    """Puts mapped segments in the places of those that were written."""
    for state in (state for operator in operators for state in operator.states):
        if any(id(segment) in mapped for segment in state.segments):
            state.segments = [mapped.get(id(segment), segment) for segment in state.segments]
