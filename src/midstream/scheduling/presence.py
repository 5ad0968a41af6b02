"""What an operator has given out that is still valid, from what it remembers: a new reader starts with that.

An operator that answers by slices has nothing to add: what it has given ends where its next answer starts. A join gives
it again by letting the smallest input meet the others; states are read where they lie, some of them at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from midstream.operators.base import Operator, Work
from midstream.operators.distinct import CoverageState, DeduplicateOperator
from midstream.operators.elements import Elements
from midstream.operators.join import SymmetricJoin
from midstream.operators.multiway_join import MultiwayJoinOperator
from midstream.operators.state.portions import met, parts_by_hash, taken

EVERYTHING = 2**62


def present_parts(operator: Operator, frontier: int, most: int = EVERYTHING) -> Iterator[Elements]:
    """What an operator has given out that is still valid after a frontier, in parts.

    For each of them no more than about so many bytes of a state are looked at.
    """
    match operator:
        case SymmetricJoin() | MultiwayJoinOperator():
            yield from _joined(operator, frontier, most)
        case DeduplicateOperator():
            yield from _covered(operator.coverage, frontier, most)


def _covered(state: CoverageState, frontier: int, most: int) -> Iterator[Elements]:
    for segments in parts_by_hash(state.segments, most) if state.segments else ():
        part = CoverageState(state.id, state.key, state.schema, state.longest, segments).current(frontier)
        if len(part):
            yield part


def _joined(join: SymmetricJoin | MultiwayJoinOperator, frontier: int, most: int) -> Iterator[Elements]:
    inputs = [states[0] for states in join.indexes] if isinstance(join, MultiwayJoinOperator) else join.sides
    port = min(range(len(inputs)), key=lambda number: inputs[number].rows)
    alive = [[segment for segment in state.segments if segment.latest_to > frontier] for state in inputs]
    if not all(alive):
        return
    # Of two inputs, what has a hash that the other has too: most often that is far less.
    every = [(segment, np.arange(len(segment))) for segment in alive[port]]
    found = met(alive[port], alive[1 - port], most) if isinstance(join, SymmetricJoin) else taken(every, most)
    work, join.work = join.work, Work()  # it gives this a second time
    try:
        for stored in (part.where(part.valid_to > frontier) for part in found):
            for result in join.joined(port, stored) if len(stored) else ():
                valid = result.where(result.valid_to > frontier)
                if len(valid):
                    yield valid
    finally:
        join.work = work
