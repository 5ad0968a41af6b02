"""Operators that are prone to wait idly, with a register per input.

A register is the promise that nothing older will come on its input. It rises by itself to the time of the input's
first tuple, and it may be raised explicitly while the input is empty. A tuple may be taken once no register is below
its time: so the output is in order, and simultaneous tuples do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from midstream.algebra.time import BEGINNING
from midstream.scheduling.buffers import Cursor
from midstream.scheduling.graph import Emit


class Tuple(NamedTuple):
    """One row of a stream in virtual time: its timestamp, when it came to be, and what it says.

    A punctuation says only that nothing older than it will follow.
    """

    time: int
    born: int
    value: Any = None
    punctuation: bool = False


class Pass:
    """A selection (or projection, if it changes the value): takes any tuple, waits for nothing."""

    def __init__(self, change: Callable[[Tuple], Tuple | None]) -> None:
        self.change = change

    def more(self, inputs: Sequence[Cursor]) -> bool:
        """Whether any tuple is there."""
        return any(map(len, inputs))

    def step(self, inputs: Sequence[Cursor], emit: Emit) -> int:
        """Takes a tuple from the first input that has one."""
        for cursor in inputs:
            if len(cursor):
                item = cursor.take()
                result = item if item.punctuation else self.change(item)
                if result is not None:
                    emit(result)
                return 1
        return 0

    def starving(self, inputs: Sequence[Cursor]) -> int:
        """The first empty input."""
        return next((port for port, cursor in enumerate(inputs) if not len(cursor)), 0)


class Waiting:
    """What operators with registers have in common; `active` marks registers raised but not yet passed on."""

    def __init__(self, ports: int) -> None:
        self.raised = [BEGINNING] * ports
        self.active = [False] * ports
        self.sent = BEGINNING
        self.owed = BEGINNING
        self.consumed = 0

    def register(self, port: int, inputs: Sequence[Cursor]) -> int:
        """What is promised of an input now."""
        cursor = inputs[port]
        return max(self.raised[port], cursor.head().time) if len(cursor) else self.raised[port]

    def least(self, inputs: Sequence[Cursor]) -> int:
        """What is promised of all inputs together, and so of the output."""
        return min(self.register(port, inputs) for port in range(len(inputs)))

    def raise_register(self, port: int, value: int) -> bool:
        """Raises a register explicitly; False if it already promises as much."""
        if value <= self.raised[port]:
            return False
        self.raised[port] = value
        self.active[port] = True
        return True

    def ready(self, inputs: Sequence[Cursor]) -> int | None:
        """The input whose first tuple may be taken now; a punctuation, which only raises a register, always may."""
        return next((p for p, cursor in enumerate(inputs) if len(cursor) and self.may_take(p, inputs)), None)

    def may_take(self, port: int, inputs: Sequence[Cursor]) -> bool:
        """Whether an input's first tuple may be taken: no register is below its time."""
        head: Tuple = inputs[port].head()
        return head.punctuation or head.time <= self.least(inputs)

    def more(self, inputs: Sequence[Cursor]) -> bool:
        """Whether some tuple's time is the least that any register promises, or punctuation is to be passed on."""
        return self.ready(inputs) is not None or min(self.least(inputs), self.owed) > self.sent

    def starving(self, inputs: Sequence[Cursor]) -> int:
        """The first empty input with the least promise: no tuple can be taken before that rises."""
        least = self.least(inputs)
        for port, cursor in enumerate(inputs):
            if not len(cursor) and self.raised[port] == least:
                return port
        return next((port for port, cursor in enumerate(inputs) if not len(cursor)), 0)

    def needs(self, inputs: Sequence[Cursor]) -> int | None:
        """The promise that would let something that waits idly go on; None if nothing does."""
        if self.more(inputs):
            return None
        return min((cursor.head().time for cursor in inputs if len(cursor)), default=None)

    def step(self, inputs: Sequence[Cursor], emit: Emit) -> int:
        """Takes the next tuple in order, if it may be taken."""

        def give(result: Tuple) -> None:
            # A result says by itself how far the output is.
            self.sent = max(self.sent, result.time)
            emit(result)

        port = self.ready(inputs)
        taken = 0
        if port is not None:
            item = inputs[port].take()
            self.raised[port] = max(self.raised[port], item.time)
            taken = 1
            if item.punctuation:
                self.owed = max(self.owed, item.time)
            else:
                self.consumed += 1
                self.take(port, item, give)
        least = self.least(inputs)
        self.learn(least, give)
        # Punctuation that came is passed on as far as all inputs have got, now or when they get further.
        if min(least, self.owed) > self.sent:
            self.sent = min(least, self.owed)
            emit(Tuple(self.sent, self.sent, punctuation=True))
        return taken

    def take(self, port: int, item: Tuple, emit: Emit) -> None:
        """What a tuple does."""
        raise NotImplementedError

    def learn(self, least: int, emit: Emit) -> None:
        """What a risen promise does by itself."""


class Union(Waiting):
    """Merges its inputs by time."""

    def take(self, port: int, item: Tuple, emit: Emit) -> None:
        """Gives the tuple on."""
        emit(item)


class WindowJoin(Waiting):
    """Pairs tuples of equal value that are at most `within` apart; a pair has the time of its later part."""

    def __init__(self, within: int) -> None:
        super().__init__(2)
        self.within = within
        self.windows: tuple[list[Tuple], list[Tuple]] = ([], [])

    def take(self, port: int, item: Tuple, emit: Emit) -> None:
        """Pairs the tuple with the other window, then keeps it."""
        for earlier in self.windows[1 - port]:
            if item.time - earlier.time <= self.within and earlier.value == item.value:
                emit(Tuple(item.time, item.born, item.value))
        self.windows[port].append(item)

    def learn(self, least: int, emit: Emit) -> None:
        """Forgets what nothing to come can reach."""
        for window in self.windows:
            while window and least - window[0].time > self.within:
                window.pop(0)


class SlidingCount(Waiting):
    """Counts tuples per slide; the count of `[b - slide, b)` is given at `b`, once nothing before `b` can come."""

    def __init__(self, slide: int) -> None:
        super().__init__(1)
        self.slide = slide
        self.count = 0
        self.boundary: int | None = None

    def take(self, port: int, item: Tuple, emit: Emit) -> None:
        """Counts the tuple in its slide; earlier slides are given first."""
        self.learn(item.time, emit)
        if self.boundary is None:
            self.boundary = item.time - item.time % self.slide + self.slide
        self.count += 1

    def needs(self, inputs: Sequence[Cursor]) -> int | None:
        """The end of the slide that is being counted."""
        return None if self.more(inputs) else self.boundary

    def learn(self, least: int, emit: Emit) -> None:
        """Gives the slides that are over."""
        if self.boundary is not None and least >= self.boundary:
            emit(Tuple(self.boundary, self.boundary, self.count))
            self.boundary, self.count = None, 0
