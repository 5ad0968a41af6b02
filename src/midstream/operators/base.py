"""What every operator is: a consumer of element batches that keeps its state where others can see it.

`process` takes a batch on a port and gives what follows from it at once. `advance` says that every element that
starts before `frontier` has come on every port; an operator that must wait for that gives its final results then.
What has been given out never depends on how the input was cut into batches, only on all of it and on the frontier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from midstream.algebra.time import BEGINNING
from midstream.operators.elements import Elements, concatenate
from midstream.operators.state.sorted_state import SortedState


@dataclass(slots=True)
class Work:
    """What an operator did, counted in rows: the measure of a plan that does not depend on the machine."""

    taken: int = 0
    given: int = 0
    probed: int = 0
    matched: int = 0
    inserted: int = 0

    def add(self, other: Work) -> None:
        """Adds another's counts."""
        self.taken += other.taken
        self.given += other.given
        self.probed += other.probed
        self.matched += other.matched
        self.inserted += other.inserted

    def clear(self) -> None:
        """Begins to count anew."""
        self.taken = self.given = self.probed = self.matched = self.inserted = 0


class Operator:
    """A live operator. `schema` is what it gives; `ports` how many inputs it has."""

    schema: pa.Schema
    ports: int = 1
    name: str = "operator"
    states: tuple[SortedState, ...] = ()
    """All that it remembers between batches, apart from the frontier."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.frontier = BEGINNING
        self.work = Work()

    def process(self, port: int, batch: Elements) -> Elements | None:
        """Takes a batch and gives what follows from it."""
        return joined(self.pieces(port, batch))

    def pieces(self, port: int, batch: Elements) -> Iterator[Elements]:
        """The same, piece by piece where that would be much; to be exhausted. An operator has one of the two."""
        given = self.process(port, batch)
        if given is not None:
            yield given

    def store(self, port: int, batch: Elements) -> None:
        """Takes a batch whose results nobody needs."""
        self.process(port, batch)

    def advance(self, frontier: int) -> Elements | None:
        """Learns that everything before the frontier has come; gives what that makes final and forgets the rest."""
        return joined(self.advances(frontier))

    def advances(self, frontier: int) -> Iterator[Elements]:
        """As `advance`, giving piece by piece where that would be much; to be exhausted."""
        self.frontier = frontier
        for state in self.states:
            state.expire(frontier)
        yield from ()

    def restore(self, frontier: int) -> None:
        """Goes on from a frontier that was reached earlier."""
        self.frontier = frontier

    @property
    def passed(self) -> int:
        """The frontier of what it gives: nothing that starts earlier will follow."""
        return self.frontier


def joined(parts: Iterable[Elements]) -> Elements | None:
    """All parts together; None if there are none."""
    given = list(parts)
    return concatenate(given) if given else None
