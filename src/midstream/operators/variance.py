"""Variance and standard deviation of the rows of each piece of time, exact and then rounded once.

The sum of squared distances from the mean is `(n * sum(x²) - sum(x)²) / n`. All of it is integers, so the same rows
give the same bits by every plan and in every order. Distances are taken from one row of each group first, which changes
nothing but makes the integers small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa

from midstream.operators import exact_numbers as exact
from midstream.operators.accumulators import Measure
from midstream.operators.elements import Indices, Mask
from midstream.operators.exact_numbers import Extent, Floats, Integers
from midstream.operators.parts import SweptPart, SweptParts, count_measure
from midstream.operators.vectors import Numbers


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
    """Finds the spread of the present values on every piece."""

    def __init__(self, parts: SweptParts) -> None:
        self.parts = parts
        self.count: Integers = parts.count
        self.bits = exact.digit_bits(parts.rows)
        self.everywhere = np.ones(len(self.count), bool)

    def column(self, kind: pa.DataType) -> Spread:
        """The spread of numbers of a type: integers as they are, all others as doubles."""
        if pa.types.is_integer(kind):
            extent = self._extent(lambda part: exact.extent_of_integers(part.integers))
            return self._narrow(Numerals(extent, self.bits, floats=False), self.everywhere)
        strange = any(part.strange.any() for part in self.parts)
        valid = self.parts.sweep(lambda part: count_measure(part.strange)) == 0 if strange else self.everywhere
        extent = self._extent(lambda part: exact.extent_of_floats(part.mantissas))
        if not exact.fits(extent, self.bits):
            return self._wide(extent, valid)
        return self._narrow(Numerals(extent, self.bits, floats=True), valid)

    def _extent(self, of: Callable[[SweptPart], Extent]) -> Extent:
        return reduce(Extent.joined, map(of, self.parts), exact.NO_EXTENT)

    def _narrow(self, numerals: Numerals, valid: Mask) -> Spread:
        references = _References()

        def measures(part: SweptPart) -> dict[tuple[str, int], Measure]:
            apart = _distances(numerals.digits(part), numerals.present(part), part.layout.groups, references)
            named = {"total": apart, "square": exact.products(apart)}
            return {
                (name, place): Measure(digit, np.add, 0, steps=True)
                for name, digits in named.items()
                for place, digit in enumerate(digits)
            }

        found, bits = self.parts.sweep_all(measures), numerals.bits
        if not found:
            return Spread((), bits, numerals.extent.exponent, valid)
        totals, squares = (
            exact.carried([found[key] for key in sorted(found) if key[0] == name], bits) for name in ("total", "square")
        )
        of_totals = exact.products(totals)
        most, none = max(len(squares), len(of_totals)), np.zeros(len(self.count), np.int64)
        squares, of_totals = (part + [none] * (most - len(part)) for part in (squares, of_totals))
        numerators = [self.count * a - b for a, b in zip(squares, of_totals, strict=True)]
        return Spread(tuple(exact.carried(numerators, bits)), bits, numerals.extent.exponent, valid)

    def _wide(self, extent: Extent, valid: Mask) -> Spread:
        """The same in Python's integers."""

        def measures(part: SweptPart) -> dict[str, Measure]:
            integers = exact.integers_of_floats(part.mantissas, extent)
            return {"total": Measure(integers, np.add, 0), "square": Measure(integers * integers, np.add, 0)}

        totals, squares = self.parts.sweep_all(measures).values()
        return Spread(self.count.astype(object) * squares - totals * totals, self.bits, extent.exponent, valid)


@dataclass(frozen=True, slots=True)
class Numerals:
    """How the numbers of all parts are written: in the same unit, with the same number of bits a digit."""

    extent: Extent
    bits: int
    floats: bool

    def digits(self, part: SweptPart) -> tuple[Integers, ...]:
        """The digits of a part's numbers."""
        if self.floats:
            return exact.digits_of_floats(part.mantissas, self.bits, self.extent).digits
        return exact.digits_of_integers(part.integers, self.bits, self.extent).digits

    def present(self, part: SweptPart) -> Mask:
        """Which of a part's numbers count."""
        return part.finite if self.floats else part.present


class _References:
    """For each group, the digits of the one row from which distances are taken."""

    def __init__(self) -> None:
        self.known = np.zeros(0, bool)
        self.digits: list[Integers] = []

    def of(self, digits: tuple[Integers, ...], present: Mask, groups: Indices) -> list[Integers]:
        """The digits for every row of a part, whose groups that have none yet get those of their first row."""
        count = max(int(groups.max(initial=-1)) + 1, len(self.known))
        more = count - len(self.known)
        self.known = np.append(self.known, np.zeros(more, bool))
        self.digits = [np.append(digit, np.zeros(more, np.int64)) for digit in self.digits or [_NONE] * len(digits)]
        rows = np.flatnonzero(present)[::-1]
        rows = rows[~self.known[groups[rows]]]
        for kept, digit in zip(self.digits, digits, strict=True):
            kept[groups[rows]] = digit[rows]
        self.known[groups[rows]] = True
        return [kept[groups] for kept in self.digits]


_NONE = np.empty(0, np.int64)


def _distances(digits: tuple[Integers, ...], present: Mask, groups: Indices, references: _References) -> list[Integers]:
    """How far each row is from one row of its group, without the digits above that are zero everywhere."""
    from_ = references.of(digits, present, groups)
    apart = [np.where(present, digit - other, 0) for digit, other in zip(digits, from_, strict=True)]
    while apart and not apart[-1].any():
        apart.pop()
    return apart
