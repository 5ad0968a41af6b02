"""What travels in queues of rows: batches from split operators to processors, and results to the sink."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.algebra.physical import PhysicalNode
from midstream.operators.elements import Elements


@dataclass(frozen=True, slots=True)
class Rows:
    """Elements of a source; `new` marks a sender's copies of what goes to two machines."""

    alias: str
    elements: Elements
    new: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows, and the promise that no row before `frontier` follows from this split operator."""

    rows: tuple[Rows, ...]
    frontier: int

    @property
    def size(self) -> int:
        """How many rows there are."""
        return sum(len(part.elements) for part in self.rows)


@dataclass(frozen=True, slots=True)
class Results:
    """A processor's results, and the promise that none before `passed` follows from it."""

    parts: tuple[Elements, ...]
    passed: int

    @property
    def size(self) -> int:
        """How many results there are."""
        return sum(map(len, self.parts))


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """Asks a processor to go on with another plan: a local optimisation, by moving state."""

    plan: PhysicalNode
