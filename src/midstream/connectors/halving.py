"""What is done with many rows at once, and with fewer where some of them are refused: halves, until these are alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

Made = TypeVar("Made")


def in_halves(
    length: int,
    act: Callable[[int, int], Made],
    refusals: tuple[type[Exception], ...],
    alone: Callable[[int, Exception], Made],
) -> Iterator[Made]:
    """What is made of rows from one place to before another, in order; `alone` of a single row that is refused.

    >>> rows = [1, 1, 0, 1]
    >>> list(in_halves(4, lambda a, b: [1 // row for row in rows[a:b]], (ArithmeticError,), lambda place, _: place))
    [[1, 1], 2, [1]]
    """
    waiting = [(0, length)] if length else []
    while waiting:
        start, stop = waiting.pop()
        try:
            yield act(start, stop)
        except refusals as error:
            if stop - start == 1:
                yield alone(start, error)
            else:
                middle = (start + stop) // 2
                waiting += [(middle, stop), (start, middle)]
