"""What an operator has given out that is still valid, from what it remembers: a new reader starts with that.

An operator that answers by slices has nothing to add: what it has given ends where its next answer starts. A join gives
it again by letting the smallest input meet the others; states are read where they lie, some of them at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from midstream.operators.base import Operator
from midstream.operators.distinct import CoverageState, DeduplicateOperator
from midstream.operators.elements import Elements, concatenate, empty_elements
from midstream.operators.join import SymmetricJoin
from midstream.operators.multiway_join import MultiwayJoinOperator
from midstream.operators.state.portions import parts_by_hash, slices
from midstream.operators.state.sorted_state import SortedState

EVERYTHING = 2**62


def present(operator: Operator, build: Callable[[], Operator], frontier: int) -> Elements:
    """What an operator has given out that is still valid after a frontier; `build` makes another one like it."""
    parts = list(present_parts(operator, build, frontier))
    return concatenate(parts) if parts else empty_elements(operator.schema)


def present_parts(
    operator: Operator, build: Callable[[], Operator], frontier: int, most: int = EVERYTHING
) -> Iterator[Elements]:
    """The same in parts, for each of which no more than about so many bytes of a state are looked at."""
    match operator:
        case SymmetricJoin() | MultiwayJoinOperator():
            yield from _joined(operator, build(), frontier, most)
        case DeduplicateOperator():
            yield from _covered(operator.coverage, frontier, most)


def _covered(state: CoverageState, frontier: int, most: int) -> Iterator[Elements]:
    for segments in parts_by_hash(state.segments, most) if state.segments else ():
        part = CoverageState(state.id, state.key, state.schema, state.longest, segments).current(frontier)
        if len(part):
            yield part


def _joined(
    live: SymmetricJoin | MultiwayJoinOperator, again: Operator, frontier: int, most: int
) -> Iterator[Elements]:
    assert isinstance(again, SymmetricJoin | MultiwayJoinOperator)
    again.at_once = live.at_once
    inputs, kept = _by_port(again), _by_port(live)
    port = min(range(len(kept)), key=lambda number: kept[number][0].rows)
    for number, (states, known) in enumerate(zip(inputs, kept, strict=True)):
        for state, its in zip(states, known, strict=True):
            state.replace_segments(its.segments if number != port else [])
    mine = kept[port][0]
    pieces = (part for s in mine.segments if s.latest_to > frontier for part in slices(s.elements, s.bytes, most))
    large = mine.bytes > most
    for stored in (part.where(part.valid_to > frontier) for part in pieces) if large else [mine.alive(frontier)]:
        for result in again.pieces(port, stored):
            valid = result.where(result.valid_to > frontier)
            if len(valid):
                yield valid
        for state in inputs[port]:
            state.segments = []


def _by_port(join: SymmetricJoin | MultiwayJoinOperator) -> list[tuple[SortedState, ...]]:
    """The states of each input."""
    return list(join.indexes) if isinstance(join, MultiwayJoinOperator) else [(side,) for side in join.sides]
