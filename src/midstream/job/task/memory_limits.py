"""Memory limits of operators: joins look at few pairs at once, merges are small, slices are short.

States keep to them too: what is new goes into files, and is mapped, once it is much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from midstream.checkpoint.files import Files
from midstream.checkpoint.packs import SegmentEntry, StateKey, open_segment, write_pack
from midstream.job.task.memory import LEAST, Memory
from midstream.operators.base import Operator
from midstream.operators.join import SymmetricJoin
from midstream.operators.multiway_join import MultiwayJoin
from midstream.operators.one_way_join import OneWayJoin
from midstream.operators.outer_join import OuterJoin
from midstream.operators.slices import SliceOperator
from midstream.operators.state.segment import Segment
from midstream.operators.state.sorted_state import SortedState


def bind(operators: Iterable[Operator], memory: Memory) -> None:
    """Applies memory limits to operators."""
    for operator in operators:
        if isinstance(operator, SymmetricJoin | MultiwayJoin | OneWayJoin | OuterJoin):
            operator.at_once = min(operator.at_once, memory.pairs)
        if isinstance(operator, SliceOperator):
            operator.most, operator.limit = memory.state, max(memory.bytes, LEAST)
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


def write_packs(
    files: Files, path: Callable[[], str], states: Mapping[StateKey, Sequence[Segment]], memory: Memory
) -> list[SegmentEntry]:
    """Writes the segments that no file has, in their order, into as many packs as it takes for each to be small."""
    entries: list[SegmentEntry] = []
    together: dict[StateKey, list[Segment]] = {}
    size = 0
    for name, segments in states.items():
        for segment in segments:
            if segment.place is None:
                if together and size + segment.bytes > memory.state:
                    entries += write_pack(files, path(), together)
                    together, size = {}, 0
                together.setdefault(name, []).append(segment)
                size += segment.bytes
    return [*entries, *write_pack(files, path(), together)] if together else entries


def mapped_states(
    files: Files, path: Callable[[], str], states: Mapping[StateKey, SortedState], memory: Memory
) -> list[SegmentEntry]:
    """Moves new segments into files and maps them once they are many; gives the entries of those."""
    new = (s.bytes for state in states.values() for s in state.segments if s.place is None)
    if sum(new) <= memory.new_state:
        return []
    written = write_packs(files, path, {name: state.segments for name, state in states.items()}, memory)
    following = iter(written)
    for state in states.values():
        state.segments = [
            segment if segment.place is not None else open_segment(files, next(following), state.schema)
            for segment in state.segments
        ]
    return written
