"""Where random decisions come from: anything that gives whole numbers, such as a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

Source = Callable[[int, int], int]
"""Anything that gives a whole number between two bounds, both included; small ones are the simple ones."""


class Choices:
    """Decisions of all sorts, each made by drawing one number."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @classmethod
    def of_seed(cls, seed: int) -> Choices:
        """Decisions that follow from a seed."""
        return cls(Random(seed).randint)

    def integer(self, low: int, high: int) -> int:
        """A whole number, both bounds included."""
        return self._source(low, high)

    def choose(self, options: Sequence[T]) -> T:
        """One of some options."""
        return options[self._source(0, len(options) - 1)] if len(options) > 1 else options[0]

    def some(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """Different ones of some options."""
        left, chosen = list(options), []
        for _ in range(min(self.integer(least, most), len(left))):
            chosen.append(left.pop(self.integer(0, len(left) - 1)))
        return chosen

    def flag(self) -> bool:
        """Yes or no."""
        return bool(self._source(0, 1))

    def chance(self, one_in: int) -> bool:
        """Yes, one time in so many; no is the simple answer."""
        return self._source(0, one_in - 1) == one_in - 1

    def random(self) -> Random:
        """A generator for many small decisions at the price of one."""
        return Random(self._source(0, 2**32 - 1))
