"""What an operator has given out that is still valid, from what it remembers: a new reader starts with that.

An operator that answers by slices has nothing to add: what it has given ends where its next answer starts. A join gives
it again by letting one input meet the others; states are read where they lie, some of them at a time.
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
    probing, *others = _by_port(again)
    mine, *kept = _by_port(live)
    for states, known in zip(others, kept, strict=True):
        for state, its in zip(states, known, strict=True):
            state.replace_segments(its.segments)
    for segment in list(mine[0].segments):
        if segment.latest_to <= frontier:
            continue
        for stored in slices(segment.elements, segment.bytes, most):
            for result in again.pieces(0, stored.where(stored.valid_to > frontier)):
                valid = result.where(result.valid_to > frontier)
                if len(valid):
                    yield valid
            for state in probing:
                state.segments = []


def _by_port(join: SymmetricJoin | MultiwayJoinOperator) -> list[tuple[SortedState, ...]]:
    """The states of each input."""
    return list(join.indexes) if isinstance(join, MultiwayJoinOperator) else [(side,) for side in join.sides]
