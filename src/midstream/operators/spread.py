"""Variance and standard deviation of the rows of each piece of time, exact and then rounded once.

The sum of squared distances from the mean is `(n * sum(x²) - sum(x)²) / n`. All of it is integers, so the same rows
give the same bits by every plan and in every order. Distances are taken from one row of each group first, which changes
nothing but makes the integers small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.operators import exact_numbers as exact
from midstream.operators.accumulators import Measure, as_floats, count_measure
from midstream.operators.elements import Indices, Mask
from midstream.operators.exact_numbers import Digits, Floats, Integers
from midstream.operators.vectors import Numbers, numbers_of


@dataclass(frozen=True, slots=True)
class Spread:
    """`n * sum(x²) - sum(x)²` of each piece: an integer in units of `4 ** exponent`.

    It is there as carried digits, or as Python's integers where the numbers are too far apart. `valid` is false where
    some number was not finite, so that there are no distances.
    """

    numerators: tuple[Integers, ...] | Numbers
    bits: int
    exponent: int
    valid: Mask

    def values(self, count: Integers, freedom: int, deviation: bool) -> Floats:
        """The variance, or its root, for pieces of so many values; anything where there are not more than `freedom`."""
        enough = count > freedom
        n = np.where(enough, count, freedom + 1)
        if isinstance(self.numerators, tuple):
            result = self._from_digits(self.numerators, n, freedom, deviation, enough & self.valid)
        else:
            result = np.zeros(len(n))
            for i in np.flatnonzero(enough & self.valid).tolist():
                result[i] = self._one(int(self.numerators[i]), int(n[i]), freedom, deviation)
        return np.where(self.valid, result, np.nan)

    def _from_digits(
        self, digits: tuple[Integers, ...], n: Integers, freedom: int, deviation: bool, wanted: Mask
    ) -> Floats:
        none = np.zeros(len(n))
        below = exact.product((n.astype(np.float64), none), ((n - freedom).astype(np.float64), none))
        ratio = exact.quotient(exact.as_pair(digits, self.bits, len(n)), below)
        nearest, sure = exact.rounded(exact.root(ratio) if deviation else ratio)
        result: Floats = np.ldexp(nearest, self.exponent if deviation else 2 * self.exponent)
        # Numbers next to zero have fewer digits, so they would be rounded twice.
        sure &= (nearest == 0) | (result > 2.0**-1000)
        for i in np.flatnonzero(wanted & ~sure).tolist():
            result[i] = self._one(exact.whole(digits, self.bits, i), int(n[i]), freedom, deviation)
        return result

    def _one(self, numerator: int, n: int, freedom: int, deviation: bool) -> float:
        if deviation:
            return exact.exact_root(numerator, n * (n - freedom), self.exponent)
        return exact.exact_quotient(numerator, n * (n - freedom), 2 * self.exponent)


class SpreadOf:
    """Finds the spread of a column's present values on every piece, of which there are `count`."""

    def __init__(self, present: Mask, groups: Indices, count: Integers, sweep: Callable[[Measure], Numbers]) -> None:
        self.present = present
        self.groups = groups
        self.count = count
        self.sweep = sweep
        self.bits = exact.digit_bits(len(present))
        self.everywhere = np.ones(len(count), bool)

    def column(self, column: pa.Array) -> Spread:
        """The spread of numbers: integers as they are, all others as doubles."""
        if len(self.groups) == 0:
            return Spread((), self.bits, 0, self.everywhere)
        if pa.types.is_integer(column.type):
            numbers = np.where(self.present, numbers_of(column).astype(np.int64), 0)
            return self._narrow(exact.digits_of_integers(numbers, self.bits), self.present, self.everywhere)
        return self._floats(as_floats(column))

    def _floats(self, values: Floats) -> Spread:
        finite = self.present & np.isfinite(values)
        strange = self.present & ~finite
        valid = self.sweep(count_measure(strange)) == 0 if strange.any() else self.everywhere
        numbers = np.where(finite, values, 0.0)
        digits = exact.digits_of_floats(numbers, self.bits)
        return self._wide(numbers, valid) if digits is None else self._narrow(digits, finite, valid)

    def _narrow(self, digits: Digits, present: Mask, valid: Mask) -> Spread:
        apart, bits = _distances(digits.digits, present, self.groups), digits.bits
        if not apart:
            return Spread((), bits, digits.exponent, valid)
        totals = exact.carried([self._summed(part) for part in apart], bits)
        squares = exact.carried([self._summed(part) for part in exact.products(apart)], bits)
        of_totals = exact.products(totals)
        most, none = max(len(squares), len(of_totals)), np.zeros(len(self.count), np.int64)
        squares, of_totals = (part + [none] * (most - len(part)) for part in (squares, of_totals))
        numerators = [self.count * a - b for a, b in zip(squares, of_totals, strict=True)]
        return Spread(tuple(exact.carried(numerators, bits)), bits, digits.exponent, valid)

    def _summed(self, digit: Integers) -> Integers:
        return self.sweep(Measure(digit, np.add, 0, steps=True))

    def _wide(self, numbers: Floats, valid: Mask) -> Spread:
        """The same in Python's integers."""
        unit, integers = exact.integers_of_floats(numbers)
        totals = self.sweep(Measure(integers, np.add, 0))
        squares = self.sweep(Measure(integers * integers, np.add, 0))
        return Spread(self.count.astype(object) * squares - totals * totals, self.bits, unit, valid)


def _distances(digits: tuple[Integers, ...], present: Mask, groups: Indices) -> list[Integers]:
    """How far each row is from the first one of its group, without the digits above that are zero everywhere."""
    rows = np.flatnonzero(present)[::-1]
    first = np.zeros(int(groups.max()) + 1, np.intp)
    first[groups[rows]] = rows
    apart = [np.where(present, digit - digit[first[groups]], 0) for digit in digits]
    while apart and not apart[-1].any():
        apart.pop()
    return apart
