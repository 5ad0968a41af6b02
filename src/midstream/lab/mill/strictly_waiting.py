"""Operators in which one input must wait until the other is strictly past it: sequences and difference.

A second must not be paired before the last first that precedes it or is simultaneous has come, and a tuple must not be
given before everything that could cancel it has. So the patient input's tuples wait for a register above their own
time, where those of a union or a join wait for one that equals it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from midstream.lab.mill.waiting import Tuple, Waiting
from midstream.scheduling.buffers import Cursor
from midstream.scheduling.graph import Emit


class StrictlyWaiting(Waiting):
    """Two inputs, of which the patient one waits until the other is strictly past its tuples."""

    patient = 1

    def __init__(self) -> None:
        super().__init__(2)

    def may_take(self, port: int, inputs: Sequence[Cursor]) -> bool:
        """A patient one once no other can precede it, one of the other input once no earlier patient one can come."""
        head: Tuple = inputs[port].head()
        if head.punctuation:
            return True
        other = self.register(1 - port, inputs)
        return head.time < other if port == self.patient else head.time <= other

    def starving(self, inputs: Sequence[Cursor]) -> int:
        """The empty input; the other one if the patient one could go on but for it."""
        return 1 - self.patient if not len(inputs[1 - self.patient]) else self.patient

    def needs(self, inputs: Sequence[Cursor]) -> int | None:
        """A patient one needs the other input to be strictly past it."""
        needed = super().needs(inputs)
        return None if needed is None else needed + (len(inputs[1 - self.patient]) == 0)


class FollowsMostRecent(StrictlyWaiting):
    """Each tuple of the second input with the latest of the first; a first at the same time counts as before."""

    def __init__(self) -> None:
        super().__init__()
        self.latest: Tuple | None = None

    def take(self, port: int, item: Tuple, emit: Emit) -> None:
        """Remembers a first, pairs a second."""
        if port == 0:
            self.latest = item
        elif self.latest is not None:
            emit(Tuple(item.time, item.born, (self.latest.value, item.value)))


class FollowsEarliestUnused(StrictlyWaiting):
    """Each tuple of the second input with the earliest unused one of the first; it is used once, and then gone."""

    def __init__(self) -> None:
        super().__init__()
        self.unused: deque[Tuple] = deque()

    def take(self, port: int, item: Tuple, emit: Emit) -> None:
        """Remembers a first, uses one up for a second."""
        if port == 0:
            self.unused.append(item)
        elif self.unused:
            emit(Tuple(item.time, item.born, (self.unused.popleft().value, item.value)))


class Difference(StrictlyWaiting):
    """The tuples of the first input less, at each instant, as many equal ones as the second has there."""

    patient = 0

    def __init__(self) -> None:
        super().__init__()
        self.at: int | None = None
        self.subtracted: Counter[object] = Counter()

    def take(self, port: int, item: Tuple, emit: Emit) -> None:
        """Counts what cancels; gives what nothing cancels."""
        if self.at is None or item.time > self.at:
            self.at = item.time
            self.subtracted.clear()
        if port == 1:
            self.subtracted[item.value] += 1
        elif self.subtracted[item.value]:
            self.subtracted[item.value] -= 1
        else:
            emit(item)
